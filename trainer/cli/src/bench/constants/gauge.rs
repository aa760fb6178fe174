//! Watches the processes of a run, and measures a round of steps.

use std::{
    fs,
    ops::ControlFlow,
    path::Path,
    time::{Duration, Instant},
};

use kith_group::launch::attempt::Who;

use super::super::{
    measured::median,
    processes::cpu_seconds,
    steps::{Step, Steps},
};
use crate::{
    constants::median as middle,
    launch::{attempt::Audience, process::Process},
};

const TICK: Duration = Duration::from_millis(5);
/// Steps before a round. They take a third of its time at least: the first steps of tiny mini-batches read files that are verified.
const WARM_UP: usize = 3;
/// Steps of a round at least.
const LEAST_STEPS: usize = 5;
/// Time limit of a step.
const MAX_STEP: Duration = Duration::from_secs(120);

/// Seconds of a step of one round: means over its steps and ranks, of servers together. Phases are those of rank 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Round {
    pub(super) step: f64,
    /// CPU time of the threads that make mini-batches and talk to servers.
    pub(super) sampling: f64,
    /// CPU time of all other threads.
    pub(super) training: f64,
    pub(super) servers: f64,
    /// Wall time of phases.
    pub(super) compute: f64,
    pub(super) update: f64,
}

/// Counters at one time.
#[derive(Clone, Debug)]
struct Counted {
    at: Instant,
    n_steps: usize,
    sampling: f64,
    training: f64,
    servers: f64,
}

pub(super) struct Gauge {
    steps: Steps,
    round: Duration,
    /// True if threads end whose CPU time counts.
    has_short_threads: bool,
    last_step: Instant,
    /// Time of the first step.
    began: Option<Instant>,
    first: Option<Counted>,
    pub(super) measured: Option<Round>,
    pub(super) error: Option<String>,
}

impl Gauge {
    pub(super) fn new(run: &Path, round: Duration, has_short_threads: bool) -> Gauge {
        Gauge {
            steps: Steps::of(run),
            // CPU time of a process is counted in hundredths of a second, that of its threads in nanoseconds.
            round: if has_short_threads { 2 * round } else { round },
            has_short_threads,
            last_step: Instant::now(),
            began: None,
            first: None,
            measured: None,
            error: None,
        }
    }

    fn count(&self, processes: &[Process]) -> Result<Counted, String> {
        let (mut sampling, mut training, mut servers, mut n_ranks) = (0.0, 0.0, 0.0, 0.0);
        for process in processes {
            let (making, others) = seconds_of_threads(process.id())?;
            match process.who {
                Who::Server(_) => servers += making + others,
                Who::Rank(_) => {
                    training += others;
                    let all = if self.has_short_threads { cpu_seconds(process.id())? } else { making + others };
                    sampling += (all - others).max(0.0);
                    n_ranks += 1.0;
                }
            }
        }
        let n_ranks = f64::max(n_ranks, 1.0);
        let (at, n_steps) = (Instant::now(), self.steps.records.len());
        Ok(Counted { at, n_steps, sampling: sampling / n_ranks, training: training / n_ranks, servers })
    }
}

impl Round {
    /// The median of each of its parts.
    pub(super) fn median(rounds: &[Round]) -> Round {
        let of = |part: fn(&Round) -> f64| middle(&rounds.iter().map(part).collect::<Vec<f64>>());
        Round {
            step: of(|round| round.step),
            sampling: of(|round| round.sampling),
            training: of(|round| round.training),
            servers: of(|round| round.servers),
            compute: of(|round| round.compute),
            update: of(|round| round.update),
        }
    }

    /// CPU time of a rank.
    pub(super) fn cpu(&self) -> f64 {
        self.sampling + self.training
    }

    fn between(first: &Counted, last: &Counted, steps: &[Step]) -> Round {
        let n_steps = steps.len() as f64;
        let micros = |of: fn(&Step) -> u64| median(steps.iter().map(of).collect()) as f64 / 1e6;
        Round {
            step: steps.iter().map(|step| step.phases[0].total()).sum::<u64>() as f64 / 1e6 / n_steps,
            sampling: (last.sampling - first.sampling) / n_steps,
            training: (last.training - first.training) / n_steps,
            servers: (last.servers - first.servers) / n_steps,
            compute: micros(|step| step.phases[0].compute),
            update: micros(|step| step.phases[0].update),
        }
    }
}

impl Audience for Gauge {
    fn hear(&mut self, who: Who, is_answer: bool, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if let Some(sentence) = line.strip_prefix("error: ").filter(|_| !is_answer) {
            self.error.get_or_insert_with(|| format!("{who}: {}", sentence.trim_end()));
        }
    }

    fn looks_every(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn look(&mut self, processes: &[Process]) -> Result<ControlFlow<()>, String> {
        let n_before = self.steps.records.len();
        self.steps.read()?;
        let n_steps = self.steps.records.len();
        if n_steps == n_before {
            let is_stuck = self.last_step.elapsed() > MAX_STEP;
            return if is_stuck { Err("no step ended in time".to_owned()) } else { Ok(ControlFlow::Continue(())) };
        }
        self.last_step = Instant::now();
        let began = *self.began.get_or_insert(self.last_step);
        let Some(first) = &self.first else {
            if n_steps >= WARM_UP && began.elapsed() >= self.round / 3 {
                self.first = Some(self.count(processes)?);
            }
            return Ok(ControlFlow::Continue(()));
        };
        if n_steps >= first.n_steps + LEAST_STEPS && first.at.elapsed() >= self.round {
            let last = self.count(processes)?;
            self.measured = Some(Round::between(first, &last, &self.steps.records[first.n_steps..last.n_steps]));
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// CPU seconds of the living threads of a process: of those that make mini-batches or talk to servers, and of all others.
fn seconds_of_threads(pid: u32) -> Result<(f64, f64), String> {
    let folder = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?;
    let (mut making, mut others) = (0.0, 0.0);
    for task in tasks.flatten() {
        // A thread that ends meanwhile did next to nothing.
        let read = |name: &str| fs::read_to_string(task.path().join(name)).ok();
        let (Some(name), Some(times)) = (read("comm"), read("schedstat")) else { continue };
        let nanoseconds = times.split(' ').next().and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        let is_making = name.starts_with("sample-") || name.starts_with("network");
        *if is_making { &mut making } else { &mut others } += nanoseconds / 1e9;
    }
    Ok((making, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_make_batches_do_not_train() {
        let spin = || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(60) {
                std::hint::spin_loop();
            }
        };
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let own = std::thread::Builder::new().name("sample-0".to_owned());
        let before = seconds_of_threads(std::process::id()).unwrap();
        let (done, is_done) = std::sync::mpsc::channel();
        // It lives on: only living threads are listed.
        let thread = own.spawn(move || {
            spin();
            done.send(()).unwrap();
            let _ = stopped.recv();
        });
        is_done.recv().unwrap();
        let after = seconds_of_threads(std::process::id()).unwrap();
        drop(stop);
        thread.unwrap().join().unwrap();
        assert!(after.0 > before.0, "{before:?} {after:?}");
        assert!(seconds_of_threads(u32::MAX).unwrap_err().starts_with("/proc/4294967295/task: "));
    }

    #[test]
    fn one_disturbed_round_of_three_does_not_count() {
        let round = |step: f64| Round { step, sampling: 1.0 / step, ..Round::default() };
        let median = Round::median(&[round(1.0), round(9.0), round(2.0)]);
        assert_eq!((median.step, median.sampling, median.cpu()), (2.0, 0.5, 0.5));
    }
}
