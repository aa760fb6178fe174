//! Errors of predicted numbers, and metrics of them as scikit-learn defines them.

use kith_run::measured::Metric;

use crate::data::{matrix::Matrix, target_scale::TargetScale};

/// Sums over evaluated nodes, for each of a node's numbers. Errors are in the units of the data; the loss is in those of the
/// model, whose numbers have standard deviation 1.
#[derive(Clone, Debug)]
pub(crate) struct Errors {
    scales: Vec<TargetScale>,
    n_nodes: u64,
    loss: f64,
    sums: Vec<Sums>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    absolute: f64,
    squared: f64,
    /// Mean of the standardized numbers so far, and the sum of their squared distances from it (Welford): 0 if all are the same.
    mean: f64,
    spread: f64,
}

impl Errors {
    /// Of no nodes yet.
    pub(crate) fn new(scales: &[TargetScale]) -> Errors {
        Errors { scales: scales.to_vec(), n_nodes: 0, loss: 0.0, sums: vec![Sums::default(); scales.len()] }
    }

    /// Adds the nodes at these positions, one after the other; `values` are their standardized numbers, `width` each.
    pub(crate) fn add(&mut self, outputs: &Matrix, (width, values): (usize, &[f32]), positions: &[u32]) {
        for position in positions.iter().map(|position| *position as usize) {
            let numbers = &values[position * width..][..width];
            self.n_nodes += 1;
            for (((sums, scale), output), number) in
                self.sums.iter_mut().zip(&self.scales).zip(outputs.row(position)).zip(numbers)
            {
                let error = f64::from(*output) - f64::from(*number);
                self.loss += error * error;
                sums.absolute += (error * scale.std).abs();
                sums.squared += (error * scale.std).powi(2);
                let from_mean = f64::from(*number) - sums.mean;
                sums.mean += from_mean / self.n_nodes as f64;
                sums.spread += from_mean * (f64::from(*number) - sums.mean);
            }
        }
    }

    /// Mean squared error of standardized numbers.
    pub(crate) fn loss(&self) -> f64 {
        self.loss / (self.n_nodes * self.sums.len() as u64) as f64
    }

    /// Mean of a metric over a node's numbers; 0 if there are no nodes.
    pub(crate) fn metric(&self, metric: Metric) -> f64 {
        let n = self.n_nodes as f64;
        let of = |(sums, scale): (&Sums, &TargetScale)| match metric {
            Metric::Mae => sums.absolute / n,
            Metric::Rmse => (sums.squared / n).sqrt(),
            Metric::R2 => {
                let unexplained = sums.squared / scale.std.powi(2);
                // Where all numbers are the same, as scikit-learn does: 1 if they are met, otherwise 0.
                match sums.spread > 0.0 {
                    true => 1.0 - unexplained / sums.spread,
                    false => f64::from(u8::from(unexplained == 0.0)),
                }
            }
            _ => unreachable!("of classes or links"),
        };
        if self.n_nodes == 0 {
            return 0.0;
        }
        self.sums.iter().zip(&self.scales).map(of).sum::<f64>() / self.sums.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected numbers: scikit-learn 1.9 (`mean_absolute_error`, `root_mean_squared_error`, `r2_score`).
    #[test]
    fn numbers_are_measured_as_by_scikit_learn() {
        let scales = [TargetScale { mean: 10.0, std: 2.0 }, TargetScale { mean: -1.0, std: 0.5 }];
        let truth = [12.0f32, -1.0, 8.0, -2.0, 11.0, 0.0, 10.0, -0.5];
        let predicted = [11.0f32, -1.5, 9.0, -2.0, 12.5, 0.5, 10.0, -1.0];
        let standardized = |numbers: &[f32; 8]| -> Vec<f32> {
            (0..).zip(numbers).map(|(k, number)| scales[k % 2].standardized(*number)).collect()
        };
        let outputs = Matrix { values: standardized(&predicted), width: 2 };
        let mut errors = Errors::new(&scales);
        errors.add(&outputs, (2, &standardized(&truth)), &[0, 1]);
        errors.add(&outputs, (2, &standardized(&truth)), &[2, 3]);
        for (metric, expected) in [(Metric::Mae, 0.625), (Metric::Rmse, RMSE), (Metric::R2, R2)] {
            let found = errors.metric(metric);
            assert!((found - expected).abs() < 1e-6, "{metric:?}: {found}, {expected}");
        }
        assert_eq!(Errors::new(&scales).metric(Metric::R2), 0.0);

        let scales = [TargetScale { mean: 0.0, std: 1.0 }];
        for (output, expected) in [(-0.1345, 0.0), (-0.2345, 1.0)] {
            let mut constant = Errors::new(&scales);
            let outputs = Matrix { values: vec![output; 7], width: 1 };
            constant.add(&outputs, (1, &[-0.2345; 7]), &[0, 1, 2, 3, 4, 5, 6]);
            assert_eq!(constant.metric(Metric::R2), expected, "the same number everywhere");
        }
    }

    const RMSE: f64 = 0.731_894_5;
    const R2: f64 = 0.585_714_3;
}
