//! Metrics of other processes, read over HTTP.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

/// The longest page.
const MAX_BYTES: u64 = 8 << 20;

/// Samples of a page, and the time at which it was read.
#[derive(Clone, Debug)]
pub(crate) struct Scraped {
    pub(crate) when: Instant,
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// Reads the metrics at HOST:PORT, or http://HOST:PORT/metrics, within a limit.
pub(crate) fn scrape(place: &str, limit: Duration) -> Result<Scraped, String> {
    let place = place.strip_prefix("http://").unwrap_or(place);
    let place = place.strip_suffix("/metrics").unwrap_or(place).trim_end_matches('/');
    let page = read(place, limit).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => {
            format!(
                "no answer within {} s: the process is paused, its host is away, or a firewall drops packets",
                limit.as_secs_f64()
            )
        }
        io::ErrorKind::ConnectionRefused => "connection refused: no process serves metrics there".to_owned(),
        _ => error.to_string(),
    })?;
    let (head, body) = page.split_once("\r\n\r\n").ok_or("the answer is no page of metrics")?;
    if head.split(' ').nth(1) != Some("200") {
        return Err(format!("the answer is no page of metrics: {}", head.lines().next().unwrap_or_default()));
    }
    Scraped::parse(body).ok_or_else(|| "the answer is no page of metrics".to_owned())
}

fn read(place: &str, limit: Duration) -> io::Result<String> {
    let end = Instant::now() + limit;
    let left = || match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(left),
    };
    let mut found = Err(io::Error::new(io::ErrorKind::NotFound, "there is no such host"));
    for address in place.to_socket_addrs()? {
        found = TcpStream::connect_timeout(&address, left()?);
        if found.is_ok() {
            break;
        }
    }
    let mut stream = found?;
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(format!("GET /metrics HTTP/1.1\r\nhost: {place}\r\n\r\n").as_bytes())?;
    let mut page = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(n) if page.len() as u64 + n as u64 <= MAX_BYTES => page.extend_from_slice(&piece[..n]),
            Ok(_) => return Err(io::Error::other("the answer is too long for metrics")),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error),
        }
    }
    String::from_utf8(page).map_err(|_| io::Error::other("the answer is no text"))
}

impl Scraped {
    /// Reads a page in Prometheus's text format.
    pub(crate) fn parse(page: &str) -> Option<Scraped> {
        let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let samples = lines.map(Sample::parse).collect::<Option<Vec<Sample>>>()?;
        Some(Scraped { when: Instant::now(), samples })
    }

    /// The samples of a metric that have these labels.
    fn of<'s, 'n>(&'s self, name: &'n str, labels: &'n [(&'n str, &'n str)]) -> impl Iterator<Item = &'s Sample> {
        self.samples.iter().filter(move |sample| {
            sample.name == name && labels.iter().all(|(label, value)| sample.label(label) == Some(*value))
        })
    }

    /// Sum of the samples of a metric that have these labels; `None` if there is no such sample.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut found = self.of(name, labels).map(|sample| sample.value).peekable();
        found.peek().is_some().then(|| found.sum())
    }

    /// The greatest sample of a metric, and the value of its label.
    pub(crate) fn most(&self, name: &str, label: &str) -> Option<(Option<&str>, f64)> {
        let most = self.of(name, &[]).max_by(|one, other| one.value.total_cmp(&other.value))?;
        Some((most.label(label), most.value))
    }

    /// Value of a label of a metric.
    pub(crate) fn label(&self, name: &str, label: &str) -> Option<&str> {
        self.of(name, &[]).find_map(|sample| sample.label(label))
    }

    /// The value of `label` for which a metric is 1.
    pub(crate) fn state(&self, name: &str, label: &str) -> Option<&str> {
        self.of(name, &[]).find(|sample| sample.value == 1.0)?.label(label)
    }

    /// Upper bound of a share of the observations of a histogram since an earlier page; `None` without observations.
    pub(crate) fn quantile(&self, before: Option<&Scraped>, name: &str, share: f64) -> Option<f64> {
        let buckets = format!("{name}_bucket");
        let mut bounds: Vec<f64> = Vec::new();
        for sample in self.of(&buckets, &[]) {
            let bound = sample.bound()?;
            if !bounds.contains(&bound) {
                bounds.push(bound);
            }
        }
        bounds.sort_by(f64::total_cmp);
        let up_to = |page: &Scraped, bound: f64| -> f64 {
            page.of(&buckets, &[]).filter(|sample| sample.bound() == Some(bound)).map(|sample| sample.value).sum()
        };
        let counted = |bound: f64| up_to(self, bound) - before.map_or(0.0, |before| up_to(before, bound));
        let all = counted(*bounds.last()?);
        if all <= 0.0 {
            return None;
        }
        bounds.iter().copied().find(|bound| counted(*bound) >= share * all)
    }
}

