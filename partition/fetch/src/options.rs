//! Options of a fetch.

use std::time::Duration;

/// Options of a fetch.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// An address under which every file is found by its name, instead of the addresses in the catalog.
    pub mirror: Option<String>,
    /// Use the proxy from the environment.
    pub use_proxy: bool,
    /// Timeout of a connection attempt.
    pub connect: Duration,
    /// Timeout of a transfer in which nothing, or next to nothing, arrives.
    pub stall: Duration,
    /// Retries when the network or the server fails.
    pub n_retries: u32,
    /// Wait before the first retry; doubles each time, up to half a minute.
    pub backoff: Duration,
    /// The most to download for a file whose length the catalog does not know.
    pub most_bytes: u64,
}

impl Default for FetchOptions {
    fn default() -> FetchOptions {
        FetchOptions {
            mirror: None,
            use_proxy: true,
            connect: Duration::from_secs(15),
            stall: Duration::from_secs(60),
            n_retries: 4,
            backoff: Duration::from_secs(1),
            most_bytes: 2 << 30,
        }
    }
}
