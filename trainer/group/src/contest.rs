//! Two processes for one rank. The second may be there because the first is gone and nobody has noticed yet: it is
//! refused only after the first has answered a heartbeat that was sent since the second came.

use std::{collections::BTreeMap, time::Duration};

/// Ranks that a second process wants.
#[derive(Debug)]
pub struct Contests {
    by_rank: BTreeMap<usize, Contest>,
    /// A second process that was away for this long has given up.
    memory: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Contest {
    /// The first heartbeat whose answer proves that the first process was alive when the second came.
    proof: u64,
    last: Duration,
}

impl Contests {
    /// No contest; a second process that was away for `memory` has given up.
    pub fn new(memory: Duration) -> Contests {
        Contests { by_rank: BTreeMap::new(), memory }
    }

    /// True if a second process for this rank must be refused. `answered` is the last heartbeat that the first
    /// process answered, `next` the next one that will be sent.
    pub fn is_refused(&mut self, rank: usize, (answered, next): (u64, u64), now: Duration) -> bool {
        let new = Contest { proof: next, last: now };
        let contest = self.by_rank.entry(rank).or_insert(new);
        if now.saturating_sub(contest.last) > self.memory {
            *contest = new;
        }
        contest.last = now;
        answered >= contest.proof
    }

    /// The first process is gone.
    pub fn forget(&mut self, rank: usize) {
        self.by_rank.remove(&rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_is_refused_once_the_first_answers_a_later_heartbeat() {
        let at = Duration::from_secs;
        let mut contests = Contests::new(at(10));
        // All heartbeats are answered, but the first may have been frozen since.
        assert!(!contests.is_refused(1, (7, 8), at(100)));
        // Answers to earlier heartbeats prove nothing, however late they come.
        assert!(!contests.is_refused(1, (7, 9), at(105)));
        assert!(!contests.is_refused(2, (8, 9), at(105)), "another rank");
        assert!(contests.is_refused(1, (8, 9), at(106)));
        // The first is gone: the next contest begins anew.
        contests.forget(1);
        assert!(!contests.is_refused(1, (8, 9), at(107)));
        // A second that gave up long ago is forgotten, too.
        assert!(!contests.is_refused(1, (19, 20), at(200)));
        assert!(contests.is_refused(1, (20, 21), at(203)));
    }
}