impl Sample {
    /// `name{label="value",…} 1.5`
    fn parse(line: &str) -> Option<Sample> {
        let (name, rest) = match line.find('{') {
            Some(brace) => (&line[..brace], &line[brace + 1..]),
            None => line.split_once(' ')?,
        };
        let mut labels = Vec::new();
        let mut rest = rest;
        if line.contains('{') {
            while let Some((label, behind)) = rest.split_once("=\"") {
                let (value, behind) = unquoted(behind)?;
                labels.push((label.trim_start_matches(',').to_owned(), value));
                rest = behind;
                if let Some(behind) = rest.strip_prefix('}') {
                    rest = behind;
                    break;
                }
            }
            rest = rest.trim_start_matches('}');
        }
        // A time may follow.
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some(Sample { name: name.to_owned(), labels, value })
    }

    fn label(&self, label: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == label).map(|(_, value)| value.as_str())
    }

    /// Upper bound of a bucket.
    fn bound(&self) -> Option<f64> {
        match self.label("le")? {
            "+Inf" => Some(f64::INFINITY),
            bound => bound.parse().ok(),
        }
    }
}

/// A value up to its closing quote, and what stands behind the quote.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    loop {
        match letters.next()? {
            (place, '"') => return Some((value, &text[place + 1..])),
            (_, '\\') => value.push(match letters.next()?.1 {
                'n' => '\n',
                letter => letter,
            }),
            (_, letter) => value.push(letter),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn samples_of_a_family_are_added() {
        let page = Scraped::parse(
            "# HELP a_total Bytes.\na_total{call=\"x\"} 40\na_total{call=\"y\",code=\"a\\\"}b\"} 2\na_total_more 7\n\
             b{phase=\"one\"} 0\nb{phase=\"two\"} 1\nc NaN\nd 1.5 1700000000\n# EOF\n",
        )
        .unwrap();
        assert_eq!((page.sum("a_total", &[]), page.sum("z_total", &[])), (Some(42.0), None));
        assert_eq!(page.sum("a_total", &[("call", "y")]), Some(2.0));
        assert_eq!(page.sum("a_total", &[("call", "z")]), None);
        assert_eq!(page.label("a_total", "code"), Some("a\"}b"));
        assert_eq!(page.state("b", "phase"), Some("two"));
        assert!(page.sum("c", &[]).unwrap().is_nan());
        assert_eq!(page.sum("d", &[]), Some(1.5));
        assert!(Scraped::parse("b_total x\n").is_none() && Scraped::parse("<html>\n").is_none());
    }

    #[test]
    fn quantiles_are_of_the_time_between_two_pages() {
        let page = |counts: [u32; 3]| {
            let [one, two, all] = counts;
            Scraped::parse(&format!(
                "h_bucket{{le=\"0.1\",call=\"x\"}} {one}\nh_bucket{{le=\"1.0\",call=\"x\"}} {two}\n\
                 h_bucket{{le=\"+Inf\",call=\"x\"}} {all}\nh_count{{call=\"x\"}} {all}\n"
            ))
            .unwrap()
        };
        let (before, now) = (page([90, 90, 90]), page([90, 95, 100]));
        assert_eq!(now.quantile(None, "h", 0.5), Some(0.1));
        assert_eq!(now.quantile(Some(&before), "h", 0.5), Some(1.0));
        assert_eq!(now.quantile(Some(&before), "h", 0.99), Some(f64::INFINITY));
        assert_eq!(now.quantile(Some(&now), "h", 0.99), None);
        assert_eq!(now.quantile(None, "g", 0.99), None);
    }

    #[test]
    fn a_place_without_metrics_is_an_error_within_the_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap().to_string();
        // Nobody answers.
        let begun = Instant::now();
        let error = scrape(&place, Duration::from_millis(50)).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(20) && !error.is_empty(), "{error}");
        let answer = |text: &'static str| {
            let listener = listener.try_clone().unwrap();
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(text.as_bytes());
            })
        };
        // The connection from before is still in the queue.
        answer("").join().unwrap();
        for (text, says) in [
            ("HTTP/1.1 404 Not Found\r\n\r\nno", "404 Not Found"),
            ("HTTP/1.1 200 OK\r\n\r\n<html>\n", "no page of metrics"),
            ("SSH-2.0-OpenSSH\r\n", "no page of metrics"),
        ] {
            let answering = answer(text);
            let error = scrape(&format!("http://{place}/metrics"), Duration::from_secs(10)).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
            answering.join().unwrap();
        }
    }
}
