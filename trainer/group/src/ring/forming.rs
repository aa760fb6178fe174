//! Connections of the ring: from each rank to the next, and from the previous.

use std::time::Duration;

use crate::{
    limits::{JoinLimits, PAUSE},
    member::Member,
    message::Opening,
};

/// The next action of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect to the next rank, name the group's session, then call [`Forming::connected`] or [`Forming::missed`].
    Knock {
        /// The deadline of the attempt.
        until: Duration,
    },
    /// Wait for the previous rank, or for the time of the next attempt.
    Wait {
        /// That time.
        until: Duration,
    },
    /// Both connections are there.
    Done,
    /// It is too late, or all must stop.
    Fail(String),
}

/// A rank that connects to both of its neighbors.
#[derive(Debug)]
pub struct Forming {
    rank: usize,
    session: String,
    members: Vec<Member>,
    /// Address of the next rank's listener, for messages.
    place: String,
    deadline: Duration,
    again: Duration,
    /// Problem of the last attempt to connect.
    problem: String,
    has_next: bool,
    has_previous: bool,
}

impl Forming {
    /// Neither connection is there yet. `place` is the address of the next rank, for messages.
    pub fn new(
        rank: usize,
        (session, members): (String, Vec<Member>),
        place: String,
        limits: JoinLimits,
        now: Duration,
    ) -> Forming {
        Forming {
            rank,
            session,
            members,
            place,
            deadline: now + limits.ring(),
            again: now,
            problem: "there was no time to try".to_owned(),
            has_next: false,
            has_previous: false,
        }
    }

    /// The next action. `is_over` if all must stop.
    pub fn next(&self, is_over: bool, now: Duration) -> Action {
        if self.has_next && self.has_previous {
            return Action::Done;
        }
        if is_over || now >= self.deadline {
            return Action::Fail(self.missing());
        }
        if self.has_next {
            return Action::Wait { until: self.deadline };
        }
        if now < self.again {
            return Action::Wait { until: self.again };
        }
        Action::Knock { until: self.deadline }
    }

    /// Connected to the next rank.
    pub fn connected(&mut self) {
        self.has_next = true;
    }

    /// An attempt to connect failed.
    pub fn missed(&mut self, problem: String, now: Duration) {
        self.problem = problem;
        self.again = (now + PAUSE).min(self.deadline);
    }

    /// True if this opening is that of the previous rank, whose connection is kept.
    pub fn is_previous(&mut self, opening: &Opening) -> bool {
        let n_ranks = self.members.len();
        let previous = (self.rank + n_ranks - 1) % n_ranks;
        let is_it = matches!(opening, Opening::Ring { session, from } if *session == self.session && *from == previous);
        self.has_previous |= is_it;
        is_it
    }

    fn missing(&self) -> String {
        let n_ranks = self.members.len();
        if self.has_next {
            let previous = self.members[(self.rank + n_ranks - 1) % n_ranks].name();
            return format!("{previous} did not connect to it; ranks need TCP between them");
        }
        let (next, place, problem) = (self.members[(self.rank + 1) % n_ranks].name(), &self.place, &self.problem);
        format!("it cannot connect to {next} at {place}: {problem}; ranks need TCP between them")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Rhythm;

    const AT: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn both_connections_are_needed_and_what_is_missing_is_named() {
        let limits = JoinLimits { join: AT(20), rhythm: Rhythm { every: AT(1), deadline: AT(10) } };
        let member = |rank: usize| Member { rank, host: format!("host-{rank}"), ..Member::default() };
        let members: Vec<Member> = (0..3).map(member).collect();
        let mut forming = Forming::new(1, ("abc".to_owned(), members), "host-2:9".to_owned(), limits, AT(100));
        assert_eq!(forming.next(false, AT(100)), Action::Knock { until: AT(120) });
        forming.missed("refused".to_owned(), AT(101));
        assert_eq!(forming.next(false, AT(101)), Action::Wait { until: AT(101) + PAUSE });
        assert_eq!(forming.next(false, AT(102)), Action::Knock { until: AT(120) });
        let Action::Fail(sentence) = forming.next(true, AT(102)) else { panic!("all must stop") };
        assert_eq!(sentence, "it cannot connect to rank 2 on host-2 at host-2:9: refused; ranks need TCP between them");
        forming.connected();
        assert_eq!(forming.next(false, AT(103)), Action::Wait { until: AT(120) });
        let opening = |session: &str, from| Opening::Ring { session: session.to_owned(), from };
        assert!(!forming.is_previous(&opening("abd", 0)) && !forming.is_previous(&opening("abc", 2)));
        let Action::Fail(sentence) = forming.next(false, AT(120)) else { panic!("it is too late") };
        assert_eq!(sentence, "rank 0 on host-0 did not connect to it; ranks need TCP between them");
        assert!(forming.is_previous(&opening("abc", 0)));
        assert_eq!(forming.next(true, AT(121)), Action::Done, "what is complete is complete");
    }
}
