//! Ranks that can share the steps of a run.

/// Reason why some of the ranks would have nothing to compute, if any; `is_full`: in full-batch training.
pub fn refusal(n_ranks: usize, n_slices: usize, is_full: bool) -> Option<String> {
    if n_ranks <= n_slices {
        return None;
    }
    Some(match is_full {
        true => format!(
            "{n_ranks} ranks cannot share full batches: set train.mode = \"mini-batch\" and train.slices = {n_ranks}, or start \
             fewer ranks"
        ),
        false => format!(
            "{n_ranks} ranks cannot share steps with train.slices = {n_slices}: set it to {n_ranks}, or start fewer ranks"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_without_slices_are_refused() {
        assert_eq!((refusal(4, 4, false), refusal(1, 1, true)), (None, None));
        let refused = |n_slices, is_full| refusal(3, n_slices, is_full).unwrap();
        assert!(refused(2, false).ends_with("train.slices = 2: set it to 3, or start fewer ranks"));
        assert!(
            refused(1, true).contains("set train.mode = \"mini-batch\" and train.slices = 3, or start fewer ranks")
        );
    }
}
