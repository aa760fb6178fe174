//! One process of a rank: it drives the state machines of its group, as the program does.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use kith_group::{
    host::Host,
    launch::ended::Ended,
    limits::PAUSE,
    member::Member,
    message::{Message, Opening},
    progress::{Entry, Verdict},
    pulse::{self, Pulse},
    ring::{forming::Forming, frame::HEAD_BYTES, judgment::Failure},
    visit::Visit,
};

use crate::{
    network::Packet,
    training::Training,
    world::{Event, LIMITS, World},
};

/// Time from an answer to the end of a process that is refused, at most.
const MOMENT: Duration = Duration::from_secs(1);

/// Purpose of an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// To join at rank 0.
    Join,
    /// To the next rank of the ring.
    Ring,
}

/// Use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Somebody who has not introduced itself yet.
    Newcomer,
    /// Heartbeats with a rank.
    Spoke(usize),
    /// The previous rank of the ring.
    Previous,
    /// The next rank of the ring.
    Next,
}

/// Stage of a process.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The program starts.
    Starting,
    Hosting(Box<Host>),
    Visiting(Box<Visit>),
    /// The group is complete.
    Joined,
}

/// A process of a rank.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) rank: usize,
    pub(crate) host: usize,
    /// Number of the attempt that it belongs to.
    pub(crate) attempt: u64,
    pub(crate) stage: Stage,
    pub(crate) lines: BTreeMap<usize, Role>,
    pub(crate) is_paused: bool,
    /// Events that came during a pause.
    pub(crate) later: VecDeque<Event>,
    pub(crate) ended: Option<Ended>,
    /// Time of its end.
    ended_at: Duration,
    /// True if another process was started in its place while it could not be reached.
    pub(crate) is_replaced: bool,
    pub(crate) pulse: Option<Pulse>,
    pub(crate) forming: Option<Forming>,
    pub(crate) members: Vec<Member>,
    pub(crate) session: String,
    pub(crate) training: Option<Training>,
    /// Frames of the previous rank that no call has taken yet.
    pub(crate) frames: VecDeque<([u8; HEAD_BYTES], Vec<u8>)>,
    /// A connection of the ring that broke.
    pub(crate) broken: Option<Failure>,
    pub(crate) own: Entry,
    /// Exit code, once it is about to end.
    pub(crate) ending: Option<u8>,
    /// True once it is asked to stop.
    pub(crate) is_asked: bool,
    /// Connections of the previous rank that came before the group was complete, as far as this rank knew.
    pub(crate) early: Vec<(usize, Opening)>,
    /// True while it connects to the next rank.
    pub(crate) is_knocking: bool,
    /// When it looks at its clock again.
    tick_at: Option<Duration>,
}

impl World {
    /// Starts a process; its number.
    pub(crate) fn start(&mut self, rank: usize, host: usize, attempt: u64) -> usize {
        let process = self.processes.len();
        let delay = self.draws.millis(50, 1500);
        let delay = if self.draws.in_percent(10) { delay * 20 } else { delay };
        self.note(|| format!("process {process} is started: rank {rank} on host {host}, attempt {attempt}"));
        self.processes.push(Process {
            rank,
            host,
            attempt,
            stage: Stage::Starting,
            lines: BTreeMap::new(),
            is_paused: false,
            later: VecDeque::new(),
            ended: None,
            ended_at: Duration::ZERO,
            is_replaced: false,
            pulse: None,
            forming: None,
            members: Vec::new(),
            session: String::new(),
            training: None,
            frames: VecDeque::new(),
            broken: None,
            own: Entry::default(),
            ending: None,
            is_asked: false,
            early: Vec::new(),
            is_knocking: false,
            tick_at: None,
        });
        self.queue.add(self.now + delay, Event::Begin(process));
        process
    }

    /// The living process that has a rank.
    pub(crate) fn of_rank(&self, rank: usize) -> Option<usize> {
        (0..self.processes.len()).rev().find(|process| {
            let Process { rank: its, ended, is_replaced, .. } = &self.processes[*process];
            *its == rank && ended.is_none() && !is_replaced
        })
    }

