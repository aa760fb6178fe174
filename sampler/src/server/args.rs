//! The command line of a server: `kith-sampler` and `kith serve` take the same.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, builder::RangedU64ValueParser};
use kith_store::{Verify, parse_shard_list};

use crate::server::config::{AccessConfig, Checksums, Limits, ServerConfig, ShardChoice, TlsFiles};

/// Arguments of a sampling server.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Partitioned graph: the folder written by `kith partition`.
    #[arg(long = "graph", alias = "cluster", value_name = "DIR")]
    cluster: PathBuf,
    /// Shards to serve: comma-separated numbers and ranges, as in 0,2-3, or all (default: all).
    #[arg(long, default_value = "all", hide_default_value = true, value_parser = parse_shards)]
    shards: ShardChoice,
    /// Serve shard N % shards only, instead of --shards. For pods of a StatefulSet, which know their own number N.
    #[arg(long, value_name = "N", conflicts_with = "shards")]
    index: Option<u32>,
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    listen: SocketAddr,
    /// Address of the Prometheus metrics, at /metrics, and of the health check, at /health (default: none). A separate thread
    /// serves it, so that it answers even if the gRPC port is overloaded.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    metrics: Option<SocketAddr>,
    /// Certificate chain of the server, PEM; turns TLS on. Unencrypted connections are then refused.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// CA certificates of clients, PEM; clients without a certificate that they signed are refused.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Name that a client's certificate must have: a DNS name, a URI or a common name (default: any name). Can be repeated; one
    /// match is enough.
    #[arg(long, value_name = "NAME", requires = "tls_client_ca")]
    tls_client_name: Vec<String>,
    /// File with the accepted bearer tokens, one per line (default: the environment's KITH_SAMPLER_TOKEN, if set). It is read
    /// again when it changes.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Serve all clients without authentication on an address that is not loopback.
    #[arg(long)]
    insecure: bool,
    /// Maximum size of a request (default: 67108864, 64 MiB).
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().max_message_bytes, hide_default_value = true,
        value_parser = parse_size)]
    max_message: usize,
    /// Maximum number of nodes in a request (default: 4194304).
    #[arg(long, value_name = "NODES", default_value_t = Limits::default().max_frontier, hide_default_value = true,
        value_parser = parse_size)]
    max_frontier: usize,
    /// Memory for requests and responses of all connections together (default: 268435456, 256 MiB).
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().request_memory, hide_default_value = true,
        value_parser = parse_size)]
    request_memory: usize,
    /// Maximum number of open connections (default: 1024); fewer if the process may open fewer files.
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_connections, hide_default_value = true,
        value_parser = parse_count)]
    max_connections: usize,
    /// Maximum number of open connections per client address (default: 256).
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_per_address, hide_default_value = true,
        value_parser = parse_count)]
    max_per_address: usize,
    /// Longest TLS handshake, longest wait for the HTTP/2 preface, and longest wait for the first call (default: 10).
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().max_handshake.as_secs(), hide_default_value = true,
        value_parser = seconds(1))]
    max_handshake: u64,
    /// Longest time that a connection stays open without a call (default: 300).
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().max_idle.as_secs(), hide_default_value = true,
        value_parser = seconds(1))]
    max_idle: u64,
    /// Maximum fanout, except all (default: 65536).
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_fanout, hide_default_value = true)]
    max_fanout: u32,
    /// Maximum number of requests per connection that are processed at the same time (default: 64); further requests wait.
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_in_flight, hide_default_value = true,
        value_parser = clap::value_parser!(u32).range(1..=MAX_IN_FLIGHT))]
    max_in_flight: u32,
    /// Longest duration of a call (default: 60).
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().max_call.as_secs(), hide_default_value = true,
        value_parser = seconds(1))]
    max_call: u64,
    /// Time for calls in flight to finish after SIGTERM (default: 10).
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().max_drain.as_secs(), hide_default_value = true,
        value_parser = seconds(0))]
    max_drain: u64,
    /// When to verify checksums: of each block at its first read, of all blocks at the start, or never (default: first-touch). A
    /// call that needs a damaged block fails with DATA_LOSS.
    #[arg(long, default_value_t, hide_default_value = true, value_name = "first-touch|open|off")]
    verify: Verify,
    /// Connections on which every chunk of a response has a checksum: auto (those that leave the host without TLS, which has its
    /// own checksums), on (all) or off (none) (default: auto).
    #[arg(long, value_name = "auto|on|off", default_value = "auto", hide_default_value = true, value_parser = parse_checksums)]
    checksums: Checksums,
    /// Number of threads that compute responses; 0: one per core (default: 0).
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = parse_threads)]
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
    Checksums::from_name(text).ok_or_else(|| "expected auto, on or off".to_owned())
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
    parse_shard_list(text).map(|shards| ShardChoice::These(shards.into_iter().collect()))
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let addresses = text.to_socket_addrs().map_err(|error| format!("{text} is no HOST:PORT: {error}"));
    addresses?.next().ok_or_else(|| format!("{text} has no address"))
}
