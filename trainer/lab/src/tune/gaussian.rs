//! Gaussian process regression with noise.
//!
//! Matérn 5/2 kernel with one length scale per dimension. Length scales, signal and noise variance are the most
//! probable ones under a wide prior. Points lie in the unit cube; values are standardized.

use kith_draw::{exp, ln};
use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

/// Priors: median, and standard deviation of the logarithm.
const LENGTH: (f64, f64) = (0.5, 0.8);
const SIGNAL: (f64, f64) = (1.0, 0.8);
const NOISE: (f64, f64) = (0.1, 1.5);

/// Bounds of the logarithms of parameters.
const LENGTH_BOUNDS: (f64, f64) = (-3.5, 2.1);
const VARIANCE_BOUNDS: (f64, f64) = (-9.0, 3.0);

/// Logarithms of length scales, signal variance and noise variance.
#[derive(Clone, Debug)]
pub(super) struct Parameters(Vec<f64>);

/// A fitted process.
#[derive(Debug)]
pub(super) struct Gaussian {
    points: Vec<Vec<f64>>,
    /// Inverse length scale of each dimension.
    scales: Vec<f64>,
    signal: f64,
    factors: Cholesky<f64, Dyn>,
    /// Weight of each point's kernel.
    counts: DVector<f64>,
    log_posterior: f64,
}

impl Gaussian {
    /// Fits the most probable parameters by coordinate search.
    pub(super) fn fit(points: &[Vec<f64>], values: &[f64]) -> (Gaussian, Parameters) {
        let dim = points[0].len();
        let mut parameters = Parameters([vec![ln(LENGTH.0); dim], vec![ln(SIGNAL.0), ln(NOISE.0)]].concat());
        let mut best = Gaussian::with(points, values, &parameters).expect("noise keeps it positive");
        let mut step = 1.0;
        while step > 0.1 {
            let mut is_better = false;
            for place in 0..dim + 2 {
                for by in [step, -step] {
                    let (low, high) = if place < dim { LENGTH_BOUNDS } else { VARIANCE_BOUNDS };
                    let mut moved = parameters.clone();
                    moved.0[place] = (moved.0[place] + by).clamp(low, high);
                    let found = Gaussian::with(points, values, &moved);
                    if let Some(found) = found.filter(|found| found.log_posterior > best.log_posterior + 1e-6) {
                        (best, parameters, is_better) = (found, moved, true);
                        break;
                    }
                }
            }
            if !is_better {
                step /= 2.0;
            }
        }
        (best, parameters)
    }

    /// Process with given parameters; `None` if rounding makes the covariance not positive definite.
    pub(super) fn with(points: &[Vec<f64>], values: &[f64], parameters: &Parameters) -> Option<Gaussian> {
        let (lengths, variances) = parameters.0.split_at(points[0].len());
        let scales: Vec<f64> = lengths.iter().map(|length| exp(-length)).collect();
        let [signal, noise] = [variances[0], variances[1]].map(exp);
        let covariance = DMatrix::from_fn(points.len(), points.len(), |i, j| {
            signal * kernel(&points[i], &points[j], &scales) + if i == j { noise + 1e-9 } else { 0.0 }
        });
        let factors = Cholesky::new(covariance)?;
        let values = DVector::from_column_slice(values);
        let counts = factors.solve(&values);
        let log_root: f64 = factors.l_dirty().diagonal().iter().map(|value| ln(*value)).sum();
        let far = |value: f64, (guess, spread): (f64, f64)| ((value - ln(guess)) / spread).powi(2) / 2.0;
        let guessed = lengths.iter().map(|length| far(*length, LENGTH)).sum::<f64>()
            + far(variances[0], SIGNAL)
            + far(variances[1], NOISE);
        let log_posterior = -values.dot(&counts) / 2.0 - log_root - guessed;
        Some(Gaussian { points: points.to_vec(), scales, signal, factors, counts, log_posterior })
    }

    /// Mean and standard deviation at a point, without noise.
    pub(super) fn at(&self, point: &[f64]) -> (f64, f64) {
        let near = self.points.iter().map(|other| self.signal * kernel(point, other, &self.scales));
        let near = DVector::from_iterator(self.points.len(), near);
        let known = self.factors.l_dirty().solve_lower_triangular(&near).expect("factors have a diagonal");
        (near.dot(&self.counts), (self.signal - known.norm_squared()).max(1e-12).sqrt())
    }
}

fn kernel(a: &[f64], b: &[f64], scales: &[f64]) -> f64 {
    let squares = a.iter().zip(b).zip(scales).map(|((a, b), scale)| ((a - b) * scale).powi(2));
    let far = (5.0 * squares.sum::<f64>()).sqrt();
    (1.0 + far + far * far / 3.0) * exp(-far.min(700.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_known_and_what_was_not_is_not() {
        let points: Vec<Vec<f64>> = (0..12).map(|place| vec![f64::from(place) / 24.0, 0.5]).collect();
        let values: Vec<f64> = points.iter().map(|point| (point[0] - 0.25) * 6.0).collect();
        let (gaussian, _) = Gaussian::fit(&points, &values);
        let (mean, std) = gaussian.at(&[0.3, 0.5]);
        assert!((mean - 0.3).abs() < 0.1 && std < 0.3, "{mean} ± {std}");
        assert!(gaussian.at(&[1.0, 0.5]).1 > 2.0 * std, "far away is less known");
    }

    /// Two values at every point that differ by chance: only noise explains them.
    #[test]
    fn noise_is_told_from_signal() {
        let points: Vec<Vec<f64>> = (0..20).map(|place| vec![f64::from(place / 2) / 10.0]).collect();
        let noisy: Vec<f64> = (0..20).map(|place| if place % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let (gaussian, parameters) = Gaussian::fit(&points, &noisy);
        assert!(exp(parameters.0[2]) > 0.5, "{parameters:?}");
        assert!(gaussian.at(&[0.42]).0.abs() < 0.2);
    }
}
