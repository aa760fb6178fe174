//! The command line of a server: `kith-sampler` and `kith serve` take the same.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, builder::RangedU64ValueParser};
use kith_store::Verify;

use crate::server::config::{AccessConfig, Checksums, Limits, ServerConfig, ShardChoice, TlsFiles};

/// What is typed to start a server.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// The cluster's folder, as `kith partition` made it
    #[arg(long, value_name = "DIR")]
    cluster: PathBuf,
    /// Which shards: numbers with commas between them, or all
    #[arg(long, default_value = "all", value_parser = parse_shards)]
    shards: ShardChoice,
    /// Instead of --shards, this server's number, from 0: it serves the shard with that number, counted on from 0 again
    /// after the last shard; what a pod of a StatefulSet knows of itself
    #[arg(long, value_name = "N", conflicts_with = "shards")]
    index: Option<u32>,
    /// Where to listen; port 0 takes one that is free
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    listen: SocketAddr,
    /// Address of the port for metrics of Prometheus, at /metrics, and for health, at /health. This port has a thread of its
    /// own: floods of the other port do not reach it
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    metrics: Option<SocketAddr>,
    /// The server's certificate chain, PEM: only encrypted connections are taken
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Who signs clients, PEM: others are refused
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// A name that a client's certificate must have: a DNS name, a URI or a common name. Several may be given; one of them
    /// is enough
    #[arg(long, value_name = "NAME", requires = "tls_client_ca")]
    tls_client_name: Vec<String>,
    /// A file with tokens, one per line, of which clients must send one. It is read again when it changes (default: the token
    /// in KITH_SAMPLER_TOKEN, if there is one)
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Serve everybody who can connect, on an address that others can reach
    #[arg(long)]
    insecure: bool,
    /// The most bytes of a request
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().max_message_bytes, value_parser = parse_size)]
    max_message: usize,
    /// The most nodes of a request
    #[arg(long, value_name = "NODES", default_value_t = Limits::default().max_frontier, value_parser = parse_size)]
    max_frontier: usize,
    /// The most bytes that requests and answers of all connections may hold together
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().request_memory, value_parser = parse_size)]
    request_memory: usize,
    /// The most open connections; fewer if the process may have fewer files
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_connections, value_parser = parse_count)]
    max_connections: usize,
    /// The most open connections of one address
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_per_address, value_parser = parse_count)]
    max_per_address: usize,
    /// The longest that a new connection may take for its TLS handshake, for its HTTP/2 preface, and until its first call
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().max_handshake.as_secs(), value_parser = seconds(1))]
    max_handshake: u64,
    /// The longest that a connection may be open without a call
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().max_idle.as_secs(), value_parser = seconds(1))]
    max_idle: u64,
    /// The largest fanout other than all
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_fanout)]
    max_fanout: u32,
    /// Requests of one connection that are answered at a time; more of them wait
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_in_flight,
        value_parser = clap::value_parser!(u32).range(1..=MAX_IN_FLIGHT))]
    max_in_flight: u32,
    /// The longest a call may take
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().max_call.as_secs(), value_parser = seconds(1))]
    max_call: u64,
    /// The longest that calls in flight may take after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().max_drain.as_secs(), value_parser = seconds(0))]
    max_drain: u64,
    /// When blocks of shards are compared with their checksums: when they are first read, all of them at the start, or never.
    /// A call that needs a block that does not match is answered with DATA_LOSS
    #[arg(long, default_value_t, value_name = "first-touch|open|off")]
    verify: Verify,
    /// Connections on which every chunk of an answer has a checksum. auto: those that leave the host and are not encrypted
    /// (TLS has a checksum of its own)
    #[arg(long, value_name = "auto|on|off", default_value = "auto", value_parser = parse_checksums)]
    checksums: Checksums,
    /// Threads that compute answers; as many as there are cores if 0
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse_threads)]
    threads: usize,
}

impl ServeArgs {
    /// What it means.
    pub fn into_config(self) -> ServerConfig {
        let tls = self.tls_cert.zip(self.tls_key).map(|(certificate, key)| TlsFiles {
            certificate,
            key,
            client_ca: self.tls_client_ca,
        });
        ServerConfig {
            cluster: self.cluster,
            shards: self.index.map_or(self.shards, ShardChoice::ByIndex),
            listen: self.listen,
            metrics: self.metrics,
            tls,
            access: AccessConfig {
                token_file: self.token_file,
                client_names: self.tls_client_name,
                is_insecure: self.insecure,
            },
            limits: Limits {
                max_message_bytes: self.max_message,
                max_frontier: self.max_frontier,
                max_fanout: self.max_fanout,
                max_in_flight: self.max_in_flight,
                max_call: Duration::from_secs(self.max_call),
                max_drain: Duration::from_secs(self.max_drain),
                request_memory: self.request_memory,
                max_connections: self.max_connections,
                max_per_address: self.max_per_address,
                max_handshake: Duration::from_secs(self.max_handshake),
                max_idle: Duration::from_secs(self.max_idle),
            },
            verify: self.verify,
            checksums: self.checksums,
            n_threads: self.threads,
        }
    }
}

/// The longest time that can be asked for: a year.
pub(crate) const MAX_SECONDS: u64 = 365 * 24 * 3600;

/// Streams of a connection, at most: HTTP/2's window has 31 bits.
const MAX_IN_FLIGHT: i64 = 4095;

/// Parser of an option that is a time: whole seconds, a year at most, so that nothing overflows when it is added to now.
pub fn seconds(least: u64) -> RangedU64ValueParser {
    clap::value_parser!(u64).range(least..=MAX_SECONDS)
}

/// A number of bytes or nodes, as typed: at least 1, at most 2^40.
fn parse_size(text: &str) -> Result<usize, String> {
    in_range(text, 1 << 40)
}

/// A number of connections, as typed.
fn parse_count(text: &str) -> Result<usize, String> {
    in_range(text, 1 << 20)
}

fn parse_checksums(text: &str) -> Result<Checksums, String> {
    Checksums::from_name(text).ok_or_else(|| "write auto, on or off".to_owned())
}

/// A number of threads, as typed.
fn parse_threads(text: &str) -> Result<usize, String> {
    if text == "0" { Ok(0) } else { in_range(text, 4096) }
}

fn in_range(text: &str, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=most).contains(&n) => Ok(n),
        _ => Err(format!("expected a number from 1 to {most}, found {text}")),
    }
}

/// Shards, as typed.
pub(crate) fn parse_shards(text: &str) -> Result<ShardChoice, String> {
    if text == "all" {
        return Ok(ShardChoice::All);
    }
    let shard = |text: &str| text.trim().parse().map_err(|_| format!("{text} is no number of a shard"));
    text.split(',').map(shard).collect::<Result<_, _>>().map(ShardChoice::These)
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let addresses = text.to_socket_addrs().map_err(|error| format!("{text} is no HOST:PORT: {error}"));
    addresses?.next().ok_or_else(|| format!("{text} has no address"))
}
