//! Heartbeats, beside the collectives: every rank sends its progress to rank 0, and rank 0 sends the progress of all to
//! everybody. A rank that is silent too long or gone is lost; all others learn its number, host and last phase.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::{
    contest::Contests,
    limits::{GRACE, Rhythm},
    message::Message,
    progress::{Entry, Verdict},
    refusal::Holder,
    waking::Waking,
};

/// Actions of a rank after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a heartbeat; left out while earlier messages to this rank are unsent.
    Beat {
        /// The rank.
        to: usize,
        /// The heartbeat.
        message: Message,
    },
    /// Send a message.
    Send {
        /// The rank.
        to: usize,
        /// The message.
        message: Message,
    },
    /// All must stop, this rank too.
    Decide(Verdict),
    /// Call this process if it has not noticed the verdict by itself.
    Call,
}

/// Heartbeats of one rank.
#[derive(Debug)]
pub struct Pulse {
    rank: usize,
    rhythm: Rhythm,
    /// Open connections: rank 0's to all others, another rank's to rank 0.
    lines: Vec<Line>,
    entries: Vec<Entry>,
    verdict: Option<Verdict>,
    /// Time to call this process about the verdict.
    call_at: Option<Duration>,
    /// True if this rank ends because of an error, its own or another's: then it sends no goodbye.
    is_failing: bool,
    next_beat: Duration,
    /// Number of the last heartbeat: that rank 0 sent, or that another rank received.
    number: u64,
    waking: Waking,
    contests: Contests,
}

#[derive(Debug)]
struct Line {
    rank: usize,
    /// Time at which something was last received.
    heard: Duration,
    /// Number of the last heartbeat that the rank answered.
    answered: u64,
}

impl Pulse {
    /// Heartbeats of a complete group: the first is due at once. They are counted on from `number`, the last heartbeat
    /// while ranks joined.
    pub fn new(rank: usize, n_ranks: usize, rhythm: Rhythm, number: u64, now: Duration) -> Pulse {
        let others = if rank == 0 { 1..n_ranks } else { 0..1 };
        Pulse {
            rank,
            rhythm,
            lines: others.map(|rank| Line { rank, heard: now, answered: 0 }).collect(),
            entries: vec![Entry::default(); n_ranks],
            verdict: None,
            call_at: None,
            is_failing: false,
            next_beat: now,
            number,
            waking: Waking::new(rhythm.deadline, now),
            contests: Contests::new(rhythm.deadline),
        }
    }

    /// Progress of all ranks, as last received.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The reason for which all must stop.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Time of the next [`Pulse::tick`].
    pub fn next_tick(&self) -> Duration {
        self.call_at.map_or(self.next_beat, |call_at| call_at.min(self.next_beat))
    }

    /// The process wakes up, before it receives anything. If it was the one that paused, the silence of others proves
    /// nothing.
    pub fn wake(&mut self, now: Duration) {
        if self.waking.was_paused(now) {
            self.lines.iter_mut().for_each(|line| line.heard = now);
        }
    }

    /// A message came from a rank. Messages count in the order in which they were sent, and before the end of their
    /// connection: a rank that has sent its verdict and ended is not lost.
    pub fn receive(&mut self, from: usize, message: Message, now: Duration) -> Vec<Action> {
        if let Some(line) = self.lines.iter_mut().find(|line| line.rank == from) {
            line.heard = now;
            if let Message::Beat { answers, .. } = &message {
                line.answered = *answers;
            }
        }
        match message {
            Message::Beat { own, .. } => self.update(from, own),
            // Rank 0 sends it.
            Message::Board { .. } if self.is_center() => {}
            Message::Board { entries, number } => {
                self.number = number;
                if entries.len() == self.entries.len() {
                    self.entries = entries;
                }
            }
            Message::Verdict(verdict) => return self.decide(verdict, Some(from), now),
            Message::Goodbye(entry) => {
                self.update(from, Entry { has_left: true, ..entry });
                if self.is_center() {
                    return self.beats();
                }
            }
        }
        Vec::new()
    }

    fn update(&mut self, rank: usize, entry: Entry) {
        if let Some(place) = self.entries.get_mut(rank) {
            *place = entry;
        }
    }

