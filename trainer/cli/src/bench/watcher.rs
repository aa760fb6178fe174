//! Watches the processes of a combination: waits for the warm-up, counts, waits for the measured steps, and counts
//! again.

use std::{
    net::SocketAddr,
    ops::ControlFlow,
    path::Path,
    time::{Duration, Instant},
};

use kith_group::launch::attempt::Who;

use super::{
    combinations::Combination,
    measured::{Counted, Measured},
    processes::{cpu_seconds, memory},
    served::{Served, metrics_address, served},
    steps::Steps,
};
use crate::launch::{attempt::Audience, process::Process};

/// Interval of checking for new steps.
const TICK: Duration = Duration::from_millis(5);

/// Time limit of a step, and of the start. Longer than the timeouts of ranks and servers.
const MAX_STEP: Duration = Duration::from_secs(900);

#[derive(Debug)]
pub(super) struct Watcher {
    warm_up: usize,
    n_steps: usize,
    steps: Steps,
    /// Time of the last new step.
    last_step: Instant,
    /// Metrics addresses of servers, by number.
    metrics: Vec<Option<SocketAddr>>,
    first: Option<Counted>,
    pub(super) measured: Option<Measured>,
    /// First error message of a process.
    pub(super) error: Option<String>,
}

impl Watcher {
    /// Watcher of a combination whose run is in a folder.
    pub(super) fn new(asked: &Combination, run: &Path) -> Watcher {
        Watcher {
            warm_up: asked.warm_up as usize,
            n_steps: asked.steps as usize,
            steps: Steps::of(run),
            last_step: Instant::now(),
            metrics: vec![None; asked.servers],
            first: None,
            measured: None,
            error: None,
        }
    }

    fn count(&self, processes: &[Process]) -> Result<Counted, String> {
        let cpu_seconds = processes.iter().map(|process| cpu_seconds(process.id())).collect::<Result<_, _>>()?;
        let mut all = Served::default();
        for (server, address) in self.metrics.iter().enumerate() {
            all += served(address.ok_or_else(|| format!("server {server} does not say where its metrics are"))?)?;
        }
        Ok(Counted { n_steps: self.steps.records.len(), cpu_seconds, served: all })
    }
}

impl Audience for Watcher {
    fn hear(&mut self, who: Who, is_answer: bool, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        match who {
            Who::Server(server) if is_answer => {
                if let Some(address) = metrics_address(&line) {
                    self.metrics[server] = Some(address);
                }
            }
            _ => {
                if let Some(sentence) = line.strip_prefix("error: ") {
                    self.error.get_or_insert_with(|| format!("{who}: {}", sentence.trim_end()));
                }
            }
        }
    }

    fn looks_every(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn look(&mut self, processes: &[Process]) -> Result<ControlFlow<()>, String> {
        let n_before = self.steps.records.len();
        self.steps.read()?;
        let n_steps = self.steps.records.len();
        if n_steps > n_before {
            self.last_step = Instant::now();
        } else if self.last_step.elapsed() > MAX_STEP {
            return Err(format!("no step ended within {} s", MAX_STEP.as_secs()));
        }
        match &self.first {
            None if n_steps >= self.warm_up => self.first = Some(self.count(processes)?),
            Some(first) if n_steps >= first.n_steps + self.n_steps => {
                let last = self.count(processes)?;
                let memory = processes.iter().map(|process| Ok((process.who, memory(process.id())?)));
                let memory = memory.collect::<Result<Vec<_>, String>>()?;
                self.measured = Some(Measured::between(first, &last, &self.steps.records, &memory)?);
                return Ok(ControlFlow::Break(()));
            }
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }
}
