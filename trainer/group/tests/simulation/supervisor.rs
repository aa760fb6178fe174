//! The launcher, or one restarter per rank as Kubernetes has it: starts processes, and starts them again.

use std::time::Duration;

use kith_group::launch::{
    attempt::{Action, Attempt, Kill, Outcome, Request, Who},
    ended::Ended,
    restarts::{Restarts, pause_before},
};

use crate::{
    draws::Draws,
    world::{Event, Plan, World},
};

/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Restarts without progress: a launcher's, and those of each restarter.
const RESTARTS: u32 = 12;

/// Time for a checkpoint after a request to stop.
const GRACE: Duration = Duration::from_secs(30);

/// Pause of a restarter that finds no host with power.
const RETRY: Duration = Duration::from_secs(5);

/// A host that nobody has reached for this long is given up, and its rank is started elsewhere.
const NODE_TIMEOUT: Duration = Duration::from_secs(40);

/// Numbers of the supervisor's own events.
mod topic {
    pub(super) const TICK: u64 = 0;
    pub(super) const NEXT_ATTEMPT: u64 = 1;
    /// A server is ready, or has ended.
    pub(super) const READY: u64 = 100;
    pub(super) const SERVER_ENDED: u64 = 200;
    pub(super) const SERVER_LEFT: u64 = 250;
    /// A rank is started again.
    pub(super) const RESTART: u64 = 300;
    /// A process that was asked to stop has had its time.
    pub(super) const KILL: u64 = 1_000;
    /// A rank's host was lost.
    pub(super) const LOST: u64 = 1_000_000;
}

/// The launcher, or all restarters together.
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// Exit code of the run, once it has ended.
    pub(crate) code: Option<u8>,
    n_servers: usize,
    attempt: Option<Attempt>,
    n_attempts: u64,
    restarts: Restarts,
    /// Exit code after a request to stop.
    stopped: Option<u8>,
    /// True if the next server that is started never gets ready.
    pub(crate) next_server_hangs: bool,
    /// Servers that are alive.
    servers: Vec<bool>,
    /// For each rank: its host, its restarts since the last progress, and whether it has ended well.
    hosts: Vec<usize>,
    in_vain: Vec<Restarts>,
    is_done: Vec<bool>,
    n_spare: usize,
}

impl Supervisor {
    pub(crate) fn new(plan: Plan, mut draws: Draws) -> Supervisor {
        let n = plan.n_ranks;
        let n_servers = if plan.has_launcher { draws.below(3) as usize } else { 0 };
        Supervisor {
            code: None,
            n_servers,
            attempt: None,
            n_attempts: 0,
            restarts: Restarts::new(RESTARTS, 0),
            stopped: None,
            next_server_hangs: false,
            servers: vec![false; n_servers],
            hosts: (0..n).map(|rank| if plan.has_launcher { 0 } else { rank }).collect(),
            in_vain: (0..n).map(|_| Restarts::new(RESTARTS, 0)).collect(),
            is_done: vec![false; n],
            n_spare: 0,
        }
    }

    /// True if somebody pressed Ctrl-C.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.stopped == Some(INTERRUPTED)
    }

    /// The host of a rank.
    pub(crate) fn host_of(&self, rank: usize) -> usize {
        self.hosts[rank]
    }
}

impl World {
    pub(crate) fn begin(&mut self) {
        if self.plan.has_launcher {
            self.begin_attempt();
        } else {
            for rank in 0..self.plan.n_ranks {
                self.start(rank, self.supervisor.hosts[rank], 0);
            }
        }
    }

    fn begin_attempt(&mut self) {
        self.supervisor.n_attempts += 1;
        let (attempt, actions) = Attempt::begin(self.supervisor.n_servers, self.plan.n_ranks, GRACE, self.now);
        self.supervisor.attempt = Some(attempt);
        self.attempt_acts(actions);
    }

    fn with_attempt(&mut self, event: impl FnOnce(&mut Attempt, Duration) -> Vec<Action>) {
        let now = self.now;
        if let Some(attempt) = &mut self.supervisor.attempt {
            let actions = event(attempt, now);
            self.attempt_acts(actions);
        }
    }

