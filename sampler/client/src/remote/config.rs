//! How servers are talked to.

use std::{path::PathBuf, time::Duration};

/// How long to wait for a server, and how to trust it.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// The longest that one attempt of a call may take.
    pub max_attempt: Duration,
    /// The longest that a call may take with all its attempts.
    pub max_call: Duration,
    /// The wait before the second attempt; it doubles from one to the next.
    pub first_wait: Duration,
    /// The longest wait between attempts.
    pub max_wait: Duration,
    /// Certificates; without them connections are not encrypted.
    pub tls: Option<RemoteTls>,
}

/// PEM files of a client.
#[derive(Clone, Debug)]
pub struct RemoteTls {
    /// Who signs servers.
    pub ca: PathBuf,
    /// The client's certificate chain and its private key, for servers that ask for them.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in the server's certificate, if it is not the host of its address.
    pub server_name: Option<String>,
}

impl Default for RemoteConfig {
    fn default() -> RemoteConfig {
        RemoteConfig {
            max_attempt: Duration::from_secs(20),
            max_call: Duration::from_secs(60),
            first_wait: Duration::from_millis(20),
            max_wait: Duration::from_secs(1),
            tls: None,
        }
    }
}
