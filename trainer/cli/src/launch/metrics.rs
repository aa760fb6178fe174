//! Metrics of `kith launch`: the processes that it runs, their ends, and restarts of the run.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use kith_group::launch::{attempt::Who, ended::Ended};
use kith_sampler::prometheus::{self, describe_process};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::progress::reached;

/// The time between two looks for a newer checkpoint after a restart.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Usual exit codes and signals.
const CODES: [&str; 5] = ["0", "1", "75", "signal 9", "signal 15"];

type Labels = Vec<(&'static str, String)>;

/// Counts of processes and restarts.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    running: Family<Labels, Gauge>,
    ends: Family<Labels, Counter>,
    restarts: Counter,
    /// Restarts since the last checkpoint.
    in_vain: Gauge<u64, AtomicU64>,
    /// Progress of the run at the last restart.
    reached: Arc<AtomicU64>,
}

impl Metrics {
    /// Serves the metrics at an address; gives the address that was bound. `most_restarts`: restarts in a row without a newer
    /// checkpoint in `out`.
    pub(super) fn show(&self, address: SocketAddr, most_restarts: u32, out: Option<&Path>) -> io::Result<SocketAddr> {
        // Present from the start, so that the first end of a kind is an increase.
        for (kind, code) in ["rank", "server"].into_iter().flat_map(|kind| CODES.map(|code| (kind, code))) {
            drop(self.ends.get_or_create(&vec![("kind", kind.to_owned()), ("code", code.to_owned())]));
        }
        let mut registry = Registry::default();
        describe_process(&mut registry, "kith");
        registry.register("kith_launch_processes", "Running processes", self.running.clone());
        registry.register("kith_launch_ends", "Processes that ended, by exit code or signal", self.ends.clone());
        registry.register("kith_launch_restarts", "Restarts of the run", self.restarts.clone());
        let help = "Restarts since the last checkpoint";
        registry.register("kith_launch_restarts_without_progress", help, self.in_vain.clone());
        let most = Gauge::<u64, AtomicU64>::default();
        most.set(most_restarts.into());
        registry.register("kith_launch_max_restarts_without_progress", "Value of --restarts", most);
        let bound = prometheus::show(address, registry)?;
        if let Some(out) = out.map(Path::to_owned) {
            let metrics = self.clone();
            let look = move || {
                loop {
                    thread::sleep(LOOK_EVERY);
                    metrics.look(&out);
                }
            };
            thread::Builder::new().name("kith-progress".to_owned()).spawn(look)?;
        }
        Ok(bound)
    }

    /// Forgets restarts once the run has a newer checkpoint.
    fn look(&self, out: &Path) {
        if self.in_vain.get() > 0 && reached(Some(out)) > self.reached.load(Ordering::Relaxed) {
            self.in_vain.set(0);
        }
    }

    /// A process was started.
    pub(super) fn begun(&self, who: Who) {
        self.running.get_or_create(&vec![kind(who)]).inc();
    }

    /// A process ended.
    pub(super) fn ended(&self, who: Who, ended: Ended) {
        self.running.get_or_create(&vec![kind(who)]).dec();
        let how = match ended {
            Ended::Code(code) => code.to_string(),
            Ended::Signal(signal) => format!("signal {signal}"),
        };
        self.ends.get_or_create(&vec![kind(who), ("code", how)]).inc();
    }

    /// The run, which has reached this much, is started again for the `n`-th time since its last checkpoint.
    pub(super) fn restarted(&self, n: u32, reached: u64) {
        self.restarts.inc();
        self.reached.store(reached, Ordering::Relaxed);
        self.in_vain.set(n.into());
    }
}

fn kind(who: Who) -> (&'static str, String) {
    let kind = match who {
        Who::Rank(_) => "rank",
        Who::Server(_) => "server",
    };
    ("kind", kind.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{Read, Write},
        net::TcpStream,
        time::Duration,
    };

    use super::*;

    #[test]
    fn restarts_are_forgotten_with_a_newer_checkpoint() {
        let out = tempfile::tempdir().unwrap();
        let checkpoints = out.path().join("checkpoints");
        fs::create_dir(&checkpoints).unwrap();
        fs::write(checkpoints.join("step-8.safetensors"), "").unwrap();
        let metrics = Metrics::default();
        metrics.restarted(2, reached(Some(out.path())));
        metrics.look(out.path());
        assert_eq!(metrics.in_vain.get(), 2, "the run has not gone on");
        fs::write(checkpoints.join("step-16.safetensors"), "").unwrap();
        metrics.look(out.path());
        assert_eq!(metrics.in_vain.get(), 0);
    }

    #[test]
    fn processes_and_restarts_are_counted() {
        let metrics = Metrics::default();
        let address = metrics.show(([127, 0, 0, 1], 0).into(), 3, None).unwrap();
        [Who::Server(0), Who::Rank(0), Who::Rank(1)].into_iter().for_each(|who| metrics.begun(who));
        metrics.ended(Who::Rank(1), Ended::Signal(9));
        metrics.ended(Who::Rank(0), Ended::Code(75));
        metrics.restarted(1, 40);
        metrics.begun(Who::Rank(0));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        for line in [
            "kith_launch_processes{kind=\"rank\"} 1",
            "kith_launch_processes{kind=\"server\"} 1",
            "kith_launch_ends_total{kind=\"rank\",code=\"signal 9\"} 1",
            "kith_launch_ends_total{kind=\"rank\",code=\"75\"} 1",
            "kith_launch_ends_total{kind=\"rank\",code=\"0\"} 0",
            "kith_launch_restarts_total 1",
            "kith_launch_restarts_without_progress 1",
            "kith_launch_max_restarts_without_progress 3",
        ] {
            assert!(page.lines().any(|own| own == line), "{line} is not in\n{page}");
        }
        assert!(metrics.show(address, 3, None).is_err(), "the port is taken");
    }
}