    pub(crate) fn on_process(&mut self, event: Event) {
        match event {
            Event::Begin(process) => self.begin_process(process),
            Event::Tick(process) => self.tick(process),
            Event::Connected { process, goal, line } => self.connected(process, goal, line),
            Event::Missed { process, goal, why } => self.missed(process, goal, why),
            Event::Got { process, line, packet } => self.got(process, line, packet),
            Event::Done(process) => self.done(process),
            Event::Wrote(process) => self.wrote(process),
            Event::Patience(process) => self.judge_broken(process),
            Event::TooLate { process, number } => self.too_late(process, number),
            Event::Exit { process, code } => self.exit(process, Ended::Code(code)),
            Event::Terminate(process) => self.processes[process].is_asked = true,
            _ => unreachable!("no event of a process"),
        }
    }

    fn begin_process(&mut self, process: usize) {
        if self.processes[process].rank == 0 {
            let (session, place) = (format!("session-{process}"), "rank 0".to_owned());
            let machine = Host::new(self.hello(process), (session.clone(), place), LIMITS, self.now);
            self.processes[process].session = session;
            self.processes[process].stage = Stage::Hosting(Box::new(machine));
        } else {
            let visit = Visit::new(self.plan.n_ranks, "rank 0".to_owned(), LIMITS, self.now);
            self.processes[process].stage = Stage::Visiting(Box::new(visit));
        }
        self.tick(process);
    }

    /// True if joining has ended, and the process with it.
    fn has_failed_to_join(&self, process: usize) -> bool {
        self.processes[process].ending.is_some() && !matches!(self.processes[process].stage, Stage::Joined)
    }

    /// The process wakes up.
    pub(crate) fn tick(&mut self, process: usize) {
        if self.has_failed_to_join(process) {
            return;
        }
        self.wake(process);
        match &mut self.processes[process].stage {
            Stage::Starting => {}
            Stage::Hosting(machine) => {
                let actions = machine.tick(&[], self.now);
                self.host_acts(process, actions, None);
            }
            Stage::Visiting(machine) => {
                let actions = machine.tick(self.now);
                self.visit_acts(process, actions);
            }
            Stage::Joined => self.beat(process),
        }
        self.form(process);
        self.schedule(process);
    }

    /// A process that wakes up judges nobody by the time that it slept.
    pub(crate) fn wake(&mut self, process: usize) {
        match &mut self.processes[process].stage {
            Stage::Hosting(machine) => machine.wake(self.now),
            Stage::Visiting(machine) => machine.wake(self.now),
            _ => {}
        }
        if let Some(pulse) = &mut self.processes[process].pulse {
            pulse.wake(self.now);
        }
    }

    /// The time at which a process looks at its clock again.
    pub(crate) fn schedule(&mut self, process: usize) {
        let Process { stage, pulse, ended: None, ending: None, .. } = &self.processes[process] else { return };
        let next = match stage {
            Stage::Starting => return,
            Stage::Hosting(machine) => machine.next_tick(),
            Stage::Visiting(machine) => machine.next_tick(),
            Stage::Joined => match pulse {
                Some(pulse) => pulse.next_tick(),
                None => return,
            },
        };
        let forming = self.processes[process].forming.as_ref().map(|_| self.now + PAUSE);
        let next = forming.map_or(next, |forming| forming.min(next)).max(self.now + Duration::from_micros(50));
        let is_known = self.processes[process].tick_at.is_some_and(|at| at > self.now && at <= next);
        if !is_known {
            self.processes[process].tick_at = Some(next);
            self.queue.add(next, Event::Tick(process));
        }
    }

    pub(crate) fn send(&mut self, process: usize, line: usize, packet: Packet) {
        self.network.send(line, process, packet, self.now, &mut self.queue);
    }

    pub(crate) fn hang_up(&mut self, process: usize, line: usize) {
        self.network.close(line, process, self.now, &mut self.queue);
        self.processes[process].lines.remove(&line);
    }

