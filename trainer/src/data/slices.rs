//! Assignment of a step's slices to ranks. It does not affect results.

use std::ops::Range;

use kith_run::slices::refusal;

use crate::distributed::world::WorldError;

/// The slices of one rank: slice `s` belongs to rank ⌊s · ranks / slices⌋, so every rank's are side by side.
pub(crate) fn slices_of(rank: usize, n_ranks: usize, n_slices: usize) -> Range<usize> {
    let first = |rank: usize| (rank * n_slices).div_ceil(n_ranks);
    first(rank)..first(rank + 1)
}

/// Refuses ranks that would have nothing to compute.
pub(crate) fn check(n_ranks: usize, n_slices: usize, is_full: bool) -> Result<(), WorldError> {
    refusal(n_ranks, n_slices, is_full).map_or(Ok(()), |sentence| Err(WorldError::Refused(sentence)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slice_has_one_rank_and_every_rank_a_slice() {
        for n_slices in 1..20 {
            for n_ranks in 1..=n_slices {
                let all: Vec<usize> = (0..n_ranks).flat_map(|rank| slices_of(rank, n_ranks, n_slices)).collect();
                assert_eq!(all, (0..n_slices).collect::<Vec<_>>());
                for rank in 0..n_ranks {
                    let own = slices_of(rank, n_ranks, n_slices);
                    assert!((1..=n_slices.div_ceil(n_ranks)).contains(&own.len()), "{own:?}");
                    assert!(own.into_iter().all(|slice| slice * n_ranks / n_slices == rank));
                }
            }
        }
    }
}
