//! Two processes for one rank. The second may be there because the first is gone and nobody has noticed yet: it is
//! refused only after a new message from the first.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Seats that a second process wants.
#[derive(Debug)]
pub(super) struct Contests {
    by_rank: HashMap<usize, Contest>,
    /// A message that is heard this long after the second came was sent after it came.
    margin: Duration,
    /// A second process that was away for this long has given up.
    memory: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Contest {
    since: Instant,
    last: Instant,
}

impl Contests {
    pub(super) fn new(margin: Duration, memory: Duration) -> Contests {
        Contests { by_rank: HashMap::new(), margin, memory }
    }

    /// True if a second process for this rank must be refused: the first, last heard from at `heard`, is alive.
    pub(super) fn is_refused(&mut self, rank: usize, heard: Instant, now: Instant) -> bool {
        let new = Contest { since: now, last: now };
        let contest = self.by_rank.entry(rank).or_insert(new);
        if now.saturating_duration_since(contest.last) > self.memory {
            *contest = new;
        }
        contest.last = now;
        heard > contest.since + self.margin
    }

    /// The first has gone.
    pub(super) fn forget(&mut self, rank: usize) {
        self.by_rank.remove(&rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_is_refused_once_the_first_is_heard_of_again() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut contests = Contests::new(Duration::from_secs(1), Duration::from_secs(10));
        // The first was heard of a moment ago: it may have been frozen since.
        assert!(!contests.is_refused(1, at(99), at(100)));
        // Messages sent before the second process came prove nothing.
        assert!(!contests.is_refused(1, at(101), at(101)));
        assert!(!contests.is_refused(2, at(103), at(103)), "another seat");
        assert!(contests.is_refused(1, at(102), at(103)));
        // The first is gone: the next contest begins anew.
        contests.forget(1);
        assert!(!contests.is_refused(1, at(103), at(104)));
        // A second that gave up long ago is forgotten, too.
        assert!(!contests.is_refused(1, at(199), at(200)));
        assert!(contests.is_refused(1, at(202), at(203)));
    }
}
