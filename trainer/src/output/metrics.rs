//! Prometheus metrics of a rank that trains.

mod counts;
mod page;

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use kith_client::{RemoteCalls, RowCounts};
use kith_run::{
    clock::{CurrentPhase, Phases},
    measured::Measured,
};
use kith_sampler::prometheus::{self, describe_process};
use prometheus_client::{
    collector::Collector, encoding::DescriptorEncoder, metrics::histogram::Histogram, registry::Registry,
};

use self::{counts::Counts, page::write};
use crate::{distributed::world::Heartbeats, error::TrainError};

/// Upper bounds of the duration of steps, in seconds.
const STEP_SECONDS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Metrics of a rank.
#[derive(Debug)]
pub struct Metrics {
    rank: usize,
    n_ranks: usize,
    counts: Mutex<Counts>,
    step_seconds: Histogram,
}

/// A step in the metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeardStep {
    /// Weight updates and whole epochs, over the whole run.
    pub(crate) at: (u64, u64),
    pub(crate) loss: f64,
    /// Seed nodes of all ranks.
    pub(crate) n_seeds: u64,
    /// Features that this rank read.
    pub(crate) rows: RowCounts,
    /// Time of this rank since the step before.
    pub(crate) phases: Phases,
}

impl Default for Metrics {
    /// Metrics of the only rank.
    fn default() -> Metrics {
        Metrics::new(0, 1)
    }
}

impl Metrics {
    /// Metrics of a rank of a process group of `n_ranks`.
    pub fn new(rank: usize, n_ranks: usize) -> Metrics {
        Metrics { rank, n_ranks, counts: Mutex::default(), step_seconds: Histogram::new(STEP_SECONDS) }
    }

    /// Records the end of a step.
    pub(crate) fn hear(&self, heard: HeardStep) {
        let HeardStep { at, loss, n_seeds, rows, phases } = heard;
        // Nobody waits in these phases for a step: they belong to a run.
        let micros = phases.total() - phases.start - phases.evaluate - phases.save;
        self.step_seconds.observe(micros as f64 / 1e6);
        let mut counts = self.counts();
        ((counts.step, counts.epoch), counts.loss) = (at, loss);
        counts.n_seeds += n_seeds;
        counts.rows += rows;
        counts.phases += phases;
    }

    /// Records an evaluation.
    pub(crate) fn hear_measured(&self, measured: Measured) {
        self.counts().measured = Some(measured);
    }

    /// Shows the heartbeats of other ranks.
    pub(crate) fn show_heartbeats(&self, heartbeats: Heartbeats) {
        self.counts().heartbeats = heartbeats;
    }

    /// Follows the phases of a run that begins or resumes, and its checkpoints, if this rank writes any.
    pub(crate) fn follow(&self, current: Arc<CurrentPhase>, (step, epoch): (u64, u64), saves: bool) {
        let mut counts = self.counts();
        (counts.step, counts.epoch) = (step, epoch);
        counts.current = Some(current);
        counts.saved = saves.then(|| (Instant::now(), step));
    }

    /// Records that a checkpoint is written.
    pub(crate) fn hear_saved(&self, step: u64) {
        self.counts().saved = Some((Instant::now(), step));
    }

    /// Shows the calls to sampling servers of a graph that may have some.
    pub fn show_calls(&self, calls: RemoteCalls) {
        self.counts().calls = Some(calls);
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All metrics of this process.
    fn registry(self: &Arc<Self>) -> Registry {
        let mut registry = Registry::default();
        describe_process(&mut registry, "kith-trainer");
        registry.register_collector(Box::new(RankPage(Arc::clone(self))));
        let rank = ("rank".into(), self.rank.to_string().into());
        let help = "Time of a step on this rank, without evaluations and checkpoints";
        registry.sub_registry_with_label(rank).register("kith_step_seconds", help, self.step_seconds.clone());
        registry
    }

    /// Shows the metrics on a port until the process ends; gives the address that was bound.
    pub fn show(self: &Arc<Self>, address: SocketAddr) -> Result<SocketAddr, TrainError> {
        let refused = |source| TrainError::Io { path: format!("metrics on {address}").into(), source };
        prometheus::show(address, self.registry()).map_err(refused)
    }
}

/// The metrics of a rank, each time that they are read.
#[derive(Debug)]
struct RankPage(Arc<Metrics>);

impl Collector for RankPage {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Metrics { rank, n_ranks, .. } = *self.0;
        let counts = self.0.counts().clone();
        write(encoder, (rank, n_ranks), &counts)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
        time::Duration,
    };

