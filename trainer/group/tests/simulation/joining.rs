//! Joining of a simulated process: its attempts to connect, the answers of rank 0, and the ring of connections.

use std::time::Duration;

use kith_group::{
    host,
    member::{Hello, Member, Program},
    message::{Answer, Opening},
    progress::Verdict,
    pulse::Pulse,
    refusal::{Holder, to_late},
    ring::forming::{self, Forming},
    visit::{self, Missed},
};

use crate::{
    network::Packet,
    process::{Goal, Process, Role, Stage},
    world::{Event, LIMITS, World},
};

impl World {
    pub(crate) fn hello(&self, process: usize) -> Hello {
        let Process { rank, host, .. } = &self.processes[process];
        let digest = if self.plan.odd_rank == Some(*rank) { "another program" } else { "the same program" };
        let program = Program { version: "1".to_owned(), digest: digest.to_owned() };
        let member = Member {
            rank: *rank,
            host: format!("host-{host}"),
            address: process.to_string(),
            pid: process as u32,
            ..Member::default()
        };
        Hello { n_ranks: self.plan.n_ranks, program, member }
    }

    /// An attempt to connect arrives at the other host, or tries again.
    pub(crate) fn connect(&mut self, process: usize, goal: Goal, until: Duration) {
        let Process { host, attempt, rank, .. } = &self.processes[process];
        let (host, attempt, rank) = (*host, *attempt, *rank);
        let target = match goal {
            Goal::Join => self.master(attempt),
            Goal::Ring => {
                let next = &self.processes[process].members[(rank + 1) % self.plan.n_ranks];
                next.address.parse().ok()
            }
        };
        let refused = Event::Missed { process, goal, why: "connection refused" };
        let Some(target) = target else { return self.queue.add(self.now, refused) };
        let Process { host: there, ended, is_paused, stage, .. } = &self.processes[target];
        let there = *there;
        if !self.network.is_connected(host, there) || *is_paused && ended.is_none() {
            if self.now >= until {
                return self.queue.add(self.now, Event::Missed { process, goal, why: "it took too long" });
            }
            let again = (self.now + Duration::from_millis(500)).min(until);
            return self.queue.add(again, Event::Connect { process, goal, until });
        }
        if ended.is_some() || matches!(stage, Stage::Starting) {
            return self.queue.add(self.now, refused);
        }
        let line = self.network.connect([(process, host), (target, there)]);
        self.processes[target].lines.insert(line, Role::Newcomer);
        let delay = self.network.delay(there, host);
        self.queue.add(self.now + delay, Event::Connected { process, goal, line });
    }

    /// The process at rank 0's address: a launcher's attempts each have their own.
    fn master(&self, attempt: u64) -> Option<usize> {
        (0..self.processes.len()).rev().find(|process| {
            let Process { rank, attempt: its, .. } = &self.processes[*process];
            *rank == 0 && (!self.plan.has_launcher || *its == attempt)
        })
    }

    pub(crate) fn connected(&mut self, process: usize, goal: Goal, line: usize) {
        self.wake(process);
        let (role, opening) = match goal {
            Goal::Join => (Role::Spoke(0), Opening::Join(self.hello(process))),
            Goal::Ring => {
                let Process { rank, session, .. } = &self.processes[process];
                (Role::Next, Opening::Ring { session: session.clone(), from: *rank })
            }
        };
        self.processes[process].lines.insert(line, role);
        self.send(process, line, Packet::Opening(opening));
        match goal {
            Goal::Join => {
                if let Stage::Visiting(machine) = &mut self.processes[process].stage {
                    machine.connected(self.now);
                }
            }
            Goal::Ring => {
                self.processes[process].forming.iter_mut().for_each(Forming::connected);
            }
        }
        self.tick(process);
    }

    pub(crate) fn missed(&mut self, process: usize, goal: Goal, why: &'static str) {
        self.wake(process);
        match goal {
            Goal::Join => {
                if let Stage::Visiting(machine) = &mut self.processes[process].stage {
                    let actions = machine.missed(Missed::ForNow(why.to_owned()), self.now);
                    self.visit_acts(process, actions);
                }
            }
            Goal::Ring => {
                let now = self.now;
                let place = &mut self.processes[process];
                place.is_knocking = false;
                place.forming.iter_mut().for_each(|forming| forming.missed(why.to_owned(), now));
            }
        }
        self.schedule(process);
    }

    /// Somebody introduced itself.
    pub(crate) fn opening(&mut self, process: usize, line: usize, opening: &Opening) {
        if let Stage::Hosting(machine) = &mut self.processes[process].stage {
            if let Opening::Join(hello) = opening {
                let actions = machine.arrive(hello, self.now);
                self.host_acts(process, actions, Some(line));
            }
            return;
        }
        let now = self.now;
        let place = &mut self.processes[process];
        if place.forming.as_mut().is_some_and(|forming| forming.is_previous(opening)) {
            place.lines.insert(line, Role::Previous);
            return;
        }
        // The previous rank may know sooner that the group is complete.
        if matches!((&place.stage, opening), (Stage::Visiting(_), Opening::Ring { .. })) {
            place.early.push((line, opening.clone()));
            return;
        }
        if let Opening::Join(hello) = opening
            && !place.members.is_empty()
        {
            let Process { pulse, members, rank, .. } = place;
            let answer = match pulse {
                Some(pulse) if *rank == 0 => to_late(members, hello, |rank| pulse.holder(rank, now)),
                _ => to_late(members, hello, |_| Holder::InDoubt),
            };
            match &answer {
                Answer::Taken(_) => self.see("taken in a complete group"),
                Answer::Later(_) => self.see("later in a complete group"),
                _ => {}
            }
            self.send(process, line, Packet::Answer(answer));
        }
        self.hang_up(process, line);
    }

