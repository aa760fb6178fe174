//! Rank 0's part of joining: waits for all other ranks, compares their properties, and tells everybody who is where.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::{
    contest::Contests,
    limits::{JoinLimits, LINGER},
    member::{Hello, Member},
    message::{Answer, Message},
    refusal::{Holder, to_second},
    waking::Waking,
};

/// Actions of rank 0 after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The newcomer's connection is that of this rank from now on.
    Seat {
        /// The rank.
        rank: usize,
    },
    /// Answer the newcomer and close its connection.
    SendAway(Answer),
    /// Send a heartbeat; left out while earlier messages to this rank are unsent.
    Beat {
        /// The rank.
        to: usize,
        /// The heartbeat.
        answer: Answer,
    },
    /// Send the last answer to a rank that waits.
    Tell {
        /// The rank.
        to: usize,
        /// The answer.
        answer: Answer,
    },
    /// Close the connection of a rank: it may come again.
    Drop {
        /// The rank.
        rank: usize,
    },
    /// Remember a refusal, for the error about missing ranks.
    Remark(String),
    /// Joining is over.
    End(End),
}

/// End of joining, for rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All ranks are here, and know it.
    Complete {
        /// By rank.
        members: Vec<Member>,
        /// Number of the last heartbeat.
        number: u64,
    },
    /// Some ranks did not come in time.
    NeverCame(String),
    /// Ranks cannot work together; all that came were told.
    Refused(String),
}

/// Rank 0 and the ranks that have come so far.
#[derive(Debug)]
pub struct Host {
    own: Hello,
    /// Name of the group.
    session: String,
    /// Address at which ranks join, for messages.
    place: String,
    limits: JoinLimits,
    /// Ranks that have not come until then are missing.
    deadline: Duration,
    guests: Vec<Option<Guest>>,
    contests: Contests,
    waking: Waking,
    next_beat: Duration,
    /// Number of the last heartbeat.
    number: u64,
    refusing: Option<Refusing>,
}

/// A rank that has come and waits for the others.
#[derive(Debug)]
struct Guest {
    member: Member,
    heard: Duration,
    answered: u64,
}

/// Rank 0 refuses all ranks, late ones too: they would otherwise wait for a process that is gone.
#[derive(Debug)]
struct Refusing {
    sentence: String,
    is_told: Vec<bool>,
    until: Duration,
}

impl Host {
    /// Begins to wait for all ranks of `own`'s group, at a place that messages name. No other group has the name of
    /// this session.
    pub fn new(own: Hello, (session, place): (String, String), limits: JoinLimits, now: Duration) -> Host {
        let n_ranks = own.n_ranks;
        Host {
            own,
            session,
            place,
            limits,
            deadline: now + limits.join,
            guests: (0..n_ranks).map(|_| None).collect(),
            contests: Contests::new(limits.rhythm.deadline),
            waking: Waking::new(limits.rhythm.deadline, now),
            next_beat: now,
            number: 0,
            refusing: None,
        }
    }

    /// Time of the next [`Host::tick`].
    pub fn next_tick(&self) -> Duration {
        match &self.refusing {
            Some(refusing) => refusing.until,
            None => self.next_beat.min(self.deadline),
        }
    }

    /// The process wakes up, before it receives anything. If it was the one that paused, the silence of others proves
    /// nothing.
    pub fn wake(&mut self, now: Duration) {
        if self.waking.was_paused(now) {
            self.guests.iter_mut().flatten().for_each(|guest| guest.heard = now);
        }
    }

    /// A newcomer introduced itself. It gets its rank, or is sent away. Ranks that cannot work together at all are
    /// refused, all of them.
    pub fn arrive(&mut self, hello: &Hello, now: Duration) -> Vec<Action> {
        let rank = hello.member.rank;
        if let Some(refusing) = &mut self.refusing {
            refusing.is_told.get_mut(rank).into_iter().for_each(|is_told| *is_told = true);
            let away = Action::SendAway(Answer::Refused(refusing.sentence.clone()));
            return [vec![away], self.refused()].concat();
        }
        if let Some(sentence) = self.own.objection(hello) {
            return self.refuse(rank, sentence, now);
        }
        let (first, holder) = match &self.guests[rank] {
            _ if rank == 0 => (&self.own.member, Holder::Alive),
            None => {
                self.guests[rank] = Some(Guest { member: hello.member.clone(), heard: now, answered: self.number });
                return [vec![Action::Seat { rank }], self.complete()].concat();
            }
            Some(first) => {
                let is_alive = self.contests.is_refused(rank, (first.answered, self.number + 1), now);
                (&first.member, if is_alive { Holder::Alive } else { Holder::InDoubt })
            }
        };
        let answer = to_second(first, &hello.member, holder);
        let remark = match &answer {
            Answer::Taken(sentence) => Some(Action::Remark(sentence.clone())),
            _ => None,
        };
        [Action::SendAway(answer)].into_iter().chain(remark).collect()
    }

