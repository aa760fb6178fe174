//! Training, as a digest of every draw and collective: who resumes elsewhere, or differently, ends elsewhere.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kith_group::{
    limits::PATIENCE,
    ring::{
        frame::{Call, HEAD_BYTES, Kind},
        judgment::{Failure, Judge},
        passage::{Fault, Passage},
        plan::RingPlan,
    },
};

use crate::{
    disk::{DiskError, State},
    network::Packet,
    process::{Process, Role},
    saver::Saver,
    world::{CALL, COLLECTIVE, Event, Plan, World},
};

/// Bytes of a rank in the collective of a step: its draw, and whether it is asked to stop.
const ROW_BYTES: usize = 16;

/// Activity of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Reads the newest checkpoint; rank 0 gives it to all.
    Reading,
    Sharing,
    Computing,
    /// Puts the draws of all ranks together.
    Gathering,
    /// Waits until the checkpoint in hand is written.
    Waiting(Next),
    /// Waits for all ranks, after the last step.
    Ending,
    /// Rank 0 writes the report.
    Reporting,
    Over,
}

/// Rank 0's next action, for the time when no checkpoint is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Saves the next one.
    Save,
    /// Saves the last one before it stops.
    SaveAndStop,
    Stop,
    Report,
}

/// Training of one rank.
#[derive(Debug)]
pub(crate) struct Training {
    doing: Doing,
    state: State,
    /// True if it computes for ever.
    pub(crate) is_wedged: bool,
    /// Time from which the sampling servers have not answered.
    asked_at: Option<Duration>,
    /// Only of rank 0.
    pub(crate) saver: Option<Saver>,
    call: Option<Exchange>,
    /// The failure of a broken connection, while a verdict about it may come.
    failure: Option<(Call, Failure)>,
}

/// A collective that is under way.
#[derive(Debug)]
struct Exchange {
    call: Call,
    passage: Passage<'static>,
    buffer: Vec<u8>,
}

/// The plan of a call for one rank; there are few of them.
fn plan_of(kind: Kind, rank: usize, n_ranks: usize) -> &'static RingPlan<'static> {
    static PLANS: Mutex<BTreeMap<(u8, usize, usize), &RingPlan<'static>>> = Mutex::new(BTreeMap::new());
    let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    plans.entry((kind as u8, rank, n_ranks)).or_insert_with(|| {
        Box::leak(Box::new(match kind {
            Kind::Broadcast => RingPlan::broadcast(rank, n_ranks, ROW_BYTES),
            Kind::Barrier => RingPlan::gather(rank, &vec![0; n_ranks]),
            _ => RingPlan::gather(rank, &vec![ROW_BYTES; n_ranks]),
        }))
    })
}

/// The draw of a rank in a step.
fn draw(key: u64, rank: usize, step: u64) -> u64 {
    mix(mix(key, rank as u64 + 1), step + 1)
}

