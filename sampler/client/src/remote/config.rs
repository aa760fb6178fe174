//! Options for connections to servers.

use std::{path::PathBuf, time::Duration};

use crate::remote::token::TokenSource;

/// Limits, retries and credentials of a client.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// The longest that an attempt of a call may last without progress: without a KiB that is sent, or received on its
    /// connection.
    pub max_silence: Duration,
    /// The longest that a call may last, with all its attempts, without a row that is new.
    pub max_call: Duration,
    /// The wait before the second attempt; it doubles from one to the next, and each is cut by up to a half at random.
    pub first_wait: Duration,
    /// The longest wait between attempts.
    pub max_wait: Duration,
    /// Names the random parts of waits; another for each client if there is none. No draw and no answer depends on it.
    pub jitter: Option<u64>,
    /// Certificates; without them connections are not encrypted.
    pub tls: Option<RemoteTls>,
    /// The token of the client, for servers that ask for one.
    pub token: Option<TokenSource>,
}

/// PEM files of a client. They are read again when a connection was lost.
#[derive(Clone, Debug)]
pub struct RemoteTls {
    /// Certificate authority of servers.
    pub ca: PathBuf,
    /// The client's certificate chain and its private key, for servers that ask for them.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name in the server's certificate, if it is not the host of its address.
    pub server_name: Option<String>,
}

impl Default for RemoteConfig {
    fn default() -> RemoteConfig {
        RemoteConfig {
            max_silence: Duration::from_secs(20),
            max_call: Duration::from_secs(60),
            first_wait: Duration::from_millis(20),
            max_wait: Duration::from_secs(1),
            jitter: None,
            tls: None,
            token: None,
        }
    }
}
