//! When a run stops before its last epoch, and which epoch was best.
//!
//! The rule is the paper's code's, and is no patience counter: it keeps the last `window` validation losses and metrics,
//! and stops, once the burn-in is over, when the loss *or* the metric has come close to its recent mean.

use std::collections::VecDeque;

use kith_run::config::EarlyStopConfig;

/// The rule and what it remembers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EarlyStop {
    config: EarlyStopConfig,
    losses: VecDeque<f64>,
    metrics: VecDeque<f64>,
}

impl EarlyStop {
    /// Before the first epoch.
    pub(crate) fn new(config: EarlyStopConfig) -> EarlyStop {
        EarlyStop { config, losses: VecDeque::new(), metrics: VecDeque::new() }
    }

    /// In the middle of a run that remembered these, oldest first.
    pub(crate) fn resume(config: EarlyStopConfig, losses: Vec<f64>, metrics: Vec<f64>) -> EarlyStop {
        EarlyStop { config, losses: losses.into(), metrics: metrics.into() }
    }

    /// The losses and metrics it remembers, oldest first.
    pub(crate) fn remembered(&self) -> (Vec<f64>, Vec<f64>) {
        (self.losses.iter().copied().collect(), self.metrics.iter().copied().collect())
    }

    /// Hears the validation loss and metric of an epoch, counted from 0; whether the run stops after it. The means are
    /// those of the epochs before, and epochs up to the burn-in never stop.
    pub(crate) fn hear(&mut self, epoch: u64, loss: f64, metric: f64) -> bool {
        let EarlyStopConfig { burn_in, window, loss_threshold, metric_threshold } = self.config;
        let stops = epoch > burn_in
            && (distance(&self.losses, loss) < loss_threshold || distance(&self.metrics, metric) < metric_threshold);
        for (values, value) in [(&mut self.losses, loss), (&mut self.metrics, metric)] {
            values.push_back(value);
            if values.len() > window {
                values.pop_front();
            }
        }
        stops
    }
}

/// How far a value is from the mean, relative to the mean. Not a number where there is no mean: nothing is below that.
fn distance(values: &VecDeque<f64>, value: f64) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (mean - value).abs() / mean
}

/// The epoch with the best validation metric; of several, the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Best {
    /// The epoch, counted from 0.
    pub(crate) epoch: u64,
    /// Its validation metric.
    pub(crate) valid: f64,
    /// Its test metric.
    pub(crate) test: f64,
}

impl Best {
    /// Whether an epoch with this validation metric is at least as good as the best so far.
    pub(crate) fn is_reached(best: Option<&Best>, valid: f64) -> bool {
        best.is_none_or(|best| valid >= best.valid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: f64 = 0.0;

    fn rule(burn_in: u64, window: usize, loss_threshold: f64, metric_threshold: f64) -> EarlyStop {
        EarlyStop::new(EarlyStopConfig { burn_in, window, loss_threshold, metric_threshold })
    }

    /// The epoch at which a curve of (loss, metric) stops.
    fn stop(mut rule: EarlyStop, curve: impl IntoIterator<Item = (f64, f64)>) -> Option<usize> {
        curve.into_iter().enumerate().position(|(epoch, (loss, metric))| rule.hear(epoch as u64, loss, metric))
    }

    #[test]
    fn a_flat_curve_stops_at_the_second_epoch_after_the_burn_in() {
        for burn_in in [0, 1, 5] {
            let flat = [(1.0, 0.5); 20];
            assert_eq!(stop(rule(burn_in, 3, 0.01, NEVER), flat), Some(burn_in as usize + 1));
        }
    }

    #[test]
    fn a_run_no_longer_than_the_burn_in_and_one_never_stops() {
        let flat = |epochs| vec![(1.0, 0.5); epochs];
        assert_eq!(stop(rule(10, 3, 0.01, 0.01), flat(11)), None);
        assert_eq!(stop(rule(10, 3, 0.01, 0.01), flat(12)), Some(11));
    }

    #[test]
    fn loss_or_metric_is_enough() {
        let falling = |metric: fn(f64) -> f64| (0..20).map(move |t| (20.0 - f64::from(t), metric(f64::from(t))));
        assert_eq!(stop(rule(4, 3, 0.01, 0.01), falling(|_| 0.5)), Some(5));
        assert_eq!(stop(rule(4, 3, 0.01, 0.01), falling(|t| 0.1 * t)), None);
        let flat_loss = (0..20).map(|t| (1.0, 0.1 * f64::from(t)));
        assert_eq!(stop(rule(4, 3, 0.01, 0.01), flat_loss), Some(5));
    }

    #[test]
    fn the_mean_is_of_the_window_before_the_epoch() {
        // Epoch 4 with window 2 looks back on 3.0 and 1.0: mean 2.0, distance |2.0 - 2.1| / 2.0 = 0.05.
        let curve = [(9.0, 0.0), (9.0, 0.0), (3.0, 0.0), (1.0, 0.0), (2.1, 0.0), (2.0, 0.0)];
        assert_eq!(stop(rule(3, 2, 0.0501, NEVER), curve), Some(4));
        assert_eq!(stop(rule(3, 2, 0.0499, NEVER), curve), None);
        // With window 3 the mean is 13/3.
        assert_eq!(stop(rule(3, 3, 0.0501, NEVER), curve), Some(5));
        // A distance must be below its threshold, not at it.
        assert_eq!(stop(rule(0, 1, 0.5, NEVER), [(2.0, 0.0), (3.0, 0.0)]), None);
    }

    #[test]
    fn a_metric_of_zero_has_no_relative_distance() {
        assert_eq!(stop(rule(0, 3, NEVER, 0.5), [(1.0, 0.0); 9]), None);
        assert_eq!(stop(rule(0, 3, NEVER, 0.5), [(f64::NAN, f64::NAN); 9]), None);
    }

    #[test]
    fn what_is_remembered_is_enough_to_go_on() {
        let mut whole = rule(2, 3, 0.01, NEVER);
        let losses: Vec<f64> = (0..9).map(|t| 1.0 / f64::from(t + 1)).collect();
        for (epoch, loss) in losses.iter().enumerate() {
            let (l, m) = whole.remembered();
            let mut resumed = EarlyStop::resume(whole.config.clone(), l, m);
            assert_eq!(resumed.hear(epoch as u64, *loss, 0.0), whole.hear(epoch as u64, *loss, 0.0));
            assert_eq!(resumed, whole);
        }
    }

    #[test]
    fn ties_go_to_the_later_epoch() {
        let best = Best { epoch: 3, valid: 0.8, test: 0.7 };
        assert!(Best::is_reached(None, 0.0));
        assert!(Best::is_reached(Some(&best), 0.8));
        assert!(!Best::is_reached(Some(&best), 0.799));
        assert!(!Best::is_reached(Some(&best), f64::NAN));
    }
}