    pub(crate) fn line_of(&self, process: usize, role: Role) -> Option<usize> {
        self.processes[process].lines.iter().find(|(_, its)| **its == role).map(|(line, _)| *line)
    }

    /// A packet for a process.
    fn got(&mut self, process: usize, line: usize, packet: Packet) {
        if self.has_failed_to_join(process) {
            return;
        }
        self.wake(process);
        // Its process may have closed it meanwhile.
        let Some(role) = self.processes[process].lines.get(&line).copied() else { return };
        match (role, packet) {
            (Role::Newcomer, Packet::Opening(opening)) => self.opening(process, line, &opening),
            (Role::Newcomer, _) => self.hang_up(process, line),
            (Role::Spoke(_), Packet::Answer(answer)) => {
                if let Stage::Visiting(machine) = &mut self.processes[process].stage {
                    let actions = machine.receive(answer, self.now);
                    self.visit_acts(process, actions);
                }
            }
            (Role::Spoke(rank), Packet::Message(message)) => match &mut self.processes[process].stage {
                Stage::Hosting(machine) => machine.receive(rank, &message, self.now),
                _ => self.with_pulse(process, |pulse, now| pulse.receive(rank, message, now)),
            },
            (Role::Spoke(rank), Packet::Close(why)) => {
                self.hang_up(process, line);
                let text = why.unwrap_or("it was closed").to_owned();
                match &mut self.processes[process].stage {
                    Stage::Hosting(machine) => {
                        let actions = machine.closed(rank);
                        self.host_acts(process, actions, None);
                    }
                    Stage::Visiting(machine) => {
                        let actions = machine.closed(text, self.now);
                        self.visit_acts(process, actions);
                    }
                    // A reset is the end of a process as well.
                    _ => self.with_pulse(process, |pulse, now| pulse.closed(rank, None, now)),
                }
            }
            (Role::Previous, Packet::Frame(head, piece)) => self.frame(process, head, piece),
            (Role::Previous | Role::Next, Packet::Close(why)) => {
                self.hang_up(process, line);
                self.line_broke(process, role, why.unwrap_or("it was closed"));
            }
            (role, packet) => self.violate(format!("process {process} got {packet:?} as {role:?}")),
        }
        self.form(process);
        self.schedule(process);
    }

    /// Heartbeats that are due.
    pub(crate) fn beat(&mut self, process: usize) {
        let own = self.processes[process].own;
        self.with_pulse(process, |pulse, now| pulse.tick(own, now));
    }

    pub(crate) fn with_pulse(
        &mut self,
        process: usize,
        event: impl FnOnce(&mut Pulse, Duration) -> Vec<pulse::Action>,
    ) {
        let now = self.now;
        let Some(pulse) = &mut self.processes[process].pulse else { return };
        let actions = event(pulse, now);
        for action in actions {
            match action {
                pulse::Action::Beat { to, message } => {
                    if let Some(line) = self.line_of(process, Role::Spoke(to))
                        && !self.network.is_stuck(line, process)
                    {
                        self.send(process, line, Packet::Message(message));
                    }
                }
                pulse::Action::Send { to, message } => {
                    if matches!(message, Message::Goodbye(_)) {
                        self.see("a goodbye");
                    }
                    if let Some(line) = self.line_of(process, Role::Spoke(to)) {
                        self.send(process, line, Packet::Message(message));
                    }
                }
                pulse::Action::Decide(verdict) => self.decided(process, &verdict),
                pulse::Action::Call => {
                    self.see("called");
                    let code = self.processes[process].pulse.as_ref().and_then(Pulse::verdict).map_or(75, code_of);
                    self.exit(process, Ended::Code(code));
                    return;
                }
            }
        }
    }

