//! Chooses the nodes that have a place in a cache: those that mini-batches need most probably.

use kith_store::NodeRows;

/// Remote nodes with a place in a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice<'a> {
    /// All remote nodes.
    All,
    /// The most probable ones.
    Probable {
        /// Probability of each node.
        inclusion: &'a [f32],
        /// Bits of the least probability that is chosen.
        least: u32,
        /// Number of nodes with exactly this probability that are chosen, those with the lowest ids.
        n_least: u64,
    },
}

/// Bits of a probability: they are ordered as the probabilities are. 0 for nodes that are never needed.
fn bits_of(probability: f32) -> u32 {
    if probability > 0.0 { probability.to_bits() } else { 0 }
}

const HALF: u32 = u16::BITS;

impl<'a> Choice<'a> {
    /// The `n_rows` most probable of the nodes for which `is_elsewhere` is true. Takes no memory per node.
    pub(crate) fn most_probable(inclusion: &'a [f32], n_rows: u64, is_elsewhere: impl Fn(u64) -> bool) -> Choice<'a> {
        let candidates = || (0..).zip(inclusion).filter(|(node, _)| is_elsewhere(*node)).map(|(_, p)| bits_of(*p));
        // The upper half of the bits, then the lower half: each time the highest value at which the limit is reached.
        let mut n_left = n_rows;
        let mut highest = |of: &dyn Fn(u32) -> Option<u16>| {
            let mut counts = vec![0u64; 1 << HALF];
            candidates().filter_map(of).for_each(|half| counts[half as usize] += 1);
            for (half, count) in counts.iter().enumerate().rev() {
                if *count >= n_left {
                    return half as u32;
                }
                n_left -= count;
            }
            0
        };
        let upper = highest(&|bits| Some((bits >> HALF) as u16));
        let lower = highest(&|bits| (bits >> HALF == upper).then_some(bits as u16));
        match upper << HALF | lower {
            // All that are ever needed.
            0 => Choice::Probable { inclusion, least: 1, n_least: u64::MAX },
            least => Choice::Probable { inclusion, least, n_least: n_left },
        }
    }

    /// The chosen nodes, ascending, each with its row.
    pub(crate) fn rows(self, n_nodes: u64, is_elsewhere: impl Fn(u64) -> bool) -> NodeRows {
        match self {
            Choice::All => NodeRows::new(n_nodes, is_elsewhere),
            Choice::Probable { inclusion, least, mut n_least } => NodeRows::new(n_nodes, |node| {
                let bits = inclusion.get(node as usize).map_or(0, |probability| bits_of(*probability));
                if bits < least || !is_elsewhere(node) {
                    return false;
                }
                let is_in = bits > least || n_least > 0;
                if bits == least {
                    n_least = n_least.saturating_sub(1);
                }
                is_in
            }),
        }
    }
}

/// The `n_rows` most probable remote nodes, ascending: those that a cache of `n_rows` feature vectors has.
pub fn most_probable(inclusion: &[f32], n_rows: usize, is_elsewhere: impl Fn(u64) -> bool) -> Vec<u64> {
    let n_nodes = inclusion.len() as u64;
    let rows = Choice::most_probable(inclusion, n_rows as u64, &is_elsewhere).rows(n_nodes, is_elsewhere);
    (0..n_nodes).filter(|node| rows.row_of(*node).is_some()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_most_probable_are_kept() {
        let inclusion = [0.5, 0.0, 0.9, 0.5, 1.0, 0.2];
        let kept = |n_rows| most_probable(&inclusion, n_rows, |node| node != 4);
        assert!(kept(0).is_empty());
        assert_eq!(kept(2), [0, 2], "of equal ones the lower id");
        assert_eq!(kept(9), [0, 2, 3, 5], "what is never needed is not kept");
    }

    proptest! {
        #[test]
        fn they_are_those_of_a_sort(
            inclusion in prop::collection::vec((0u32..6).prop_map(|n| n as f32 * 1e-3), 0..80),
            n_rows in 0usize..90,
        ) {
            let is_elsewhere = |node: u64| !node.is_multiple_of(3);
            let mut sorted: Vec<u64> = (0..inclusion.len() as u64)
                .filter(|node| is_elsewhere(*node) && inclusion[*node as usize] > 0.0)
                .collect();
            sorted.sort_by(|one, other| inclusion[*other as usize].total_cmp(&inclusion[*one as usize]));
            sorted.truncate(n_rows);
            sorted.sort_unstable();
            prop_assert_eq!(most_probable(&inclusion, n_rows, is_elsewhere), sorted);
        }
    }
}
