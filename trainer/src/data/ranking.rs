//! Metrics of scores that rank what has a property above what has not, as scikit-learn defines them.
//!
//! Counts are whole numbers, so the order of scores changes no bit.

use rayon::prelude::*;

/// Numbers with the property and without it, in groups of equal scores, the highest score first.
pub(crate) struct Ranking(Vec<(u64, u64)>);

impl Ranking {
    /// Ranks scores; `true` for those with the property.
    pub(crate) fn new(mut scored: Vec<(f64, bool)>) -> Ranking {
        scored.par_sort_unstable_by(|(a, _), (b, _)| b.total_cmp(a));
        let count = |group: &[(f64, bool)]| {
            let n_with = group.iter().filter(|(_, has)| *has).count() as u64;
            (n_with, group.len() as u64 - n_with)
        };
        Ranking(scored.chunk_by(|(a, _), (b, _)| a == b).map(count).collect())
    }

    /// Share of (one with the property, one without it) in which the first scores higher; equals count half. `None` without such pairs.
    pub(crate) fn roc_auc(&self) -> Option<f64> {
        let (mut n_with, mut n_without, mut twice) = (0u64, 0u64, 0u128);
        for (with, without) in &self.0 {
            twice += u128::from(*without) * (2 * u128::from(n_with) + u128::from(*with));
            n_with += with;
            n_without += without;
        }
        let n_pairs = u128::from(n_with) * u128::from(n_without);
        (n_pairs > 0).then(|| twice as f64 / (2 * n_pairs) as f64)
    }

    /// Mean precision at those with the property, the highest score first; `None` if there are none.
    pub(crate) fn average_precision(&self) -> Option<f64> {
        let (mut n_with, mut n_all, mut sum) = (0, 0, 0.0);
        for (with, without) in &self.0 {
            n_with += with;
            n_all += with + without;
            sum += *with as f64 * n_with as f64 / n_all as f64;
        }
        (n_with > 0).then(|| sum / n_with as f64)
    }
}
