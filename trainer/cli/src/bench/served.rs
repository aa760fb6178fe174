//! Counters of a sampling server, read from its Prometheus metrics.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

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
    let page = page(address).map_err(|error| format!("metrics of the server on {address}: {error}"))?;
    let of = |family: &str| sum(&page, family).ok_or_else(|| format!("the server on {address} shows no {family}"));
    Ok(Served {
        received_bytes: of("kith_sampler_received_bytes_total")?,
        sent_bytes: of("kith_sampler_sent_bytes_total")?,
    })
}

/// The metrics address in a server's first line: `serving shards 0 of 2 on 127.0.0.1:4000 (metrics on 127.0.0.1:4001)`.
pub(super) fn metrics_address(line: &str) -> Option<SocketAddr> {
    line.trim_end().strip_suffix(')')?.rsplit_once(" (metrics on ")?.1.parse().ok()
}

fn page(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes())?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// Sum of a metric over all labels.
fn sum(page: &str, family: &str) -> Option<u64> {
    let samples = page.lines().filter_map(|line| {
        let (labels, value) = line.strip_prefix(family)?.rsplit_once(' ')?;
        (labels.is_empty() || labels.starts_with('{')).then(|| value.parse::<f64>().ok())
    });
    samples
        .collect::<Option<Vec<f64>>>()
        .filter(|found| !found.is_empty())
        .map(|found| found.iter().sum::<f64>() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_family_are_added() {
        let page = "# HELP a_total Bytes.\na_total{call=\"x\"} 40\na_total{call=\"y\"} 2\na_total_more 7\nb_total x\n";
        assert_eq!((sum(page, "a_total"), sum(page, "b_total"), sum(page, "c_total")), (Some(42), None, None));
    }

    #[test]
    fn a_server_says_where_its_metrics_are() {
        let line = "serving shards 1 of 3 on [::1]:4000 (metrics on [::1]:4001)\n";
        assert_eq!(metrics_address(line), Some("[::1]:4001".parse().unwrap()));
        assert_eq!(metrics_address("serving shards 1 of 3 on [::1]:4000\n"), None);
    }
}
