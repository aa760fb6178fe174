//! Prometheus metrics of a rank that trains.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
};

use kith_client::RowCounts;
use kith_run::{clock::Phases, measured::Measured, phase::Phase};
use kith_sampler::prometheus::{self, Page};

use crate::error::TrainError;

/// Counters of a rank.
#[derive(Debug, Default)]
pub struct Metrics(Mutex<Counts>);

#[derive(Clone, Debug, Default)]
struct Counts {
    rank: usize,
    step: u64,
    epoch: u64,
    loss: f64,
    rows: RowCounts,
    phases: Phases,
    measured: Option<Measured>,
}

impl Metrics {
    /// Records the end of a step of this rank, the features it read, and its time by phase since the step before.
    pub(crate) fn hear(&self, rank: usize, (step, epoch): (u64, u64), loss: f64, rows: RowCounts, phases: Phases) {
        let mut counts = self.0.lock().expect("nobody panics while counting");
        (counts.rank, counts.step, counts.epoch, counts.loss) = (rank, step, epoch, loss);
        counts.rows += rows;
        counts.phases += phases;
    }

    /// Records an evaluation.
    pub(crate) fn hear_measured(&self, measured: Measured) {
        self.0.lock().expect("nobody panics while counting").measured = Some(measured);
    }

    /// Everything in Prometheus's text format.
    pub fn page(&self) -> String {
        let Counts { rank, step, epoch, loss, rows, phases, measured } =
            self.0.lock().expect("nobody panics while counting").clone();
        let rank = rank.to_string();
        let own = ("rank", rank.as_str());
        let mut page = Page::default();
        page.family("kith_steps_total", "counter", "Weight updates, over the whole run.");
        page.sample("kith_steps_total", &[own], step as f64);
        page.family("kith_epochs_total", "counter", "Whole epochs, over the whole run.");
        page.sample("kith_epochs_total", &[own], epoch as f64);
        page.family("kith_loss", "gauge", "Loss of the last step.");
        page.sample("kith_loss", &[own], loss);
        page.family("kith_seconds_total", "counter", "Time of this process, by phase.");
        for phase in Phase::ALL {
            page.sample("kith_seconds_total", &[own, ("phase", phase.name())], phases.of(phase) as f64 / 1e6);
        }
        page.family("kith_rows_total", "counter", "Features read by this process, by where they came from.");
        for (from, n) in [("local", rows.local), ("cached", rows.cached), ("remote", rows.remote)] {
            page.sample("kith_rows_total", &[own, ("from", from)], n as f64);
        }
        if let Some(measured) = measured {
            page.family("kith_metric", "gauge", "Metric of the run, as last evaluated.");
            page.sample("kith_metric", &[own, ("part", "valid")], measured.valid);
            page.sample("kith_metric", &[own, ("part", "test")], measured.test);
        }
        page.finish()
    }

    /// Shows the page on a port until the process ends; gives the address that was bound.
    pub fn show(self: &Arc<Self>, address: SocketAddr) -> Result<SocketAddr, TrainError> {
        let refused = |source| TrainError::Io { path: format!("metrics on {address}").into(), source };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let bound = listener.local_addr().map_err(refused)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refused)?;
        let metrics = Arc::clone(self);
        let serve = move || {
            runtime.block_on(async move {
                if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                    prometheus::serve(listener, Arc::new(move || metrics.page())).await;
                }
            });
        };
        std::thread::Builder::new().name("kith-metrics".to_owned()).spawn(serve).map_err(refused)?;
        Ok(bound)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
        time::Duration,
    };

    use super::*;

    #[test]
    fn what_a_rank_did_is_read_on_its_port() {
        let metrics = Arc::new(Metrics::default());
        let rows = RowCounts { local: 1, cached: 2, remote: 3 };
        let phases = Phases { compute: 1_500_000, exchange: 250_000, ..Phases::default() };
        metrics.hear(2, (7, 1), 0.5, rows, phases);
        metrics.hear(2, (8, 1), 0.25, rows, phases);
        metrics.hear_measured(Measured { valid_loss: 1.0, valid: 0.75, test: 0.5 });

        let address = metrics.show(([127, 0, 0, 1], 0).into()).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        for line in [
            "kith_steps_total{rank=\"2\"} 8",
            "kith_epochs_total{rank=\"2\"} 1",
            "kith_loss{rank=\"2\"} 0.25",
            "kith_seconds_total{rank=\"2\",phase=\"compute\"} 3",
            "kith_seconds_total{rank=\"2\",phase=\"exchange\"} 0.5",
            "kith_rows_total{rank=\"2\",from=\"remote\"} 6",
            "kith_metric{rank=\"2\",part=\"test\"} 0.5",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
        let taken = metrics.show(address).unwrap_err().to_string();
        assert!(taken.starts_with(&format!("metrics on {address}: ")), "{taken}");
    }
}
