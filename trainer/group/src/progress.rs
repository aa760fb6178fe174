//! Progress of ranks, and the reason for which all must stop.

use serde::{Deserialize, Serialize};

/// Progress of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its step.
    pub step: u64,
    /// Number of its phase.
    pub phase: u8,
    /// Collectives it has entered.
    pub n_collectives: u64,
    /// True if it has ended well. A rank that ends because of a verdict does not leave.
    pub has_left: bool,
}

/// Reason for which all ranks must stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// A rank is gone or does not answer.
    Lost {
        /// The rank.
        rank: usize,
        /// Its progress when it was last heard from.
        at: Entry,
        /// Sign by which the loss was noticed.
        why: String,
    },
    /// A rank stopped with an error of its own.
    Stopped {
        /// The rank.
        rank: usize,
        /// Its exit code.
        code: u8,
        /// Its error.
        sentence: String,
    },
    /// Ranks did not make the same calls in the same order.
    OutOfStep {
        /// The two ranks and their calls.
        sentence: String,
    },
}

/// The other rank that ranks most probably wait for, and its progress; of several that are as far, the suspect.
pub fn furthest_behind(entries: &[Entry], own: usize, suspect: usize) -> (usize, Entry) {
    let others = entries.iter().copied().enumerate().filter(|(rank, entry)| *rank != own && !entry.has_left);
    others
        .min_by_key(|(rank, entry)| (entry.n_collectives, entry.step, *rank != suspect))
        .unwrap_or((own, entries[own]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_is_furthest_behind_is_suspected() {
        let entry = |n_collectives| Entry { n_collectives, ..Entry::default() };
        let mut entries = vec![entry(3), entry(5), entry(4), entry(4)];
        assert_eq!(furthest_behind(&entries, 1, 2).0, 0);
        entries[0].has_left = true;
        assert_eq!(furthest_behind(&entries, 1, 3).0, 3, "the suspect of two");
        assert_eq!(furthest_behind(&entries, 1, 2).0, 2);
        entries.truncate(2);
        assert_eq!(furthest_behind(&entries, 1, 0), (1, entry(5)), "nobody else is there");
    }
}
