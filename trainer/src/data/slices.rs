//! Assignment of a step's slices to ranks. It does not affect results.

use std::ops::Range;

use crate::distributed::world::WorldError;

/// The slices of one rank: slice `s` belongs to rank ⌊s · ranks / slices⌋, so every rank's are side by side.
pub(crate) fn slices_of(rank: usize, n_ranks: usize, n_slices: usize) -> Range<usize> {
    let first = |rank: usize| (rank * n_slices).div_ceil(n_ranks);
    first(rank)..first(rank + 1)
}

/// The most slices that a rank has.
pub(crate) fn most_slices(n_ranks: usize, n_slices: usize) -> usize {
    n_slices.div_ceil(n_ranks)
}

/// Refuses ranks that would have nothing to compute.
pub(crate) fn check(n_ranks: usize, n_slices: usize, is_full: bool) -> Result<(), WorldError> {
    if n_ranks <= n_slices {
        return Ok(());
    }
    let sentence = match is_full {
        true => format!(
            "{n_ranks} ranks cannot share full batches: set train.mode = \"mini-batch\" and train.slices = {n_ranks}"
        ),
        false => format!(
            "{n_ranks} ranks cannot share steps with train.slices = {n_slices}: set it to {n_ranks}, or start fewer ranks"
        ),
    };
    Err(WorldError::Refused(sentence))
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
                    assert!((1..=most_slices(n_ranks, n_slices)).contains(&own.len()), "{own:?}");
                    assert!(own.into_iter().all(|slice| slice * n_ranks / n_slices == rank));
                }
            }
        }
    }

    #[test]
    fn ranks_without_slices_are_refused() {
        assert!(check(4, 4, false).is_ok() && check(1, 1, true).is_ok());
        let refused = |n_slices, is_full| check(3, n_slices, is_full).unwrap_err().to_string();
        assert!(refused(2, false).contains("train.slices = 2: set it to 3, or"));
        assert!(refused(1, true).contains("train.mode = \"mini-batch\""));
    }
}