fn mix(one: u64, other: u64) -> u64 {
    let mut z = (one ^ other.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The digest of a run that nothing disturbs.
pub(crate) fn undisturbed(plan: &Plan) -> u64 {
    (0..plan.n_steps)
        .fold(0, |digest, step| (0..plan.n_ranks).fold(digest, |digest, rank| mix(digest, draw(plan.key, rank, step))))
}

fn eight(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

impl World {
    /// The ring is there: training begins.
    pub(crate) fn begin_training(&mut self, process: usize) {
        let state = State::default();
        let training = Training {
            doing: Doing::Reading,
            state,
            is_wedged: false,
            asked_at: None,
            saver: None,
            call: None,
            failure: None,
        };
        self.processes[process].training = Some(training);
        if self.processes[process].rank != 0 {
            return self.begin_call(process, Doing::Sharing, Kind::Broadcast, vec![0; ROW_BYTES]);
        }
        // One process at a time writes into a run folder.
        if self.disk.holder.is_some() {
            self.see("the run folder is taken");
            return self.fail(process, 75, "the run folder belongs to another process");
        }
        self.disk.holder = Some(process);
        self.work(process, 5);
    }

    /// The process computes or writes for a while.
    fn work(&mut self, process: usize, millis: u64) {
        let delay = self.draws.millis(1, millis) * self.slowness(process);
        self.queue.add(self.now + delay, Event::Done(process));
    }

    /// Factor of a process's times.
    pub(crate) fn slowness(&self, process: usize) -> u32 {
        self.network.slow[self.processes[process].host].min(10)
    }

    /// An error of this rank alone.
    fn fail(&mut self, process: usize, code: u8, sentence: &str) {
        let (rank, sentence) = (self.processes[process].rank, sentence.to_owned());
        self.tell(process, kith_group::progress::Verdict::Stopped { rank, code, sentence });
    }

    fn fail_by_disk(&mut self, process: usize, error: DiskError) {
        match error {
            DiskError::Fails => {
                self.see("a disk error");
                self.fail(process, 75, "Input/output error");
            }
            DiskError::Full => {
                self.see("a full disk");
                self.fail(process, 1, "No space left on device");
            }
        }
    }

    fn begin_call(&mut self, process: usize, doing: Doing, kind: Kind, own: Vec<u8>) {
        let (rank, n_ranks) = (self.processes[process].rank, self.plan.n_ranks);
        let place = &mut self.processes[process];
        place.own.n_collectives += 1;
        let plan = plan_of(kind, rank, n_ranks);
        let call = Call { number: place.own.n_collectives, kind, n_bytes: own.len() as u64 };
        let mut buffer = own;
        if kind == Kind::AllGather {
            let row = std::mem::replace(&mut buffer, vec![0; ROW_BYTES * n_ranks]);
            buffer[ROW_BYTES * rank..][..ROW_BYTES].copy_from_slice(&row);
        }
        let Some(training) = &mut place.training else { return };
        training.doing = doing;
        training.call = Some(Exchange { call, passage: Passage::new(call, plan), buffer });
        self.queue.add(self.now + COLLECTIVE, Event::TooLate { process, number: call.number });
        if let Some(failure) = place.broken.clone() {
            return self.wait_for_verdict(process, call, failure);
        }
        self.exchange(process);
    }

    /// Sends what may be sent, takes what has arrived, and ends the call when it is whole.
    fn exchange(&mut self, process: usize) {
        let next = self.processes[process].lines.iter().find(|(_, role)| **role == Role::Next).map(|(line, _)| *line);
        // After a failure, nothing is sent or received any more.
        let Process { training: Some(training), frames: inbox, ending: None, .. } = &mut self.processes[process] else {
            return;
        };
        let (Some(exchange), None) = (&mut training.call, &training.failure) else { return };
        let mut frames = Vec::new();
        loop {
            while let Some(send) = exchange.passage.next_send() {
                let piece = exchange.buffer[send.range.clone()][..exchange.passage.n_bytes(send)].to_vec();
                frames.push(Packet::Frame(exchange.passage.head(send, &piece), piece));
                exchange.passage.sent();
            }
            let Some(receive) = exchange.passage.next_receive() else { break };
            let Some((head, piece)) = inbox.pop_front() else { break };
            let checked = exchange.passage.check_head(receive, &head).and_then(|n_bytes| {
                assert_eq!(n_bytes, piece.len(), "the simulated network cuts no frames");
                exchange.passage.arrived(&head, &piece)
            });
            if let Err(fault) = checked {
                let (call, failure) = match fault {
                    Fault::Garbled(why) => (exchange.call, Failure::Garbled(why)),
                    Fault::OutOfStep(theirs) => (exchange.call, Failure::OutOfStep(theirs)),
                };
                return self.judge(process, call, &failure);
            }
            exchange.buffer[receive.range.clone()][..piece.len()].copy_from_slice(&piece);
        }
        let is_whole = !exchange.passage.has_sends() && exchange.passage.next_receive().is_none();
        let buffer = if is_whole { training.call.take().map(|exchange| exchange.buffer) } else { None };
        for frame in frames {
            // A connection that is gone is noticed where it broke.
            if let Some(next) = next {
                self.network.send(next, process, frame, self.now, &mut self.queue);
            }
        }
        if let Some(buffer) = buffer {
            self.called(process, &buffer);
        }
    }

    pub(crate) fn frame(&mut self, process: usize, head: [u8; HEAD_BYTES], piece: Vec<u8>) {
        self.processes[process].frames.push_back((head, piece));
        self.exchange(process);
    }

    /// A collective has ended.
    fn called(&mut self, process: usize, buffer: &[u8]) {
        let (step_millis, n_steps, every) = (self.plan.step_millis, self.plan.n_steps, self.plan.every);
        let rank = self.processes[process].rank;
        let Some(training) = &mut self.processes[process].training else { return };
        match training.doing {
            Doing::Sharing => {
                training.state = State { step: eight(buffer), digest: eight(&buffer[8..]) };
                self.compute_or_end(process, step_millis);
            }
            Doing::Gathering => {
                let rows = buffer.chunks(ROW_BYTES);
                let State { step, digest } = training.state;
                let digest = rows.clone().fold(digest, |digest, row| mix(digest, eight(row)));
                let is_asked = rows.map(|row| eight(&row[8..])).any(|flag| flag > 0);
                training.state = State { step: step + 1, digest };
                self.processes[process].own.step = step + 1;
                if rank == 0
                    && let Err(error) = self.disk.record(step, self.now)
                {
                    return self.fail_by_disk(process, error);
                }
                let is_due = (step + 1) % every == 0 || is_asked;
                match (rank, is_due && step + 1 < n_steps) {
                    (0, true) if is_asked => self.wait_for_saver(process, Next::SaveAndStop),
                    (0, true) => self.wait_for_saver(process, Next::Save),
                    (_, true) if is_asked => self.stop(process),
                    _ => self.compute_or_end(process, step_millis),
                }
            }
            Doing::Ending => {
                if rank == 0 {
                    self.wait_for_saver(process, Next::Report);
                } else {
                    self.end_well(process);
                }
            }
            other => unreachable!("{other:?} is no call"),
        }
    }

    fn wait_for_saver(&mut self, process: usize, next: Next) {
        if let Some(training) = &mut self.processes[process].training {
            training.doing = Doing::Waiting(next);
        }
        self.waited_for(process);
    }

    /// Goes on, if no checkpoint is being written and this process waited for that.
    pub(crate) fn waited_for(&mut self, process: usize) {
        let Process { training: Some(training), ending: None, .. } = &mut self.processes[process] else { return };
        let Doing::Waiting(next) = training.doing else { return };
        match training.saver.as_ref().map(|saver| saver.ended) {
            Some(None) => return,
            Some(Some(Err(error))) => return self.fail_by_disk(process, error),
            _ => training.saver = None,
        }
        let state = training.state;
        match next {
            Next::Save => {
                self.compute_or_end(process, self.plan.step_millis);
                self.begin_saving(process, state);
            }
            Next::SaveAndStop => {
                training.doing = Doing::Waiting(Next::Stop);
                self.begin_saving(process, state);
            }
            Next::Stop => self.stop(process),
            Next::Report => {
                training.doing = Doing::Reporting;
                self.work(process, 20);
            }
        }
    }

    fn compute_or_end(&mut self, process: usize, step_millis: u64) {
        let n_steps = self.plan.n_steps;
        let Some(training) = &mut self.processes[process].training else { return };
        if training.state.step == n_steps {
            self.begin_call(process, Doing::Ending, Kind::Barrier, Vec::new());
        } else {
            training.doing = Doing::Computing;
            self.work(process, step_millis);
        }
    }

    /// All ranks end after a request to stop.
    fn stop(&mut self, process: usize) {
        self.see("stopped in time");
        self.over_and_leave(process, 75);
    }

    fn end_well(&mut self, process: usize) {
        self.over_and_leave(process, 0);
    }

    fn over_and_leave(&mut self, process: usize, code: u8) {
        if let Some(training) = &mut self.processes[process].training {
            training.doing = Doing::Over;
        }
        self.leave(process, code);
    }

    /// The process has computed, or written.
    pub(crate) fn done(&mut self, process: usize) {
        if self.processes[process].ending.is_some() {
            return;
        }
        let (key, n_ranks) = (self.plan.key, self.plan.n_ranks);
        let place = &mut self.processes[process];
        let (rank, is_asked) = (place.rank, place.is_asked);
        let Some(training) = &mut place.training else { return };
        if training.is_wedged {
            return;
        }
        let state = training.state;
        match training.doing {
            Doing::Reading => {
                let mut passed_over = 0;
                let resumed = self.disk.resume(&mut passed_over);
                if passed_over > 0 {
                    self.see("passed over a checkpoint");
                }
                let Some(state) = resumed else {
                    self.see("no checkpoint can be used");
                    return self.fail(process, 1, "no checkpoint can be used");
                };
                self.resumed(state);
                let bytes = [state.step.to_le_bytes(), state.digest.to_le_bytes()].concat();
                self.begin_call(process, Doing::Sharing, Kind::Broadcast, bytes);
            }
            Doing::Computing if self.now < self.servers_away_until[rank] => self.wait_for_servers(process),
            Doing::Computing => {
                training.asked_at = None;
                debug_assert!(rank < n_ranks);
                let row = [draw(key, rank, state.step).to_le_bytes(), u64::from(is_asked).to_le_bytes()].concat();
                self.begin_call(process, Doing::Gathering, Kind::AllGather, row);
            }
            Doing::Reporting => match self.disk.report(state.digest, self.now) {
                Ok(()) => self.end_well(process),
                Err(error) => self.fail_by_disk(process, error),
            },
            other => unreachable!("{other:?} takes no time"),
        }
    }

    /// The next mini-batch does not come: calls are repeated until they take too long.
    fn wait_for_servers(&mut self, process: usize) {
        let Process { training: Some(training), rank, .. } = &mut self.processes[process] else { return };
        let give_up = *training.asked_at.get_or_insert(self.now) + CALL;
        let answered = self.servers_away_until[*rank];
        if self.now >= give_up {
            self.see("servers did not answer");
            return self.fail(process, 75, "a sampling server did not answer");
        }
        self.see("waited for servers");
        let pause = self.draws.millis(1, 500);
        self.queue.add((answered + pause).min(give_up), Event::Done(process));
    }

    /// No checkpoint that was said to be saved is lost.
    fn resumed(&mut self, state: State) {
        let acknowledged = self.disk.acknowledged;
        self.note(|| format!("training goes on from step {}; said to be saved: {acknowledged:?}", state.step));
        self.see(if state.step > 0 { "resumed" } else { "from the beginning" });
        if acknowledged.is_some_and(|step| step > state.step) && !self.disk.has_lied {
            self.violate(format!("the checkpoint of step {acknowledged:?} is lost"));
        }
        if self.disk.records.len() as u64 != state.step {
            self.violate(format!("{} records of {} steps are left", self.disk.records.len(), state.step));
        }
    }

    /// A connection of the ring broke.
    pub(crate) fn line_broke(&mut self, process: usize, role: Role, why: &str) {
        let failure = match role {
            Role::Previous => Failure::Previous(why.to_owned()),
            _ => Failure::Next(why.to_owned()),
        };
        let Process { training, broken, .. } = &mut self.processes[process];
        broken.get_or_insert(failure.clone());
        // One who has nothing to send or to receive does not look.
        let Some(training) = training else { return };
        let Some(exchange) = &training.call else { return };
        let is_needed = match role {
            Role::Previous => exchange.passage.next_receive().is_some(),
            _ => exchange.passage.has_sends(),
        };
        if is_needed && training.failure.is_none() {
            let call = exchange.call;
            self.wait_for_verdict(process, call, failure);
        }
    }

    /// A broken connection is most often the end of a process, and heartbeats tell more about it.
    fn wait_for_verdict(&mut self, process: usize, call: Call, failure: Failure) {
        if let Some(training) = &mut self.processes[process].training {
            training.failure = Some((call, failure));
            self.queue.add(self.now + PATIENCE, Event::Patience(process));
        }
    }

    /// No verdict came about a broken connection.
    pub(crate) fn judge_broken(&mut self, process: usize) {
        let Some(training) = &mut self.processes[process].training else { return };
        if let Some((call, failure)) = training.failure.clone() {
            self.see("judged a broken connection");
            self.judge(process, call, &failure);
        }
    }

    pub(crate) fn too_late(&mut self, process: usize, number: u64) {
        let Some(training) = &self.processes[process].training else { return };
        if let Some(Exchange { call, .. }) = training.call.as_ref().filter(|exchange| exchange.call.number == number) {
            let call = *call;
            self.see("too late");
            self.judge(process, call, &Failure::Deadline);
        }
    }

    fn judge(&mut self, process: usize, call: Call, failure: &Failure) {
        if self.processes[process].ending.is_some() {
            return;
        }
        let place = &self.processes[process];
        let Some(pulse) = &place.pulse else { return };
        let mut entries = pulse.entries().to_vec();
        entries[place.rank] = place.own;
        let judge = Judge { rank: place.rank, members: &place.members, entries: &entries, limit: COLLECTIVE };
        let verdict = judge.verdict(call, failure);
        self.tell(process, verdict);
    }
}
