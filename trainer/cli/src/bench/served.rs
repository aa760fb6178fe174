//! Counters of a sampling server, read from its Prometheus metrics.

use std::{net::SocketAddr, time::Duration};

use crate::scrape::scrape;

/// Time limit for reading a server's metrics.
const LIMIT: Duration = Duration::from_secs(10);

/// Bytes of all calls so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
}

impl std::ops::AddAssign for Served {
    fn add_assign(&mut self, other: Served) {
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
    }
}

/// Counters of the server with this metrics address.
pub(super) fn served(address: SocketAddr) -> Result<Served, String> {
    let page =
        scrape(&address.to_string(), LIMIT).map_err(|error| format!("metrics of the server on {address}: {error}"))?;
    let of = |family: &str| {
        let sum = page.sum(family, &[]).ok_or_else(|| format!("the server on {address} shows no {family}"));
        sum.map(|sum| sum as u64)
    };
    Ok(Served {
        received_bytes: of("kith_sampler_received_bytes_total")?,
        sent_bytes: of("kith_sampler_sent_bytes_total")?,
    })
}

/// The metrics address in a server's first line: `serving shards 0 of 2 on 127.0.0.1:4000 (metrics on 127.0.0.1:4001)`.
pub(super) fn metrics_address(line: &str) -> Option<SocketAddr> {
    line.trim_end().strip_suffix(')')?.rsplit_once(" (metrics on ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_where_its_metrics_are() {
        let line = "serving shards 1 of 3 on [::1]:4000 (metrics on [::1]:4001)\n";
        assert_eq!(metrics_address(line), Some("[::1]:4001".parse().unwrap()));
        assert_eq!(metrics_address("serving shards 1 of 3 on [::1]:4000\n"), None);
    }
}
