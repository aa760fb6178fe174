//! A subset of all nodes: membership, places of members, and ids by place.

use kith_store::Result;
use rayon::prelude::*;

/// Nodes of a word.
const WORD_LEN: u64 = 64;
/// Words that one thread fills at a time.
const PIECE_LEN: usize = 1 << 10;

/// Members in ascending order of their ids; a member's place is its number in this order.
pub(super) struct Members {
    /// One bit per node.
    words: Vec<u64>,
    /// Members before each word.
    before: Vec<u64>,
    n_members: u64,
}

impl Members {
    /// The nodes below `n_nodes` that a function picks.
    pub(super) fn new(n_nodes: u64, picks: impl Fn(u64) -> Result<bool> + Sync) -> Result<Members> {
        let mut words = vec![0u64; n_nodes.div_ceil(WORD_LEN) as usize];
        words.par_iter_mut().enumerate().with_min_len(PIECE_LEN).try_for_each(|(at, word)| {
            let first = at as u64 * WORD_LEN;
            for node in first..n_nodes.min(first + WORD_LEN) {
                *word |= u64::from(picks(node)?) << (node - first);
            }
            Ok(())
        })?;
        let mut n_members = 0;
        let mut count = |word: &u64| {
            n_members += u64::from(word.count_ones());
            n_members - u64::from(word.count_ones())
        };
        let before = words.iter().map(&mut count).collect();
        Ok(Members { words, before, n_members })
    }

    /// Number of members.
    pub(super) fn len(&self) -> u64 {
        self.n_members
    }

    /// True if a node is a member.
    #[inline]
    pub(super) fn contains(&self, node: u64) -> bool {
        self.words.get((node / WORD_LEN) as usize).is_some_and(|word| word >> (node % WORD_LEN) & 1 == 1)
    }

    /// The place of a member.
    #[inline]
    pub(super) fn place(&self, node: u64) -> Option<u64> {
        let at = (node / WORD_LEN) as usize;
        let (word, bit) = (*self.words.get(at)?, node % WORD_LEN);
        let n_lower = (word & ((1 << bit) - 1)).count_ones();
        (word >> bit & 1 == 1).then(|| self.before[at] + u64::from(n_lower))
    }

    /// Members from a place on, ascending.
    pub(super) fn iter_from(&self, place: u64) -> impl Iterator<Item = u64> {
        let at = self.before.partition_point(|before| *before <= place).saturating_sub(1);
        let n_skipped = place - self.before.get(at).copied().unwrap_or(place);
        let of_word = |(at, word): (u64, &u64)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| u64::from(left.trailing_zeros()))?;
                left &= left - 1;
                Some(at * WORD_LEN + bit)
            })
        };
        (at as u64..).zip(self.words.get(at..).unwrap_or(&[])).flat_map(of_word).skip(n_skipped as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_ids_are_inverse() {
        for n_nodes in [0, 1, 63, 64, 65, 1000] {
            let picks = |node: u64| node.is_multiple_of(3) || (200..300).contains(&node);
            let members = Members::new(n_nodes, |node| Ok(picks(node))).unwrap();
            let expected: Vec<u64> = (0..n_nodes).filter(|node| picks(*node)).collect();
            assert_eq!(members.iter_from(0).collect::<Vec<_>>(), expected);
            assert_eq!(members.len(), expected.len() as u64);
            for (place, id) in (0..).zip(&expected) {
                assert_eq!((members.place(*id), members.iter_from(place).next()), (Some(place), Some(*id)));
            }
            assert!((0..n_nodes + 200).all(|node| members.contains(node) == expected.contains(&node)));
            assert!((0..n_nodes + 200).all(|node| members.place(node).is_some() == expected.contains(&node)));
        }
    }
}