    fn refuse(&mut self, rank: usize, sentence: String, now: Duration) -> Vec<Action> {
        let answer = Answer::Refused(sentence.clone());
        let mut is_told: Vec<bool> = self.guests.iter().map(Option::is_some).collect();
        is_told[0] = true;
        is_told.get_mut(rank).into_iter().for_each(|is_told| *is_told = true);
        self.refusing = Some(Refusing { sentence, is_told, until: self.deadline.min(now + LINGER) });
        [vec![Action::SendAway(answer.clone())], self.tell_all(&answer), self.refused()].concat()
    }

    fn refused(&self) -> Vec<Action> {
        let refusing = self.refusing.iter().filter(|refusing| refusing.is_told.iter().all(|is_told| *is_told));
        refusing.map(|refusing| Action::End(End::Refused(refusing.sentence.clone()))).collect()
    }

    /// A rank that waits answered a heartbeat.
    pub fn receive(&mut self, rank: usize, message: &Message, now: Duration) {
        if let Some(guest) = self.guests.get_mut(rank).and_then(Option::as_mut) {
            guest.heard = now;
            if let Message::Beat { answers, .. } = message {
                guest.answered = *answers;
            }
        }
    }

    /// The connection of a rank that waits ended: it may come again, or another process in its place.
    pub fn closed(&mut self, rank: usize) -> Vec<Action> {
        if self.refusing.is_some() || self.guests[rank].is_none() {
            return Vec::new();
        }
        self.guests[rank] = None;
        self.contests.forget(rank);
        vec![Action::Drop { rank }]
    }

    /// Time passes, and all that has arrived was received. `remarks` are refusals so far.
    pub fn tick(&mut self, remarks: &[String], now: Duration) -> Vec<Action> {
        if let Some(refusing) = &self.refusing {
            let is_over = now >= refusing.until;
            return is_over.then(|| Action::End(End::Refused(refusing.sentence.clone()))).into_iter().collect();
        }
        let mut actions = Vec::new();
        for rank in 1..self.guests.len() {
            let silent = |guest: &Guest| now.saturating_sub(guest.heard) > self.limits.rhythm.deadline;
            if self.guests[rank].as_ref().is_some_and(silent) {
                actions.extend(self.closed(rank));
            }
        }
        if now >= self.deadline {
            let sentence = self.never_came(remarks);
            actions.extend(self.tell_all(&Answer::NeverCame(sentence.clone())));
            actions.push(Action::End(End::NeverCame(sentence)));
        } else if now >= self.next_beat {
            self.next_beat = now + self.limits.rhythm.every;
            self.number += 1;
            let answer = Answer::Wait(self.number);
            actions.extend(self.waiting().map(|to| Action::Beat { to, answer: answer.clone() }));
        }
        actions
    }

    /// Tells all who is where, once all are here.
    fn complete(&self) -> Vec<Action> {
        if self.guests[1..].iter().any(Option::is_none) {
            return Vec::new();
        }
        let guests = self.guests.iter().flatten().map(|guest| guest.member.clone());
        let members: Vec<Member> = std::iter::once(self.own.member.clone()).chain(guests).collect();
        let answer = Answer::Welcome { session: self.session.clone(), members: members.clone() };
        let mut actions = self.tell_all(&answer);
        actions.push(Action::End(End::Complete { members, number: self.number }));
        actions
    }

    fn tell_all(&self, answer: &Answer) -> Vec<Action> {
        self.waiting().map(|to| Action::Tell { to, answer: answer.clone() }).collect()
    }

    /// Ranks that have come and wait.
    fn waiting(&self) -> impl Iterator<Item = usize> {
        (1..self.guests.len()).filter(|rank| self.guests[*rank].is_some())
    }

    fn never_came(&self, remarks: &[String]) -> String {
        let missing: Vec<String> =
            (1..self.guests.len()).filter(|rank| self.guests[*rank].is_none()).map(|rank| rank.to_string()).collect();
        let (ranks, they) = if missing.len() == 1 { ("rank", "it") } else { ("ranks", "them") };
        let mut sentence = format!(
            "{ranks} {} of {} never came to {} within {} s: see what became of {they}",
            missing.join(", "),
            self.own.n_ranks,
            self.place,
            self.limits.join.as_secs_f64()
        );
        if !remarks.is_empty() {
            sentence.push_str(&format!(" ({})", remarks.join("; ")));
        }
        sentence
    }
}
