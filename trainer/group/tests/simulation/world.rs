//! A run in virtual time: hosts, processes, their network and their disk, and who starts processes again.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use kith_group::{
    limits::{JoinLimits, Rhythm},
    progress::Verdict,
};

use crate::{
    disk::Disk,
    draws::Draws,
    faults::{Fault, drawn},
    network::{Network, Packet},
    process::{Goal, Process},
    queue::Queue,
    supervisor::Supervisor,
};

/// Heartbeats and patience of all ranks.
pub(crate) const LIMITS: JoinLimits = JoinLimits {
    join: Duration::from_secs(120),
    rhythm: Rhythm { every: Duration::from_secs(1), deadline: Duration::from_secs(10) },
};

/// Time limit of a collective.
pub(crate) const COLLECTIVE: Duration = Duration::from_secs(120);

/// Time limit of a call to sampling servers, with all its retries.
pub(crate) const CALL: Duration = Duration::from_secs(60);

/// After the last fault, a run has ended within this time.
const BOUND: Duration = Duration::from_secs(3600);

/// Limit of events at one moment.
const MAX_AT_ONCE: u32 = 10_000;

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A process begins.
    Begin(usize),
    /// A process looks at its clock.
    Tick(usize),
    /// A packet arrives at an end of a connection.
    Arrive { line: usize, end: usize },
    /// An attempt to connect arrives.
    Connect { process: usize, goal: Goal, until: Duration },
    /// A connection was made.
    Connected { process: usize, goal: Goal, line: usize },
    /// An attempt to connect failed.
    Missed { process: usize, goal: Goal, why: &'static str },
    /// A process got a packet.
    Got { process: usize, line: usize, packet: Packet },
    /// A process has computed, or read.
    Done(usize),
    /// A process has written to the run folder, beside what else it does.
    Wrote(usize),
    /// A process has waited long enough for a verdict about its broken connection.
    Patience(usize),
    /// A collective of a process must have ended.
    TooLate { process: usize, number: u64 },
    /// A process ends with a code.
    Exit { process: usize, code: u8 },
    /// A process is asked to stop.
    Terminate(usize),
    /// A process goes on after a pause.
    Continue(usize),
    /// A fault begins.
    Fault(Fault),
    /// A cut heals.
    Heal(Vec<(usize, usize)>),
    /// A host is fast again.
    Fast { host: usize, factor: u32 },
    /// A host has power again.
    PowerOn(usize),
    /// The launcher or restarter looks at its clock, or starts something.
    Supervise(u64),
}

impl Event {
    /// The process whose event this is; one that is paused gets it later.
    fn process(&self) -> Option<usize> {
        match self {
            Event::Begin(process)
            | Event::Tick(process)
            | Event::Connected { process, .. }
            | Event::Missed { process, .. }
            | Event::Got { process, .. }
            | Event::Done(process)
            | Event::Wrote(process)
            | Event::Patience(process)
            | Event::TooLate { process, .. }
            | Event::Exit { process, .. }
            | Event::Terminate(process) => Some(*process),
            _ => None,
        }
    }
}

/// Settings of a run that its key draws, beside its faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) key: u64,
    pub(crate) n_ranks: usize,
    pub(crate) n_steps: u64,
    /// Steps from one checkpoint to the next.
    pub(crate) every: u64,
    /// Milliseconds of a step, at most.
    pub(crate) step_millis: u64,
    /// True if a launcher starts all ranks on one host; else each rank has its own, and a restarter.
    pub(crate) has_launcher: bool,
    /// A rank that runs another program: bad input, with which no run can succeed.
    pub(crate) odd_rank: Option<usize>,
}

/// End of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) plan: Plan,
    /// Exit code; none if it did not end within its bound.
    pub(crate) code: Option<u8>,
    pub(crate) disk: Disk,
    /// True if somebody pressed Ctrl-C.
    pub(crate) was_interrupted: bool,
    /// Events that must not happen, and happened.
    pub(crate) violations: Vec<String>,
    /// Transitions that were taken, and how often.
    pub(crate) seen: BTreeMap<&'static str, u64>,
    /// Virtual time that it took.
    pub(crate) took: Duration,
    pub(crate) log: Vec<String>,
}

/// A run.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) draws: Draws,
    pub(crate) now: Duration,
    pub(crate) queue: Queue<Event>,
    pub(crate) network: Network,
    pub(crate) disk: Disk,
    pub(crate) processes: Vec<Process>,
    pub(crate) supervisor: Supervisor,
    /// For each rank, when the sampling servers answer it again.
    pub(crate) servers_away_until: Vec<Duration>,
    /// Reasons to stop that processes of a group found, and those that they took, by the group's session.
    pub(crate) told: BTreeMap<String, Vec<Verdict>>,
    pub(crate) taken: BTreeMap<String, Vec<Verdict>>,
    pub(crate) violations: Vec<String>,
    pub(crate) seen: BTreeMap<&'static str, u64>,
    log: Option<Vec<String>>,
}

