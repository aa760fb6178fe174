//! Probabilities of classes, computed number by number: libtorch's vectorized functions round the tail of a tensor differently, and chunks
//! end elsewhere than the graph.

use kith_draw::exp;
use rayon::prelude::*;

use crate::data::matrix::Matrix;

/// Numbers that a thread computes at least.
const N_TOGETHER: usize = 1 << 12;

/// Turns logits into probabilities: of each class on its own if a node may have several, otherwise over all classes.
pub(crate) fn to_probabilities(rows: &mut Matrix, is_multi_label: bool) {
    match is_multi_label {
        true => rows
            .values
            .par_iter_mut()
            .with_min_len(N_TOGETHER)
            .for_each(|value| *value = sigmoid(f64::from(*value)) as f32),
        false => rows.values.par_chunks_exact_mut(rows.width.max(1)).with_min_len(64).for_each(softmax),
    }
}

/// Below e^-700 there is nothing left.
pub(crate) fn small_exp(x: f64) -> f64 {
    exp(x.max(-700.0))
}

pub(crate) fn sigmoid(x: f64) -> f64 {
    let small = small_exp(-x.abs());
    if x < 0.0 { small / (1.0 + small) } else { 1.0 / (1.0 + small) }
}

fn softmax(row: &mut [f32]) {
    let top = row.iter().fold(f32::NEG_INFINITY, |top, value| top.max(*value));
    let exps: Vec<f64> = row.iter().map(|value| small_exp(f64::from(*value) - f64::from(top))).collect();
    let sum: f64 = exps.iter().sum();
    row.iter_mut().zip(&exps).for_each(|(value, exp)| *value = (exp / sum) as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_what_they_are_called() {
        let mut row = [1.0, 3.0, -2.0];
        softmax(&mut row);
        let sum = 1f64.exp() + 3f64.exp() + (-2f64).exp();
        for (found, logit) in row.iter().zip([1f64, 3.0, -2.0]) {
            assert!((f64::from(*found) - logit.exp() / sum).abs() < 1e-7, "{row:?}");
        }
        let mut far = [5000.0, -5000.0];
        softmax(&mut far);
        assert_eq!(far, [1.0, 0.0]);
        assert!((sigmoid(0.5) - 1.0 / (1.0 + (-0.5f64).exp())).abs() < 1e-15);
        assert!((sigmoid(-0.5) + sigmoid(0.5) - 1.0).abs() < 1e-15);
        assert!(sigmoid(5000.0) == 1.0 && sigmoid(-5000.0) < 1e-300);
    }
}
