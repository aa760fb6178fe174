//! Metrics of every process: its build, and the resources that it uses, under Prometheus's usual names.

use std::{
    fmt, fs,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge, info::Info},
    registry::Registry,
};
use rustix::process::{Resource, getrlimit};

/// Ticks of `/proc/self/stat` per second: fixed for programs, whatever the kernel's own rate is.
const TICKS_PER_SECOND: f64 = 100.0;

/// Adds the metrics of this process, which is the program `program`.
pub fn describe_process(registry: &mut Registry, program: &'static str) {
    let build = [("program", program), ("version", env!("CARGO_PKG_VERSION")), ("arch", std::env::consts::ARCH)];
    registry.register("kith_build", "Version of this program", Info::new(build.to_vec()));
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    registry.register_collector(Box::new(Process { started }));
}

/// Resources of this process. They are read when they are asked for.
#[derive(Debug)]
struct Process {
    /// Seconds since 1970.
    started: f64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: Option<f64>| match value {
            Some(value) => show(&mut encoder, name, help, &ConstGauge::new(value)),
            None => Ok(()),
        };
        // One of the descriptors is that of the folder that is read here.
        let n_open = fs::read_dir("/proc/self/fd").map(|found| found.count().saturating_sub(1) as f64).ok();
        gauge("process_open_fds", "Open file descriptors.", n_open)?;
        let most = getrlimit(Resource::Nofile).current.map(|most| most as f64);
        gauge("process_max_fds", "Most file descriptors that may be open.", most)?;
        gauge("process_resident_memory_bytes", "Memory that is present, mapped files included.", resident_bytes())?;
        gauge("process_start_time_seconds", "Time of the start, in seconds since 1970.", Some(self.started))?;
        match cpu_seconds() {
            Some(seconds) => {
                let counter = ConstCounter::new(seconds);
                show(&mut encoder, "process_cpu_seconds", "CPU time of all threads.", &counter)
            }
            None => Ok(()),
        }
    }
}

fn show(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &dyn EncodeMetric,
) -> Result<(), fmt::Error> {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
}

/// User and system time.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name, in parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn value(page: &str, name: &str) -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {page}"));
        line.trim().parse().unwrap()
    }

    #[test]
    fn a_process_shows_what_it_uses() {
        let mut registry = Registry::default();
        describe_process(&mut registry, "kith-test");
        let page = || {
            let mut page = String::new();
            encode(&mut page, &registry).unwrap();
            page
        };
        let before = page();
        let build = format!(
            "kith_build_info{{program=\"kith-test\",version=\"{}\",arch=\"{}\"}} 1",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::ARCH
        );
        assert!(before.lines().any(|line| line == build), "{build} is not in\n{before}");
        let n_open = value(&before, "process_open_fds ");
        let held: Vec<fs::File> = (0..50).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        // Other tests of this process open and close files too, but not that many.
        assert!(value(&page(), "process_open_fds ") >= n_open + 30.0);
        drop(held);
        assert!(value(&before, "process_max_fds ") >= n_open);
        assert!(value(&before, "process_resident_memory_bytes ") > 1e6);
        assert!((1.7e9..1e11).contains(&value(&before, "process_start_time_seconds ")));
        let used = cpu_seconds().unwrap();
        let mut number = 1u64;
        while cpu_seconds().unwrap() < used + 0.02 {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        assert!(value(&page(), "process_cpu_seconds_total ") >= used + 0.02);
    }
}
