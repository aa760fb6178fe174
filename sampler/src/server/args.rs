//! The command line of a server: `kith-sampler` and `kith serve` take the same.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use kith_store::Verify;

use crate::server::config::{Limits, ServerConfig, ShardChoice, TlsFiles};

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
    /// Where to show metrics for Prometheus, at /metrics
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
    /// The most bytes of a request
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().max_message_bytes)]
    max_message: usize,
    /// The most nodes of a request
    #[arg(long, value_name = "NODES", default_value_t = Limits::default().max_frontier)]
    max_frontier: usize,
    /// The largest fanout other than all
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_fanout)]
    max_fanout: u32,
    /// Requests of one connection that are answered at a time; more of them wait
    #[arg(long, value_name = "N", default_value_t = Limits::default().max_in_flight)]
    max_in_flight: u32,
    /// The longest a call may take
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().max_call.as_secs())]
    max_call: u64,
    /// The longest that calls in flight may take after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().max_drain.as_secs())]
    max_drain: u64,
    /// When blocks of shards are compared with their checksums: when they are first read, all of them at the start, or never.
    /// A call that needs a block that does not match is answered with DATA_LOSS
    #[arg(long, default_value_t, value_name = "first-touch|open|off")]
    verify: Verify,
    /// Threads that compute answers; as many as there are cores if 0
    #[arg(long, value_name = "N", default_value_t = 0)]
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
            limits: Limits {
                max_message_bytes: self.max_message,
                max_frontier: self.max_frontier,
                max_fanout: self.max_fanout,
                max_in_flight: self.max_in_flight,
                max_call: Duration::from_secs(self.max_call),
                max_drain: Duration::from_secs(self.max_drain),
            },
            verify: self.verify,
            n_threads: self.threads,
        }
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