    /// All must stop: the process notices where it waits, or is called.
    fn decided(&mut self, process: usize, verdict: &Verdict) {
        self.note(|| format!("process {process} must stop: {verdict:?}"));
        let session = self.processes[process].session.clone();
        self.taken.entry(session).or_default().push(verdict.clone());
        self.see(match verdict {
            Verdict::Lost { why, .. } if why.starts_with("nothing was heard") => "lost by silence",
            Verdict::Lost { why, .. } if why.starts_with("its process") => "lost by its end",
            Verdict::Lost { .. } => "lost otherwise",
            Verdict::Stopped { .. } => "stopped",
            Verdict::OutOfStep { .. } => "out of step",
        });
        if self.draws.in_percent(90) {
            self.end_soon(process, code_of(verdict));
        }
    }

    /// This process found a reason to stop, and ends.
    pub(crate) fn tell(&mut self, process: usize, verdict: Verdict) {
        let decided = self.processes[process].pulse.as_ref().and_then(|pulse| pulse.verdict().cloned());
        let verdict = match decided {
            Some(decided) => decided,
            None => {
                self.note(|| format!("process {process} stops all: {verdict:?}"));
                self.see("told");
                let session = self.processes[process].session.clone();
                self.told.entry(session).or_default().push(verdict.clone());
                self.with_pulse(process, |pulse, now| pulse.tell(verdict.clone(), now));
                verdict
            }
        };
        self.end_soon(process, code_of(&verdict));
    }

    /// The process ends in a moment.
    pub(crate) fn end_soon(&mut self, process: usize, code: u8) {
        if self.processes[process].ending.is_some() || self.processes[process].ended.is_some() {
            return;
        }
        self.processes[process].ending = Some(code);
        let delay = self.draws.millis(1, 200);
        self.queue.add(self.now + delay, Event::Exit { process, code });
    }

    /// The process ends well, or after a request to stop: it says goodbye.
    pub(crate) fn leave(&mut self, process: usize, code: u8) {
        let own = self.processes[process].own;
        self.with_pulse(process, |pulse, _| pulse.leave(own));
        self.processes[process].pulse = None;
        self.end_soon(process, code);
    }

    /// A process is killed; the system closes its connections.
    pub(crate) fn kill(&mut self, process: usize, signal: i32) {
        if self.processes[process].ended.is_none() {
            self.exit(process, Ended::Signal(signal));
        }
    }

    pub(crate) fn exit(&mut self, process: usize, ended: Ended) {
        let lines: Vec<usize> = self.processes[process].lines.keys().copied().collect();
        lines.into_iter().for_each(|line| self.hang_up(process, line));
        self.over(process, ended);
    }

    /// The process is gone with its host: nobody is told.
    pub(crate) fn vanish(&mut self, process: usize) {
        for line in self.network.lines_of(process) {
            let end = self.network.end_of(line, process);
            self.network.lines[line][end].is_open = false;
        }
        self.over(process, Ended::Signal(9));
    }

    fn over(&mut self, process: usize, ended: Ended) {
        self.note(|| format!("process {process} {}", ended.sentence()));
        let place = &mut self.processes[process];
        (place.ended, place.pulse, place.forming, place.training) = (Some(ended), None, None, None);
        place.ended_at = self.now;
        place.lines.clear();
        place.later.clear();
        let is_replaced = place.is_replaced;
        if self.disk.holder == Some(process) {
            self.disk.holder = None;
        }
        // Two processes of one rank that reach rank 0 at the same time are bad input: one of them ends a moment later.
        let (rank, now) = (place.rank, self.now);
        let lived = |other: &Process| other.ended.is_none() || now < other.ended_at + MOMENT;
        let is_twice = self.processes.iter().any(|other| other.rank == rank && other.is_replaced && lived(other));
        let may_be_1 = is_twice || self.may_end_with_1();
        let is_wrong = |code| ![0, 75].contains(&code) && (code != 1 || !may_be_1);
        if matches!(ended, Ended::Code(code) if is_wrong(code)) && !is_replaced {
            self.violate(format!("process {process} {}", ended.sentence()));
        }
        self.process_ended(process, ended);
    }
}

/// Exit code of a process that stops because of a verdict.
fn code_of(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Lost { .. } => 75,
        Verdict::Stopped { code, .. } => *code,
        Verdict::OutOfStep { .. } => 70,
    }
}
