//! One attempt of a run: starts servers, then ranks, and stops them all.

#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use super::ended::Ended;
use crate::{INTERRUPTED, RETRY};

/// Rank or server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The rank of this number.
    Rank(usize),
    /// The server of this number.
    Server(usize),
}

/// `rank 0`
impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Rank(number) => write!(f, "rank {number}"),
            Who::Server(number) => write!(f, "server {number}"),
        }
    }
}

/// A signal for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// A request to stop that the launcher got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Exit code of a program that stops because of it.
    pub code: u8,
    /// True for Ctrl-C: a second one kills all processes.
    pub is_interrupt: bool,
}

/// Actions of the launcher after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a process; ranks know the addresses of all servers by now.
    Start(Who),
    /// Send a signal to a process.
    Signal(Who, Kill),
    /// All ranks are started.
    RanksStarted,
    /// The attempt is over.
    End(Outcome),
}

/// End of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All ranks exited with 0, or the observer ended the attempt.
    Done,
    /// A process failed.
    Failed {
        /// Exit code.
        code: u8,
        /// Message.
        sentence: String,
    },
    /// A signal stopped the ranks before they were done.
    Stopped {
        /// Its exit code.
        code: u8,
    },
}

/// Time limits.
mod waits {
    use std::time::Duration;

    /// For servers to open their shards.
    pub(super) const START: Duration = Duration::from_secs(120);
    /// For the other processes after a failure: ranks that lose one stop by themselves and print the reason.
    pub(super) const MOMENT: Duration = Duration::from_secs(5);
    /// For processes to end after a signal.
    pub(super) const PATIENCE: Duration = Duration::from_secs(5);
    /// For the other ranks after the first one exited with 0.
    pub(super) const END: Duration = Duration::from_secs(600);
}

/// Stages of stopping the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    /// One process failed; the others have a moment to end.
    Ending,
    /// Ranks have been asked to stop and save a checkpoint; servers keep running for them.
    Asked,
    Terminated,
    Killed,
    /// SIGKILL did not help: the processes are left to the system.
    GivenUp,
}

/// The processes of a run, until all have ended.
#[derive(Debug)]
pub struct Attempt {
    n_ranks: usize,
    /// Time for a checkpoint after a request to stop.
    grace: Duration,
    processes: Vec<Process>,
    /// Servers that are ready, by number.
    is_ready: Vec<bool>,
    stage: Stage,
    /// Start of the next stage.
    deadline: Option<Duration>,
    has_started_ranks: bool,
    /// First failed process and its message, by [`Ended::is_worse_than`].
    failure: Option<(Ended, String)>,
    stopped: Option<Request>,
    /// Number of ranks that exited with 0.
    n_done: usize,
}

#[derive(Debug)]
struct Process {
    who: Who,
    is_over: bool,
}

impl Attempt {
    /// Starts the servers, or the ranks if there are none.
    pub fn begin(n_servers: usize, n_ranks: usize, grace: Duration, now: Duration) -> (Attempt, Vec<Action>) {
        let mut attempt = Attempt {
            n_ranks,
            grace,
            processes: Vec::new(),
            is_ready: vec![false; n_servers],
            stage: Stage::Running,
            deadline: (n_servers > 0).then(|| now + waits::START),
            has_started_ranks: false,
            failure: None,
            stopped: None,
            n_done: 0,
        };
        let mut actions: Vec<Action> = (0..n_servers).map(|server| attempt.start(Who::Server(server))).collect();
        actions.extend(attempt.start_ranks());
        (attempt, actions)
    }

    fn start(&mut self, who: Who) -> Action {
        self.processes.push(Process { who, is_over: false });
        Action::Start(who)
    }

    fn start_ranks(&mut self) -> Vec<Action> {
        if self.has_started_ranks || self.stage != Stage::Running || self.is_ready.contains(&false) {
            return Vec::new();
        }
        self.has_started_ranks = true;
        self.deadline = None;
        let ranks: Vec<Action> = (0..self.n_ranks).map(|rank| self.start(Who::Rank(rank))).collect();
        ranks.into_iter().chain([Action::RanksStarted]).collect()
    }

    /// Time of the next [`Attempt::tick`], if there is one.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// True while no process is being stopped.
    pub fn is_running(&self) -> bool {
        self.stage == Stage::Running
    }

    fn has_ranks(&self) -> bool {
        self.processes.iter().any(|process| matches!(process.who, Who::Rank(_)) && !process.is_over)
    }

    /// A server is ready.
    pub fn ready(&mut self, server: usize) -> Vec<Action> {
        self.is_ready[server] = true;
        self.start_ranks()
    }

    /// A request to stop. The first gives ranks time for a checkpoint. A Ctrl-C after it kills all processes; another
    /// SIGTERM is ignored.
    pub fn request(&mut self, request: Request, now: Duration) -> Vec<Action> {
        let stage = match self.stopped {
            None => Stage::Asked,
            Some(_) if request.is_interrupt => Stage::Killed,
            Some(_) => return Vec::new(),
        };
        self.stopped.get_or_insert(request);
        let mut actions = if stage > self.stage { self.go_to(stage, now) } else { Vec::new() };
        actions.extend(self.proceed(now));
        actions
    }

