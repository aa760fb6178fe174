//! Nodes of cheap evaluations.

use std::sync::Arc;

use kith_client::Seeds;
use kith_draw::{Name, Purpose};

use super::BatchInput;

impl BatchInput {
    /// The same data with a share of the validation and test nodes.
    pub(crate) fn sampled(&self, share: f64, run_key: u64) -> BatchInput {
        let some = |seeds: &Arc<Seeds>| Arc::new(seeds.pick(&positions(seeds, share, run_key)));
        BatchInput { valid: some(&self.valid), test: some(&self.test), ..self.clone() }
    }
}

/// Positions of the drawn nodes, at least one: those with the smallest (draw, id).
fn positions(seeds: &Seeds, share: f64, run_key: u64) -> Vec<usize> {
    let stream = Name { run_key, purpose: Purpose::EvaluationSample, step: 0, layer: 0 }.stream();
    let n = ((seeds.len() as f64 * share).round() as usize).clamp(1, seeds.len());
    let mut order: Vec<(u64, usize)> =
        seeds.ids().iter().enumerate().map(|(place, id)| (stream.draws(*id, 0, 0).double_word(), place)).collect();
    order.select_nth_unstable(n - 1);
    let mut positions: Vec<usize> = order[..n].iter().map(|(_, place)| *place).collect();
    positions.sort_unstable();
    positions
}

#[cfg(test)]
mod tests {
    use kith_sampler::Labels;

    use super::*;

    #[test]
    fn a_share_of_the_nodes_is_drawn_by_the_seed() {
        let ids: Vec<u64> = (0..1000).map(|k| 3 * k).collect();
        let seeds = Seeds::new(ids, Labels::Classes((0..1000).map(|k| k % 7).collect())).unwrap();
        let of = |share, run_key| positions(&seeds, share, run_key);
        assert_eq!(of(0.1, 1).len(), 100);
        assert!(of(0.1, 1).is_sorted() && of(0.1, 1) == of(0.1, 1) && of(0.1, 1) != of(0.1, 2));
        assert_eq!((of(1e-9, 1).len(), of(1.0, 1)), (1, (0..1000).collect()));
        let larger = of(0.2, 1);
        assert!(
            of(0.1, 1).iter().all(|position| larger.contains(position)),
            "larger shares keep what smaller ones have"
        );
        let picked = seeds.pick(&[4, 900]);
        assert_eq!((picked.ids(), picked.labels()), (&[12, 2700][..], &Labels::Classes(vec![4, 900 % 7])));
    }
}