    use kith_run::{clock::Clock, phase::Phase};

    use super::*;

    fn page(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    fn value(page: &str, name: &str) -> f64 {
        let found = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("{name} is not in\n{page}")).parse().unwrap()
    }

    #[test]
    fn what_a_rank_did_is_read_on_its_port() {
        let metrics = Arc::new(Metrics::new(2, 3));
        let address = metrics.show(([127, 0, 0, 1], 0).into()).unwrap();
        let before = page(address);
        assert!(!before.contains("kith_checkpoint_age_seconds") && !before.contains("kith_phase{"), "{before}");
        let rows = RowCounts { local: 1, cached: 2, remote: 3 };
        let phases = Phases { compute: 1_500_000, exchange: 250_000, evaluate: 9_000_000, ..Phases::default() };
        let mut clock = Clock::start();
        metrics.follow(clock.current(), (6, 1), true);
        for (step, loss) in [(7, 0.5), (8, 0.25)] {
            metrics.hear(HeardStep { at: (step, 1), loss, n_seeds: 64, rows, phases });
        }
        metrics.hear_measured(Measured { valid_loss: 1.0, valid: 0.75, test: 0.5 });
        clock.enter(8, Phase::Exchange);

        let shown = page(address);
        for (name, expected) in [
            ("kith_step{rank=\"2\"}", 8.0),
            ("kith_epoch{rank=\"2\"}", 1.0),
            ("kith_seeds_total{rank=\"2\"}", 128.0),
            ("kith_loss{rank=\"2\"}", 0.25),
            ("kith_seconds_total{rank=\"2\",phase=\"compute\"}", 3.0),
            ("kith_seconds_total{rank=\"2\",phase=\"exchange\"}", 0.5),
            ("kith_rows_total{rank=\"2\",from=\"remote\"}", 6.0),
            ("kith_metric{rank=\"2\",part=\"test\"}", 0.5),
            ("kith_phase{rank=\"2\",phase=\"exchange\"}", 1.0),
            ("kith_phase{rank=\"2\",phase=\"compute\"}", 0.0),
            ("kith_step_seconds_count{rank=\"2\"}", 2.0),
            ("kith_step_seconds_sum{rank=\"2\"}", 3.5),
            ("kith_checkpoint_step{rank=\"2\"}", 6.0),
            ("kith_ranks{rank=\"2\"}", 3.0),
        ] {
            assert_eq!(value(&shown, name), expected, "{name}");
        }
        let age = value(&shown, "kith_checkpoint_age_seconds{rank=\"2\"}");
        std::thread::sleep(Duration::from_millis(2));
        assert!(value(&page(address), "kith_checkpoint_age_seconds{rank=\"2\"}") > age);
        metrics.hear_saved(8);
        assert_eq!(value(&page(address), "kith_checkpoint_step{rank=\"2\"}"), 8.0);
        let taken = metrics.show(address).unwrap_err().to_string();
        assert!(taken.starts_with(&format!("metrics on {address}: ")), "{taken}");
    }

    #[test]
    fn a_loss_that_is_no_number_is_shown_as_such() {
        let metrics = Arc::new(Metrics::default());
        let heard =
            HeardStep { at: (1, 0), loss: f64::NAN, n_seeds: 1, rows: RowCounts::default(), phases: Phases::default() };
        metrics.hear(heard);
        let address = metrics.show(([127, 0, 0, 1], 0).into()).unwrap();
        assert!(page(address).lines().any(|line| line == "kith_loss{rank=\"0\"} NaN"));
        metrics.hear(HeardStep { loss: f64::INFINITY, ..heard });
        assert_eq!(value(&page(address), "kith_loss{rank=\"0\"}"), f64::INFINITY);
    }
}