impl World {
    /// Runs a key to its end, with faults or without.
    pub(crate) fn run(key: u64, has_faults: bool, is_logged: bool) -> Ended {
        let mut draws = Draws::new(key, 0);
        let mut plan = Plan {
            key,
            n_ranks: draws.from(2, 8) as usize,
            n_steps: draws.from(4, 40),
            every: draws.from(1, 6),
            step_millis: [20, 200, 2000][draws.below(3) as usize],
            has_launcher: draws.in_percent(40),
            odd_rank: None,
        };
        let mut input = Draws::new(key, 6);
        if has_faults && input.in_percent(3) {
            plan.odd_rank = Some(input.below(plan.n_ranks as u64) as usize);
        }
        // One host for each rank, one for the disk, and some to move to.
        let n_hosts = plan.n_ranks + 4;
        let mut world = World {
            plan,
            draws,
            now: Duration::ZERO,
            queue: Queue::new(),
            network: Network::new(n_hosts, Draws::new(key, 1)),
            disk: Disk::new(Draws::new(key, 2), Draws::new(key, 5).in_percent(30)),
            processes: Vec::new(),
            supervisor: Supervisor::new(plan, Draws::new(key, 4)),
            servers_away_until: vec![Duration::ZERO; plan.n_ranks],
            told: BTreeMap::new(),
            taken: BTreeMap::new(),
            violations: Vec::new(),
            seen: BTreeMap::new(),
            log: is_logged.then(Vec::new),
        };
        let faults = if has_faults { drawn(&plan, &mut Draws::new(key, 3)) } else { Vec::new() };
        let all_are_reached = faults.iter().all(|(_, fault)| fault.leaves_connections());
        let last = faults.iter().map(|(at, fault)| *at + fault.lasts()).max().unwrap_or_default();
        faults.into_iter().for_each(|(at, fault)| world.queue.add(at, Event::Fault(fault)));
        world.begin();
        let mut n_at_once = 0;
        while world.supervisor.code.is_none() && world.now <= last + BOUND {
            let Some((at, event)) = world.queue.next() else { break };
            n_at_once = if at > world.now { 0 } else { n_at_once + 1 };
            if n_at_once > MAX_AT_ONCE {
                world.violate("a process is busy for ever without waiting");
                break;
            }
            world.now = at;
            world.handle(event);
        }
        if all_are_reached {
            world.check_verdicts();
        }
        let World { plan, disk, violations, seen, now, log, supervisor, .. } = world;
        let (code, was_interrupted, log) = (supervisor.code, supervisor.was_interrupted(), log.unwrap_or_default());
        Ended { plan, code, disk, was_interrupted, violations, seen, took: now, log }
    }

    /// Without faults of hosts, processes and connections, all ranks stop for a reason that one of them found.
    fn check_verdicts(&mut self) {
        for (session, taken) in std::mem::take(&mut self.taken) {
            let told = self.told.get(&session).map_or(&[][..], Vec::as_slice);
            let first = &taken[0];
            if !told.contains(first) || taken.iter().any(|verdict| verdict != first) {
                let sentence = format!("ranks found {told:?}, and stopped because of {taken:?}");
                self.violate(sentence);
            }
        }
    }

    /// Notes that a transition was taken.
    pub(crate) fn see(&mut self, what: &'static str) {
        *self.seen.entry(what).or_insert(0) += 1;
    }

    /// Writes a line into the log, if one is kept.
    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let seconds = self.now.as_secs_f64();
        if let Some(log) = &mut self.log {
            log.push(format!("{seconds:10.4}  {}", line()));
        }
    }

    /// Notes something that must not happen.
    pub(crate) fn violate(&mut self, what: impl Display) {
        let sentence = what.to_string();
        self.note(|| format!("VIOLATION: {sentence}"));
        self.violations.push(sentence);
    }

    fn handle(&mut self, event: Event) {
        if let Some(process) = event.process() {
            if self.processes[process].ended.is_some() {
                return;
            }
            if self.processes[process].is_paused {
                self.processes[process].later.push_back(event);
                return;
            }
        }
        match event {
            Event::Arrive { line, end } => {
                if let Some((process, packet)) = self.network.arrive(line, end, self.now, &mut self.queue) {
                    self.handle(Event::Got { process, line, packet });
                }
            }
            Event::Connect { process, goal, until } => self.connect(process, goal, until),
            Event::Fault(fault) => self.begin_fault(fault),
            Event::Heal(ways) => {
                self.note(|| format!("healed: {ways:?}"));
                ways.iter().for_each(|(from, to)| self.network.cut(*from, *to, false));
                self.network.resume(self.now, &mut self.queue);
                self.end_replaced();
            }
            Event::Fast { host, factor } => self.network.slow[host] /= factor,
            Event::PowerOn(host) => self.power_on(host),
            Event::Continue(process) => self.go_on(process),
            Event::Supervise(what) => self.supervise(what),
            other => self.on_process(other),
        }
    }

    /// A paused process goes on: what happened meanwhile, it learns now.
    fn go_on(&mut self, process: usize) {
        if self.processes[process].ended.is_some() || !self.processes[process].is_paused {
            return;
        }
        self.note(|| format!("process {process} goes on"));
        self.processes[process].is_paused = false;
        while let Some(event) = self.processes[process].later.pop_front() {
            self.handle(event);
        }
        self.handle(Event::Tick(process));
    }

    fn power_on(&mut self, host: usize) {
        self.note(|| format!("host {host} has power again"));
        self.network.is_down[host] = false;
        self.network.resume(self.now, &mut self.queue);
    }
}
