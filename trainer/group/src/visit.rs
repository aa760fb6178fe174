//! Every other rank's part of joining: connects to rank 0, and retries until it is answered.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::{
    limits::{ATTEMPT, FAREWELL, JoinLimits, PAUSE},
    member::Member,
    message::{Answer, Message},
    progress::Entry,
    waking::Waking,
};

/// Actions of a rank after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect to rank 0 and introduce this rank, before a deadline; then call [`Visit::connected`] or [`Visit::missed`].
    Knock {
        /// The deadline.
        until: Duration,
    },
    /// Send a heartbeat to rank 0; left out while earlier ones are unsent.
    Beat(Message),
    /// Close the connection to rank 0.
    HangUp,
    /// Joining is over.
    End(End),
}

/// End of joining, for a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All ranks are here.
    Welcome {
        /// Name of the group.
        session: String,
        /// By rank.
        members: Vec<Member>,
        /// Number of the last heartbeat that this rank received.
        number: u64,
    },
    /// This rank may not join: the user must change something.
    Refused(String),
    /// Rank 0 or other ranks did not come: retrying may help.
    NeverCame(String),
}

/// Failure of an attempt to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missed {
    /// Rank 0 is not there yet, or not any more.
    ForNow(String),
    /// Refused by somebody who may belong to an earlier group and go: final only when it lasts.
    Refused(String),
}

/// A rank on its way to rank 0.
#[derive(Debug)]
pub struct Visit {
    n_ranks: usize,
    /// Address of rank 0, for messages.
    place: String,
    limits: JoinLimits,
    deadline: Duration,
    state: State,
    /// Problem of the last attempt.
    last: String,
    /// The refusal of the last attempts, and when they began to be refused.
    refused: Option<(String, Duration)>,
    /// True if rank 0 has accepted this rank before, to wait for the others.
    had_seat: bool,
    /// Number of the last heartbeat that was received.
    number: u64,
}

#[derive(Debug)]
enum State {
    /// Between two attempts.
    Away { again: Duration },
    /// An attempt is under way.
    Knocking,
    /// Rank 0 was told about this rank, and has not answered yet.
    Waiting(Waiting),
}

#[derive(Debug)]
struct Waiting {
    until: Duration,
    heard: Duration,
    next_beat: Duration,
    waking: Waking,
}

impl Visit {
    /// Begins to look for rank 0, at a place that messages name.
    pub fn new(n_ranks: usize, place: String, limits: JoinLimits, now: Duration) -> Visit {
        Visit {
            n_ranks,
            place,
            limits,
            deadline: now + limits.join,
            state: State::Away { again: now },
            last: String::new(),
            refused: None,
            had_seat: false,
            number: 0,
        }
    }

    /// Time of the next [`Visit::tick`].
    pub fn next_tick(&self) -> Duration {
        match &self.state {
            State::Away { again } => *again,
            State::Knocking => self.deadline,
            State::Waiting(waiting) => waiting.next_beat.min(waiting.until),
        }
    }

    /// Connected to rank 0, which was told about this rank.
    pub fn connected(&mut self, now: Duration) {
        // Every rank 0 counts its own heartbeats.
        self.number = 0;
        self.state = State::Waiting(Waiting {
            // Rank 0's patience began before; a little more, for its answer to come.
            until: now + self.limits.join + ATTEMPT,
            heard: now,
            next_beat: now,
            waking: Waking::new(self.limits.rhythm.deadline, now),
        });
    }

    /// The attempt failed.
    pub fn missed(&mut self, missed: Missed, now: Duration) -> Vec<Action> {
        match missed {
            Missed::ForNow(problem) => {
                self.last = problem;
                self.refused = None;
            }
            Missed::Refused(sentence) => {
                let since = self.refused.take().map_or(now, |(_, since)| since);
                if now.saturating_sub(since) > self.limits.rhythm.deadline + FAREWELL {
                    return vec![Action::End(End::Refused(sentence))];
                }
                self.refused = Some((sentence, since));
            }
        }
        self.state = State::Away { again: (now + PAUSE).min(self.deadline.max(now)) };
        Vec::new()
    }

    /// The process wakes up, before it receives anything. If it was the one that paused, rank 0's silence proves nothing.
    pub fn wake(&mut self, now: Duration) {
        if let State::Waiting(waiting) = &mut self.state
            && waiting.waking.was_paused(now)
        {
            waiting.heard = now;
        }
    }

    /// Rank 0 answered.
    pub fn receive(&mut self, answer: Answer, now: Duration) -> Vec<Action> {
        let State::Waiting(waiting) = &mut self.state else { return Vec::new() };
        waiting.heard = now;
        let end = match answer {
            Answer::Wait(number) => {
                (self.had_seat, self.number) = (true, number);
                return Vec::new();
            }
            Answer::Welcome { session, members } => {
                if members.len() != self.n_ranks || members.iter().enumerate().any(|(rank, member)| member.rank != rank)
                {
                    return self.hang_up(Missed::ForNow("rank 0 told nonsense".to_owned()), now);
                }
                return vec![Action::End(End::Welcome { session, members, number: self.number })];
            }
            Answer::Refused(sentence) => End::Refused(sentence),
            Answer::NeverCame(sentence) => End::NeverCame(sentence),
            // This process sat there, and was replaced while it was silent.
            Answer::Taken(sentence) if self.had_seat => End::NeverCame(sentence),
            Answer::Taken(sentence) => End::Refused(sentence),
            Answer::Full(sentence) => return self.hang_up(Missed::Refused(sentence), now),
            Answer::Later(sentence) => return self.hang_up(Missed::ForNow(sentence), now),
        };
        vec![Action::HangUp, Action::End(end)]
    }

    /// The connection to rank 0 ended.
    pub fn closed(&mut self, why: String, now: Duration) -> Vec<Action> {
        if matches!(self.state, State::Waiting(_)) { self.hang_up(Missed::ForNow(why), now) } else { Vec::new() }
    }

    fn hang_up(&mut self, missed: Missed, now: Duration) -> Vec<Action> {
        let mut actions = vec![Action::HangUp];
        actions.extend(self.missed(missed, now));
        actions
    }

    /// Time passes, and all that has arrived was received.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        match &mut self.state {
            State::Knocking => Vec::new(),
            State::Away { again } if now < *again => Vec::new(),
            State::Away { .. } if now >= self.deadline => vec![Action::End(self.out_of_time())],
            State::Away { .. } => {
                self.state = State::Knocking;
                vec![Action::Knock { until: self.deadline.min(now + ATTEMPT) }]
            }
            State::Waiting(waiting) => {
                let silence = self.limits.rhythm.deadline;
                if now.saturating_sub(waiting.heard) > silence {
                    let why = format!("nothing was heard of rank 0 for {} s", silence.as_secs_f64());
                    return self.hang_up(Missed::ForNow(why), now);
                }
                if now >= waiting.until {
                    return self.hang_up(Missed::ForNow("rank 0 did not answer".to_owned()), now);
                }
                if now < waiting.next_beat {
                    return Vec::new();
                }
                waiting.next_beat = now + self.limits.rhythm.every;
                vec![Action::Beat(Message::Beat { own: Entry::default(), answers: self.number })]
            }
        }
    }

    fn out_of_time(&mut self) -> End {
        match self.refused.take() {
            Some((sentence, _)) => End::Refused(sentence),
            None => End::NeverCame(format!(
                "rank 0 did not come: no answer from {} within {} s ({})",
                self.place,
                self.limits.join.as_secs_f64(),
                self.last
            )),
        }
    }
}
