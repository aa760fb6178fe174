//! Mean, standard deviation, and significance tests between runs.

use serde::{Deserialize, Serialize};
use statrs::function::beta::beta_reg;

/// Mean and population standard deviation, as in the paper's tables.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The population standard deviation.
    pub std: f64,
    /// Number of values.
    pub n: usize,
}

impl Spread {
    /// Spread of these values; NaN if empty.
    pub fn of(values: &[f64]) -> Spread {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
        Spread { mean, std: variance.sqrt(), n: values.len() }
    }

    /// Unbiased sample variance.
    fn sample_variance(&self) -> f64 {
        let n = self.n as f64;
        self.std.powi(2) * n / (n - 1.0)
    }
}

/// Two-sided p-value of Student's unpaired t-test, with equal variances. NaN if neither sample has variance.
pub fn pooled_t_test(a: Spread, b: Spread) -> f64 {
    let (n_a, n_b) = (a.n as f64, b.n as f64);
    let freedom = n_a + n_b - 2.0;
    let variance = ((n_a - 1.0) * a.sample_variance() + (n_b - 1.0) * b.sample_variance()) / freedom;
    two_sided((a.mean - b.mean) / (variance * (1.0 / n_a + 1.0 / n_b)).sqrt(), freedom)
}

/// Two-sided p-value of Welch's t-test, with unequal variances.
pub fn welch_t_test(a: Spread, b: Spread) -> f64 {
    let (u, v) = (a.sample_variance() / a.n as f64, b.sample_variance() / b.n as f64);
    let freedom = (u + v).powi(2) / (u.powi(2) / (a.n as f64 - 1.0) + v.powi(2) / (b.n as f64 - 1.0));
    two_sided((a.mean - b.mean) / (u + v).sqrt(), freedom)
}

/// Probability of |t| at least this large.
fn two_sided(t: f64, freedom: f64) -> f64 {
    if !t.is_finite() || !freedom.is_finite() || freedom <= 0.0 {
        // Two different constants are certain; two equal ones, or too few values, say nothing.
        return if t.is_infinite() { 0.0 } else { f64::NAN };
    }
    beta_reg(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(mean: f64, std: f64, n: usize) -> Spread {
        Spread { mean, std, n }
    }

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{found} is not {expected}");
    }

    #[test]
    fn the_spread_is_that_of_the_values_themselves() {
        assert_eq!(Spread::of(&[1.0, 3.0]), spread(2.0, 1.0, 2));
        assert_eq!(Spread::of(&[0.5]), spread(0.5, 0.0, 1));
        assert!(Spread::of(&[]).mean.is_nan());
    }

    /// Expected values: scipy.stats.ttest_ind with equal_var True and False.
    #[test]
    fn tests_are_those_of_scipy() {
        let a = Spread::of(&[84.1, 84.9, 83.6, 85.0, 84.4]);
        let b = Spread::of(&[83.2, 82.9, 84.0, 83.1]);
        near(pooled_t_test(a, b), 0.018_912_701_156_349_705);
        near(welch_t_test(a, b), 0.017_271_161_967_448_493);
        near(pooled_t_test(b, a), pooled_t_test(a, b));
        near(two_sided(2.0, 10.0), 0.073_388_034_770_740_37);
        near(two_sided(12.0, 198.0), 2.749_309_211_067_588e-25);
    }

    #[test]
    fn without_a_spread_only_a_difference_is_certain() {
        assert!(pooled_t_test(spread(1.0, 0.0, 5), spread(1.0, 0.0, 5)).is_nan());
        assert_eq!(pooled_t_test(spread(1.0, 0.0, 5), spread(2.0, 0.0, 5)), 0.0);
        assert!(welch_t_test(spread(1.0, 0.0, 1), spread(2.0, 0.5, 1)).is_nan());
    }
}