    pub(crate) fn host_acts(&mut self, process: usize, actions: Vec<host::Action>, newcomer: Option<usize>) {
        for action in actions {
            match action {
                host::Action::Seat { rank } => {
                    let line = newcomer.expect("somebody came");
                    self.processes[process].lines.insert(line, Role::Spoke(rank));
                }
                host::Action::SendAway(answer) => {
                    let line = newcomer.expect("somebody came");
                    match &answer {
                        Answer::Taken(_) => self.see("taken while joining"),
                        Answer::Later(_) => self.see("later while joining"),
                        _ => {}
                    }
                    self.send(process, line, Packet::Answer(answer));
                    self.hang_up(process, line);
                }
                host::Action::Beat { to, answer } => {
                    if let Some(line) = self.line_of(process, Role::Spoke(to))
                        && !self.network.is_stuck(line, process)
                    {
                        self.send(process, line, Packet::Answer(answer));
                    }
                }
                host::Action::Tell { to, answer } => {
                    if let Some(line) = self.line_of(process, Role::Spoke(to)) {
                        self.send(process, line, Packet::Answer(answer));
                    }
                }
                host::Action::Drop { rank } => {
                    self.see("a silent guest");
                    if let Some(line) = self.line_of(process, Role::Spoke(rank)) {
                        self.hang_up(process, line);
                    }
                }
                host::Action::Remark(_) => {}
                host::Action::End(host::End::Complete { members, number }) => self.join(process, members, number),
                host::Action::End(host::End::NeverCame(_)) => {
                    self.see("ranks never came");
                    self.end_soon(process, 75);
                }
                host::Action::End(host::End::Refused(sentence)) => {
                    self.see("rank 0 refused the ranks");
                    self.note(|| format!("process {process}: {sentence}"));
                    self.end_soon(process, 1);
                }
            }
        }
    }

    pub(crate) fn visit_acts(&mut self, process: usize, actions: Vec<visit::Action>) {
        for action in actions {
            match action {
                visit::Action::Knock { until } => {
                    let delay = self.draws.millis(1, 10);
                    self.queue.add(self.now + delay, Event::Connect { process, goal: Goal::Join, until });
                }
                visit::Action::Beat(message) => {
                    if let Some(line) = self.line_of(process, Role::Spoke(0))
                        && !self.network.is_stuck(line, process)
                    {
                        self.send(process, line, Packet::Message(message));
                    }
                }
                visit::Action::HangUp => {
                    if let Some(line) = self.line_of(process, Role::Spoke(0)) {
                        self.hang_up(process, line);
                    }
                }
                visit::Action::End(visit::End::Welcome { session, members, number }) => {
                    self.processes[process].session = session;
                    self.join(process, members, number);
                }
                visit::Action::End(visit::End::NeverCame(_)) => {
                    self.see("rank 0 never came");
                    self.end_soon(process, 75);
                }
                visit::Action::End(visit::End::Refused(sentence)) => {
                    self.see("a rank was refused");
                    self.note(|| format!("process {process}: {sentence}"));
                    self.end_soon(process, 1);
                }
            }
        }
    }

    /// All ranks are known: heartbeats begin, and the ring is made.
    fn join(&mut self, process: usize, members: Vec<Member>, number: u64) {
        self.see("joined");
        self.note(|| format!("process {process} has joined"));
        let (now, n_ranks) = (self.now, self.plan.n_ranks);
        let place = &mut self.processes[process];
        place.stage = Stage::Joined;
        place.pulse = Some(Pulse::new(place.rank, n_ranks, LIMITS.rhythm, number, now));
        let group = (place.session.clone(), members.clone());
        place.members = members;
        place.forming = Some(Forming::new(place.rank, group, "its address".to_owned(), LIMITS, now));
        for (line, opening) in std::mem::take(&mut self.processes[process].early) {
            if self.processes[process].lines.contains_key(&line) {
                self.opening(process, line, &opening);
            }
        }
        self.beat(process);
        self.form(process);
        self.schedule(process);
    }

    /// Connects to both neighbors.
    pub(crate) fn form(&mut self, process: usize) {
        let now = self.now;
        let place = &mut self.processes[process];
        let Some(forming) = &place.forming else { return };
        if place.ended.is_some() || place.ending.is_some() {
            return;
        }
        let is_over = place.pulse.as_ref().is_some_and(|pulse| pulse.verdict().is_some());
        match forming.next(is_over, now) {
            forming::Action::Knock { until } if !place.is_knocking => {
                place.is_knocking = true;
                let delay = self.draws.millis(1, 10);
                self.queue.add(now + delay, Event::Connect { process, goal: Goal::Ring, until });
            }
            forming::Action::Knock { .. } | forming::Action::Wait { .. } => {}
            forming::Action::Done => {
                self.processes[process].forming = None;
                self.see("a ring");
                self.begin_training(process);
            }
            forming::Action::Fail(sentence) => {
                self.see("no ring");
                let rank = self.processes[process].rank;
                self.tell(process, Verdict::Stopped { rank, code: 75, sentence });
            }
        }
    }
}
