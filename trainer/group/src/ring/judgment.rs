//! Verdicts about calls on the ring that failed.

use std::time::Duration;

use super::frame::Call;
use crate::{
    member::Member,
    progress::{Entry, Verdict, furthest_behind},
};

/// Failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The connection from the previous rank broke.
    Previous(String),
    /// The connection to the next rank broke.
    Next(String),
    /// A frame of the previous rank failed its checks.
    Garbled(&'static str),
    /// The previous rank is in another call.
    OutOfStep(Call),
    /// It takes too long.
    Deadline,
}

impl Failure {
    /// True if this is most often the end of a process, which the heartbeats are about to tell more about.
    pub fn is_broken(&self) -> bool {
        matches!(self, Failure::Previous(_) | Failure::Next(_))
    }
}

/// Knowledge of a rank that judges.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a> {
    /// Its number.
    pub rank: usize,
    /// All ranks.
    pub members: &'a [Member],
    /// Progress of all ranks, its own included.
    pub entries: &'a [Entry],
    /// Time limit of a call.
    pub limit: Duration,
}

impl Judge<'_> {
    /// The verdict about a failure.
    pub fn verdict(&self, call: Call, failure: &Failure) -> Verdict {
        let n_ranks = self.members.len();
        let (previous, next) = ((self.rank + n_ranks - 1) % n_ranks, (self.rank + 1) % n_ranks);
        match failure {
            Failure::Previous(error) => self.broken(previous, error),
            Failure::Next(error) => self.broken(next, error),
            Failure::Garbled(why) => {
                self.lost(previous, format!("what it sent in {} arrived garbled: {why}", call.describe()))
            }
            Failure::OutOfStep(theirs) => Verdict::OutOfStep {
                sentence: format!(
                    "{} is in {} and {} in {}, but all ranks must make the same calls in the same order",
                    self.members[previous].name(),
                    theirs.describe(),
                    self.members[self.rank].name(),
                    call.describe()
                ),
            },
            Failure::Deadline => self.too_late(&call.describe()),
        }
    }

    /// A connection broke, and the heartbeats do not know why.
    ///
    /// A rank that left well is no evidence of a bug: the last bytes it sent can be lost with its connection. It is one
    /// where it left without entering the collective that this rank is in, because all ranks make the same calls.
    fn broken(&self, rank: usize, error: &str) -> Verdict {
        let (left, own) = (self.entries[rank], self.entries[self.rank].n_collectives);
        if left.has_left && left.n_collectives < own {
            let (name, own_name, n) = (self.members[rank].name(), self.members[self.rank].name(), left.n_collectives);
            return Verdict::OutOfStep {
                sentence: format!("{name} left after collective {n} while {own_name} was in collective {own}"),
            };
        }
        self.lost(rank, format!("its connection to rank {} broke in collective {own} ({error})", self.rank))
    }

    /// A rank is lost, as far as this one knows.
    pub fn lost(&self, rank: usize, why: String) -> Verdict {
        Verdict::Lost { rank, at: self.entries[rank], why }
    }

    /// All heartbeats arrive and still nothing moves: the rank that is furthest behind is stuck.
    pub fn too_late(&self, what: &str) -> Verdict {
        let n_ranks = self.members.len();
        let (rank, at) = furthest_behind(self.entries, self.rank, (self.rank + n_ranks - 1) % n_ranks);
        let limit = self.limit.as_secs_f64();
        let own = self.members[self.rank].name();
        let n = at.n_collectives;
        Verdict::Lost {
            rank,
            at,
            why: format!("its heart beats, but it is at collective {n} and {own} has waited {limit} s in {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::frame::Kind;

    const CALL: Call = Call { number: 7, kind: Kind::Barrier, n_bytes: 0 };

    /// The verdict of rank 1 of 3, which is in collective 7 as rank 2 is; rank 0 left after some collectives or is there.
    fn judged(left_after: Option<u64>, failure: &Failure) -> Verdict {
        let member = |rank: usize| Member { rank, host: format!("host-{rank}"), ..Member::default() };
        let members: Vec<Member> = (0..3).map(member).collect();
        let entry = |n_collectives| Entry { n_collectives, ..Entry::default() };
        let first = Entry { has_left: left_after.is_some(), ..entry(left_after.unwrap_or(6)) };
        let limit = Duration::from_secs(30);
        Judge { rank: 1, members: &members, entries: &[first, entry(7), entry(7)], limit }.verdict(CALL, failure)
    }

    fn lost(verdict: Verdict) -> (usize, String) {
        match verdict {
            Verdict::Lost { rank, why, .. } => (rank, why),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_broken_connection_is_a_lost_rank_and_only_a_rank_that_left_early_is_a_bug() {
        let broken = Failure::Previous("reset".to_owned());
        let why = "its connection to rank 1 broke in collective 7 (reset)".to_owned();
        assert_eq!(lost(judged(None, &broken)), (0, why.clone()));
        assert_eq!(lost(judged(Some(7), &broken)), (0, why.clone()), "its last bytes were lost");
        assert_eq!(lost(judged(None, &Failure::Next("reset".to_owned()))), (2, why));
        assert_eq!(
            judged(Some(6), &broken),
            Verdict::OutOfStep {
                sentence: "rank 0 on host-0 left after collective 6 while rank 1 on host-1 was in collective 7"
                    .to_owned()
            }
        );
    }

    #[test]
    fn the_other_failures_are_named_too() {
        let garbled = lost(judged(None, &Failure::Garbled("its length is wrong")));
        let why = "what it sent in collective 7, a barrier arrived garbled: its length is wrong";
        assert_eq!(garbled, (0, why.to_owned()));
        let (rank, why) = lost(judged(None, &Failure::Deadline));
        assert_eq!(rank, 0, "it is furthest behind");
        assert!(why.contains("it is at collective 6 and rank 1 on host-1 has waited 30 s in collective 7"), "{why}");
        let Verdict::OutOfStep { sentence } = judged(None, &Failure::OutOfStep(Call { number: 8, ..CALL })) else {
            panic!("ranks make the same calls");
        };
        assert!(sentence.starts_with("rank 0 on host-0 is in collective 8, a barrier and rank 1"), "{sentence}");
    }
}
