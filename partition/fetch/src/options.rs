//! How to fetch.

use std::time::Duration;

/// How to fetch.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// An address under which every file is found by its name, instead of the addresses in the catalog.
    pub mirror: Option<String>,
    /// Whether to go through the proxy that the environment names.
    pub use_proxy: bool,
    /// How long to wait for a connection.
    pub connect: Duration,
    /// How long to wait when nothing, or next to nothing, arrives.
    pub stall: Duration,
    /// How often to try again, after the first time, when the network fails or the server is in trouble.
    pub n_retries: u32,
    /// How long to wait before trying again; doubles each time, up to half a minute.
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
