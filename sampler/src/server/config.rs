//! Server configuration: shards, addresses and limits.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use kith_store::Verify;

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The folder of the cluster.
    pub cluster: PathBuf,
    /// The shards to serve.
    pub shards: ShardChoice,
    /// Listening address; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Address for metrics and health, if any.
    pub metrics: Option<SocketAddr>,
    /// Certificates of encrypted connections.
    pub tls: Option<TlsFiles>,
    /// Requirements on callers.
    pub access: AccessConfig,
    /// Limits on requests and connections.
    pub limits: Limits,
    /// When blocks of shards are compared with their checksums.
    pub verify: Verify,
    /// Connections on which chunks of answers have checksums.
    pub checksums: Checksums,
    /// Threads that compute answers; as many as there are cores if 0.
    pub n_threads: usize,
}

/// The connections on which every chunk of an answer has a checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksums {
    /// Those that leave the host and are not encrypted: TLS has a checksum of its own.
    #[default]
    Auto,
    /// All.
    On,
    /// None.
    Off,
}

impl Checksums {
    /// The one that is called so.
    pub fn from_name(name: &str) -> Option<Checksums> {
        match name {
            "auto" => Some(Checksums::Auto),
            "on" => Some(Checksums::On),
            "off" => Some(Checksums::Off),
            _ => None,
        }
    }

    /// True on connections that are not encrypted, to a client with this address.
    pub(crate) fn are_on(self, client: IpAddr) -> bool {
        match self {
            Checksums::Auto => !client.to_canonical().is_loopback(),
            Checksums::On => true,
            Checksums::Off => false,
        }
    }
}

/// Shards of a partitioned graph to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardChoice {
    /// All of them.
    All,
    /// These.
    These(Vec<u32>),
    /// The one with this number, counted on from 0 again after the last: what a server with a number of its own serves.
    ByIndex(u32),
}

impl ShardChoice {
    /// Selected shards of `n_shards`.
    pub fn of(&self, n_shards: u32) -> Vec<u32> {
        match self {
            ShardChoice::All => (0..n_shards).collect(),
            ShardChoice::These(shards) => shards.clone(),
            ShardChoice::ByIndex(index) => vec![index % n_shards.max(1)],
        }
    }
}

/// PEM files of a server.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificate authority of clients; if set, clients without a certificate signed by it are refused.
    pub client_ca: Option<PathBuf>,
}

/// Requirements on callers. Without certificates of clients and without tokens, everybody who can connect may ask.
#[derive(Clone, Debug, Default)]
pub struct AccessConfig {
    /// A file with tokens, one per line, of which callers must send one. It is read again when it changes.
    pub token_file: Option<PathBuf>,
    /// Names of which a client's certificate must have one; any if there are none.
    pub client_names: Vec<String>,
    /// Serves everybody who can connect, on an address that others can reach.
    pub is_insecure: bool,
}

impl ServerConfig {
    /// Serves all shards on loopback, with the usual limits.
    pub fn new(cluster: PathBuf, listen: SocketAddr) -> ServerConfig {
        ServerConfig {
            cluster,
            shards: ShardChoice::All,
            listen,
            metrics: None,
            tls: None,
            access: AccessConfig::default(),
            limits: Limits::default(),
            verify: Verify::default(),
            checksums: Checksums::default(),
            n_threads: 0,
        }
    }
}

/// Limits on requests and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request.
    pub max_message_bytes: usize,
    /// Nodes of a request; candidates of a lookup of edges.
    pub max_frontier: usize,
    /// The largest fanout other than all.
    pub max_fanout: u32,
    /// Requests of one connection that are answered at a time; more of them wait.
    pub max_in_flight: u32,
    /// The longest time a call may take.
    pub max_call: Duration,
    /// Time limit for calls in flight once the server stops.
    pub max_drain: Duration,
    /// Bytes that requests and answers of all connections may hold together.
    pub request_memory: usize,
    /// Open connections; fewer where the process may have fewer descriptors.
    pub max_connections: usize,
    /// Open connections of one address.
    pub max_per_address: usize,
    /// The longest time until a new connection's first call: for TLS, for HTTP/2, and for the call each.
    pub max_handshake: Duration,
    /// The longest time that a connection may be open without a call.
    pub max_idle: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_message_bytes: 64 << 20,
            max_frontier: 1 << 22,
            max_fanout: 1 << 16,
            max_in_flight: 64,
            max_call: Duration::from_secs(60),
            max_drain: Duration::from_secs(10),
            request_memory: 256 << 20,
            max_connections: 1024,
            max_per_address: 256,
            max_handshake: Duration::from_secs(10),
            max_idle: Duration::from_secs(300),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_numbers_share_the_shards() {
        let of = |index| ShardChoice::ByIndex(index).of(3);
        assert_eq!([of(0), of(2), of(3), of(7)], [[0], [2], [0], [1]]);
        assert_eq!(ShardChoice::All.of(3), [0, 1, 2]);
        assert_eq!(ShardChoice::These(vec![2, 0]).of(3), [2, 0]);
    }
}
