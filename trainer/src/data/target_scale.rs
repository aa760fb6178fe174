//! Scales of numbers to predict: models learn numbers of mean 0 and standard deviation 1 over the training nodes.

use kith_client::Labels;
use kith_run::checkpoint::SavedState;

/// Mean and standard deviation of one number over the training nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetScale {
    /// Mean.
    pub mean: f64,
    /// Standard deviation; 1 if all training nodes have the same number.
    pub std: f64,
}

impl TargetScale {
    /// Scales of the numbers of some nodes, `width` each, one node after the other.
    pub fn of(width: usize, nodes: &[&[f32]]) -> Vec<TargetScale> {
        let of_target = |target: usize| {
            let n = nodes.len().max(1) as f64;
            // One after the other, in the order of the nodes: the same sums everywhere.
            let mean = nodes.iter().map(|node| f64::from(node[target])).sum::<f64>() / n;
            let variance = nodes.iter().map(|node| (f64::from(node[target]) - mean).powi(2)).sum::<f64>() / n;
            let std = variance.sqrt();
            TargetScale { mean, std: if std > 0.0 && std.is_finite() { std } else { 1.0 } }
        };
        (0..width).map(of_target).collect()
    }

    /// Scales of a run that has saved a checkpoint.
    pub fn of_state(state: &SavedState) -> Vec<TargetScale> {
        state.target_scales.iter().map(|(mean, std)| TargetScale { mean: mean.0, std: std.0 }).collect()
    }

    /// Number as models learn it.
    pub fn standardized(self, number: f32) -> f32 {
        ((f64::from(number) - self.mean) / self.std) as f32
    }

    /// The number itself.
    pub fn restored(self, output: f32) -> f64 {
        f64::from(output) * self.std + self.mean
    }
}

/// Turns labels that are numbers into those that models learn.
pub(crate) fn standardize(labels: &mut Labels, scales: &[TargetScale]) {
    if let Labels::Numbers { width, values } = labels {
        for node in values.chunks_exact_mut(*width) {
            node.iter_mut().zip(scales).for_each(|(value, scale)| *value = scale.standardized(*value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_get_mean_zero_and_deviation_one() {
        let nodes: [&[f32]; 3] = [&[1.0, 5.0], &[2.0, 5.0], &[6.0, 5.0]];
        let scales = TargetScale::of(2, &nodes);
        assert_eq!(scales[0].mean, 3.0);
        assert!((scales[0].std - (14.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(scales[1], TargetScale { mean: 5.0, std: 1.0 });
        let mut labels = Labels::Numbers { width: 2, values: vec![1.0, 5.0, f32::NAN, 6.0] };
        standardize(&mut labels, &scales);
        let Labels::Numbers { values, .. } = labels else { panic!("they stay numbers") };
        assert!((scales[0].restored(values[0]) - 1.0).abs() < 1e-6);
        assert!(values[1] == 0.0 && values[2].is_nan() && values[3] == 1.0);
    }
}