    /// A connection ended, after all its messages were received; `why` is its error if it broke.
    pub fn closed(&mut self, rank: usize, why: Option<String>, now: Duration) -> Vec<Action> {
        self.lines.retain(|line| line.rank != rank);
        if self.entries[rank].has_left {
            return Vec::new();
        }
        let why = match why {
            Some(error) => format!("its connection broke ({error})"),
            None => "its process ended without a word".to_owned(),
        };
        self.lose(rank, why, now)
    }

    /// Time passes, and all that has arrived was received. Sends heartbeats that are due, and notices silence.
    pub fn tick(&mut self, own: Entry, now: Duration) -> Vec<Action> {
        self.update(self.rank, own);
        let mut actions = Vec::new();
        if now >= self.next_beat {
            self.next_beat = now + self.rhythm.every;
            actions = self.beats();
        }
        let silent =
            |line: &&Line| now.saturating_sub(line.heard) > self.rhythm.deadline && !self.entries[line.rank].has_left;
        if let Some(rank) = self.lines.iter().find(silent).map(|line| line.rank)
            && self.verdict.is_none()
        {
            let why = format!("nothing was heard of it for {} s", self.rhythm.deadline.as_secs_f64());
            actions.extend(self.lose(rank, why, now));
        }
        if self.call_at.is_some_and(|call_at| now >= call_at) {
            self.call_at = None;
            actions.push(Action::Call);
        }
        actions
    }

    fn beats(&mut self) -> Vec<Action> {
        let message = if self.is_center() {
            self.number += 1;
            Message::Board { entries: self.entries.clone(), number: self.number }
        } else {
            Message::Beat { own: self.entries[self.rank], answers: self.number }
        };
        self.lines.iter().map(|line| Action::Beat { to: line.rank, message: message.clone() }).collect()
    }

    /// A second process wants a rank of the complete group: what became of the first.
    pub fn holder(&mut self, rank: usize, now: Duration) -> Holder {
        if self.verdict.is_some() || self.entries[rank].has_left {
            return Holder::InDoubt;
        }
        let numbers = match self.lines.iter().find(|line| line.rank == rank) {
            Some(line) => (line.answered, self.number.saturating_add(1)),
            None if rank == self.rank => (0, 0),
            None => return Holder::InDoubt,
        };
        if self.contests.is_refused(rank, numbers, now) { Holder::Alive } else { Holder::InDoubt }
    }

    fn lose(&mut self, rank: usize, why: String, now: Duration) -> Vec<Action> {
        self.decide(Verdict::Lost { rank, at: self.entries[rank], why }, None, now)
    }

    /// Takes a verdict, found here or received `from` a rank; the first one stands. Rank 0 sends it to all. Any other
    /// rank sends its own verdict to rank 0, which may only have paused and must not take the end of this rank for a
    /// good one.
    fn decide(&mut self, verdict: Verdict, from: Option<usize>, now: Duration) -> Vec<Action> {
        self.is_failing = true;
        if self.verdict.is_some() {
            return Vec::new();
        }
        self.verdict = Some(verdict.clone());
        self.call_at = Some(now + GRACE);
        let mut actions = vec![Action::Decide(verdict.clone())];
        if self.is_center() || from.is_none() {
            actions.extend(self.to_all(&Message::Verdict(verdict)));
        }
        actions
    }

    /// This process found a reason to stop: everybody learns it from rank 0.
    pub fn tell(&mut self, verdict: Verdict, now: Duration) -> Vec<Action> {
        if self.is_center() {
            return self.decide(verdict, None, now);
        }
        self.is_failing = true;
        self.to_all(&Message::Verdict(verdict))
    }

    /// This rank ends. One that ends because of an error has sent or received a verdict: a goodbye would mean that it
    /// ended well.
    pub fn leave(&mut self, own: Entry) -> Vec<Action> {
        self.update(self.rank, own);
        if self.is_failing { Vec::new() } else { self.to_all(&Message::Goodbye(own)) }
    }

    fn to_all(&self, message: &Message) -> Vec<Action> {
        self.lines.iter().map(|line| Action::Send { to: line.rank, message: message.clone() }).collect()
    }

    fn is_center(&self) -> bool {
        self.rank == 0
    }
}