    /// The observer has seen enough: processes are stopped as if they were done.
    pub fn finish(&mut self, now: Duration) -> Vec<Action> {
        if self.is_running() { self.go_to(Stage::Terminated, now) } else { Vec::new() }
    }

    /// The observer found a failure: processes are stopped.
    pub fn reject(&mut self, sentence: String, now: Duration) -> Vec<Action> {
        let mut actions = self.fail(Ended::Code(1), sentence, now);
        actions.extend(self.go_to(Stage::Terminated, now));
        actions
    }

    /// A process ended, after all its lines were relayed.
    pub fn ended(&mut self, who: Who, ended: Ended, now: Duration) -> Vec<Action> {
        self.processes.iter_mut().filter(|process| process.who == who).for_each(|process| process.is_over = true);
        let mut actions = self.judge(who, ended, now);
        actions.extend(self.proceed(now));
        actions
    }

    fn judge(&mut self, who: Who, ended: Ended, now: Duration) -> Vec<Action> {
        if let Who::Rank(_) = who {
            self.n_done += usize::from(ended.is_well());
        }
        let is_told = match who {
            Who::Rank(_) => self.stage >= Stage::Asked,
            Who::Server(_) => self.stage >= Stage::Terminated,
        };
        if is_told && (ended.is_retry() || ended.code() == INTERRUPTED || self.stage >= Stage::Terminated) {
            return Vec::new();
        }
        match who {
            Who::Rank(_) if ended.is_well() => {
                if self.stage == Stage::Running {
                    self.deadline.get_or_insert(now + waits::END);
                }
                Vec::new()
            }
            Who::Server(_) if ended.is_well() => {
                self.fail(Ended::Code(RETRY), format!("{who} ended while ranks needed it"), now)
            }
            _ => self.fail(ended, format!("{who} {}", ended.sentence()), now),
        }
    }

    /// Time passes.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Vec::new();
        }
        let mut actions = match self.stage {
            Stage::Running if !self.has_ranks() => {
                let seconds = waits::START.as_secs();
                self.fail(Ended::Code(RETRY), format!("a server was not ready within {seconds} s"), now)
            }
            Stage::Running => {
                let seconds = waits::END.as_secs();
                self.fail(Ended::Code(RETRY), format!("a rank did not end within {seconds} s of another"), now)
            }
            Stage::Ending | Stage::Asked => self.go_to(Stage::Terminated, now),
            Stage::Terminated => self.go_to(Stage::Killed, now),
            Stage::Killed | Stage::GivenUp => self.go_to(Stage::GivenUp, now),
        };
        actions.extend(self.proceed(now));
        actions
    }

    fn fail(&mut self, ended: Ended, sentence: String, now: Duration) -> Vec<Action> {
        if self.failure.as_ref().is_none_or(|(first, _)| ended.is_worse_than(*first)) {
            self.failure = Some((ended, sentence));
        }
        if self.is_running() { self.go_to(Stage::Ending, now) } else { Vec::new() }
    }

    fn go_to(&mut self, stage: Stage, now: Duration) -> Vec<Action> {
        self.stage = stage;
        let (kill, wait) = match stage {
            Stage::Running | Stage::Ending => (None, waits::MOMENT),
            Stage::Asked => (Some(Kill::Terminate), self.grace + waits::PATIENCE),
            Stage::Terminated => (Some(Kill::Terminate), waits::PATIENCE),
            Stage::Killed | Stage::GivenUp => (Some(Kill::Kill), waits::PATIENCE),
        };
        self.deadline = Some(now + wait);
        let Some(kill) = kill else { return Vec::new() };
        // Ranks may need servers until their checkpoint is saved.
        let is_meant =
            |process: &&Process| !process.is_over && (stage > Stage::Asked || matches!(process.who, Who::Rank(_)));
        self.processes.iter().filter(is_meant).map(|process| Action::Signal(process.who, kill)).collect()
    }

    /// Stops servers that no rank needs any more, and ends when no process is left.
    fn proceed(&mut self, now: Duration) -> Vec<Action> {
        let is_begun = self.has_started_ranks || self.stage != Stage::Running;
        if !is_begun {
            return Vec::new();
        }
        let is_left = self.processes.iter().any(|process| !process.is_over);
        if is_left && self.stage < Stage::GivenUp {
            let is_over = self.stage < Stage::Terminated && !self.has_ranks();
            return if is_over { self.go_to(Stage::Terminated, now) } else { Vec::new() };
        }
        vec![Action::End(self.outcome())]
    }

    fn outcome(&self) -> Outcome {
        match (self.stopped, &self.failure) {
            (Some(request), None) if self.n_done < self.n_ranks => Outcome::Stopped { code: request.code },
            (Some(request), Some((ended, _))) if ended.is_retry() => Outcome::Stopped { code: request.code },
            (_, Some((ended, sentence))) => Outcome::Failed { code: ended.code(), sentence: sentence.clone() },
            (_, None) => Outcome::Done,
        }
    }
}