    fn attempt_acts(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start(Who::Rank(rank)) => {
                    self.start(rank, 0, self.supervisor.n_attempts);
                }
                Action::Start(Who::Server(server)) => {
                    self.supervisor.servers[server] = true;
                    let delay = self.draws.millis(100, 3000);
                    if std::mem::take(&mut self.supervisor.next_server_hangs) {
                        self.see("a server hangs");
                    } else {
                        self.queue.add(self.now + delay, Event::Supervise(topic::READY + server as u64));
                    }
                }
                Action::Signal(Who::Rank(rank), kill) => {
                    if let Some(process) = self.of_rank(rank) {
                        match kill {
                            Kill::Terminate => self.terminate(process),
                            Kill::Kill => self.kill(process, 9),
                        }
                    }
                }
                Action::Signal(Who::Server(server), _) => self.end_server(server, Ended::Signal(9), 10),
                Action::RanksStarted => {}
                Action::End(outcome) => self.attempt_ended(outcome),
            }
        }
        if let Some(deadline) = self.supervisor.attempt.as_ref().and_then(Attempt::deadline) {
            self.queue.add(deadline, Event::Supervise(topic::TICK));
        }
    }

    fn attempt_ended(&mut self, outcome: Outcome) {
        self.note(|| format!("attempt ended: {outcome:?}"));
        self.supervisor.attempt = None;
        match outcome {
            Outcome::Done => self.supervisor.code = Some(0),
            Outcome::Stopped { code } => {
                self.see("the launcher is stopped");
                self.supervisor.code = Some(code);
            }
            Outcome::Failed { code: 75, .. } => match self.supervisor.restarts.next(self.disk.reached()) {
                Some(restart) => {
                    self.see("a restart");
                    self.queue.add(self.now + pause_before(restart), Event::Supervise(topic::NEXT_ATTEMPT));
                }
                None => {
                    self.see("no restart is left");
                    self.supervisor.code = Some(75);
                }
            },
            Outcome::Failed { code, sentence } => {
                self.supervisor.code = Some(code);
                if code != 1 || !self.may_end_with_1() {
                    self.violate(format!("the launcher ends with {code}: {sentence}"));
                }
            }
        }
    }

    /// True if the user must see to the disk, or to the programs.
    pub(crate) fn may_end_with_1(&self) -> bool {
        self.disk.was_full || self.disk.has_lied || self.plan.odd_rank.is_some()
    }

    /// All hosts are without power: the launcher is gone, too. The system starts it again.
    pub(crate) fn lose_launcher(&mut self, lasts: Duration) {
        if self.plan.has_launcher && self.supervisor.code.is_none() {
            self.supervisor.attempt = None;
            // Processes of this attempt are nobody's.
            self.supervisor.n_attempts += 1;
            self.supervisor.servers.iter_mut().for_each(|is_alive| *is_alive = false);
            self.supervisor.restarts = Restarts::new(RESTARTS, self.disk.reached());
            self.queue.add(self.now + lasts, Event::Supervise(topic::NEXT_ATTEMPT));
        }
    }

    pub(crate) fn supervise(&mut self, what: u64) {
        match what {
            topic::TICK => self.with_attempt(Attempt::tick),
            topic::NEXT_ATTEMPT if self.supervisor.stopped.is_some() => self.supervisor.code = self.supervisor.stopped,
            // The launcher lost its power meanwhile, and is started again later or was.
            topic::NEXT_ATTEMPT if self.network.is_down[0] || self.supervisor.attempt.is_some() => {}
            topic::NEXT_ATTEMPT => self.begin_attempt(),
            topic::READY..topic::SERVER_ENDED => {
                let server = (what - topic::READY) as usize;
                if self.supervisor.servers[server] {
                    self.with_attempt(|attempt, _| attempt.ready(server));
                }
            }
            topic::SERVER_ENDED..topic::RESTART => {
                let (since, ended) = match what < topic::SERVER_LEFT {
                    true => (topic::SERVER_ENDED, Ended::Signal(9)),
                    false => (topic::SERVER_LEFT, Ended::Code(0)),
                };
                self.with_attempt(|attempt, now| attempt.ended(Who::Server((what - since) as usize), ended, now));
            }
            topic::RESTART..topic::KILL => self.restart((what - topic::RESTART) as usize),
            topic::KILL..topic::LOST => self.kill((what - topic::KILL) as usize, 9),
            _ => self.replace((what - topic::LOST) as usize),
        }
    }

    /// A process of a rank ended.
    pub(crate) fn process_ended(&mut self, process: usize, ended: Ended) {
        let rank = self.processes[process].rank;
        if self.plan.has_launcher {
            // Those of earlier attempts were left to the system.
            if self.processes[process].attempt == self.supervisor.n_attempts {
                self.with_attempt(|attempt, now| attempt.ended(Who::Rank(rank), ended, now));
            }
            return;
        }
        if self.processes[process].is_replaced {
            return;
        }
        // Kubernetes starts no process again that ended with 1. Where a disk was full, somebody makes room and starts it.
        if ended == Ended::Code(1) && self.plan.odd_rank.is_some() {
            self.supervisor.code = Some(1);
            return;
        }
        if ended.is_well() {
            self.supervisor.is_done[rank] = true;
            if self.supervisor.is_done.iter().all(|is_done| *is_done) {
                self.supervisor.code = Some(0);
            }
            return;
        }
        match self.supervisor.in_vain[rank].next(self.disk.reached()) {
            Some(restart) => {
                self.see("a pod again");
                self.queue.add(self.now + pause_before(restart), Event::Supervise(topic::RESTART + rank as u64));
            }
            None => {
                self.see("no restart is left");
                self.supervisor.code = Some(75);
            }
        }
    }

    /// A rank is started again, on its host or on another if that has no power.
    fn restart(&mut self, rank: usize) {
        if self.network.is_down[self.supervisor.hosts[rank]] {
            self.move_elsewhere(rank);
        }
        if self.network.is_down[self.supervisor.hosts[rank]] {
            return self.queue.add(self.now + RETRY, Event::Supervise(topic::RESTART + rank as u64));
        }
        self.start(rank, self.supervisor.hosts[rank], 0);
    }

    fn move_elsewhere(&mut self, rank: usize) {
        self.see("a rank moves");
        let (before, n_ranks) = (self.supervisor.hosts[rank], self.plan.n_ranks);
        while self.supervisor.hosts[rank] == before {
            self.supervisor.hosts[rank] = n_ranks + self.supervisor.n_spare % 3;
            self.supervisor.n_spare += 1;
        }
    }

    /// A rank's host is isolated: after a while the rank is started elsewhere, though its process may live.
    pub(crate) fn supervisor_lost(&mut self, rank: usize, lasts: Duration) {
        if !self.plan.has_launcher && lasts > NODE_TIMEOUT {
            self.queue.add(self.now + NODE_TIMEOUT, Event::Supervise(topic::LOST + rank as u64));
        }
    }

    fn replace(&mut self, rank: usize) {
        let Some(process) = self.of_rank(rank) else { return };
        // It may have been started again since, elsewhere.
        let others = (0..self.plan.n_ranks).filter(|other| *other != rank);
        let host = self.processes[process].host;
        if self.supervisor.is_done[rank]
            || others.map(|other| self.supervisor.hosts[other]).any(|other| self.network.reaches(host, other))
        {
            return;
        }
        self.see("replaced");
        self.note(|| format!("process {process} is replaced"));
        self.processes[process].is_replaced = true;
        self.move_elsewhere(rank);
        self.start(rank, self.supervisor.hosts[rank], 0);
    }

    /// Hosts are reached again: processes that were replaced meanwhile are ended there.
    pub(crate) fn end_replaced(&mut self) {
        for process in 0..self.processes.len() {
            if self.processes[process].is_replaced && self.processes[process].ended.is_none() {
                let delay = self.draws.millis(0, 2000);
                self.queue.add(self.now + delay, Event::Supervise(topic::KILL + process as u64));
            }
        }
    }

    /// Asks a process to stop: it is killed if it takes too long.
    pub(crate) fn supervisor_terminates(&mut self, process: usize) {
        self.terminate(process);
        self.queue.add(self.now + GRACE, Event::Supervise(topic::KILL + process as u64));
    }

    fn terminate(&mut self, process: usize) {
        self.see("asked to stop");
        self.queue.add(self.now, Event::Terminate(process));
    }

    pub(crate) fn stop_launcher(&mut self, request: Request) {
        if self.plan.has_launcher {
            self.supervisor.stopped.get_or_insert(request.code);
            self.with_attempt(|attempt, now| attempt.request(request, now));
        }
    }

    pub(crate) fn end_a_server(&mut self, ended: Ended) {
        if let Some(server) = self.supervisor.servers.iter().position(|is_alive| *is_alive) {
            self.see(if ended.is_well() { "a server ends" } else { "a server is killed" });
            self.end_server(server, ended, 1);
        }
    }

    fn end_server(&mut self, server: usize, ended: Ended, millis: u64) {
        if std::mem::replace(&mut self.supervisor.servers[server], false) {
            let delay = self.draws.millis(0, millis);
            let topic = if ended.is_well() { topic::SERVER_LEFT } else { topic::SERVER_ENDED };
            self.queue.add(self.now + delay, Event::Supervise(topic + server as u64));
        }
    }
}
