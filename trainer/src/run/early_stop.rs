//! Early stopping, and the best epoch.
//!
//! There are two rules. *Patience* counts epochs without a better validation score. The paper's rule keeps the last
//! `window` validation losses and scores and stops, after the burn-in, when the loss *or* the score is close to its
//! recent mean.

use std::collections::VecDeque;

use kith_run::config::{ConvergenceRule, EarlyStopConfig};

/// The rules of a run and their state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EarlyStop {
    config: EarlyStopConfig,
    state: EarlyStopState,
}

/// The state that a checkpoint holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EarlyStopState {
    /// Validation losses in the window, oldest first.
    pub(crate) losses: VecDeque<f64>,
    /// Validation scores in the window.
    pub(crate) metrics: VecDeque<f64>,
    /// Epoch and score of the last improvement, with a patience.
    pub(crate) improved: Option<(u64, f64)>,
}

impl EarlyStop {
    /// Before the first epoch.
    pub(crate) fn new(config: EarlyStopConfig) -> EarlyStop {
        EarlyStop::resume(config, EarlyStopState::default())
    }

    /// In the middle of a run.
    pub(crate) fn resume(config: EarlyStopConfig, state: EarlyStopState) -> EarlyStop {
        EarlyStop { config, state }
    }

    /// Its state.
    pub(crate) fn state(&self) -> &EarlyStopState {
        &self.state
    }

    /// Records the validation loss and score of an epoch, counted from 0; true if the run stops after it.
    pub(crate) fn hear(&mut self, epoch: u64, loss: f64, metric: f64) -> bool {
        let has_converged = self.config.rule().is_some_and(|rule| self.state.converges(&rule, epoch, loss, metric));
        let is_late = self.config.patience.is_some_and(|patience| self.state.waits(epoch, metric) >= patience);
        has_converged || is_late
    }
}

impl EarlyStopState {
    /// The paper's rule. The means are those of the epochs before, and epochs up to the burn-in never stop.
    fn converges(&mut self, rule: &ConvergenceRule, epoch: u64, loss: f64, metric: f64) -> bool {
        let ConvergenceRule { burn_in, window, loss_threshold, metric_threshold } = *rule;
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

    /// Epochs since the last improvement.
    fn waits(&mut self, epoch: u64, metric: f64) -> u64 {
        // A score that is not a number is no improvement.
        if self.improved.is_none_or(|(_, best)| metric > best) {
            self.improved = Some((epoch, metric));
        }
        self.improved.map_or(0, |(improved, _)| epoch.saturating_sub(improved))
    }
}

/// Distance of a value from the mean, relative to the mean. Not a number if there is no mean: nothing is below that.
fn distance(values: &VecDeque<f64>, value: f64) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (mean - value).abs() / mean.abs()
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
    /// True if an epoch with this validation score is at least as good as the best so far.
    pub(crate) fn is_reached(best: Option<f64>, score: f64) -> bool {
        best.is_none_or(|best| score >= best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: f64 = 0.0;

    fn rule(burn_in: u64, window: usize, loss_threshold: f64, metric_threshold: f64) -> EarlyStop {
        EarlyStop::new(EarlyStopConfig {
            patience: None,
            burn_in: Some(burn_in),
            window: Some(window),
            loss_threshold: Some(loss_threshold),
            metric_threshold: Some(metric_threshold),
        })
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
    fn patience_counts_epochs_without_a_better_score() {
        let patience =
            |patience| EarlyStop::new(EarlyStopConfig { patience: Some(patience), ..EarlyStopConfig::default() });
        let scores = |scores: &[f64]| scores.iter().map(|score| (1.0, *score)).collect::<Vec<_>>();
        assert_eq!(stop(patience(2), scores(&[0.5, 0.6, 0.6, 0.59, 0.7])), Some(3), "an equal score is no improvement");
        assert_eq!(stop(patience(3), scores(&[0.5, 0.6, 0.6, 0.59, 0.7, 0.1])), None);
        assert_eq!(stop(patience(1), scores(&[0.5, 0.5])), Some(1));
        assert_eq!(stop(patience(2), scores(&[0.5, f64::NAN, f64::NAN])), Some(2));
    }

    #[test]
    fn resumes_from_its_state() {
        let config = EarlyStopConfig { patience: Some(3), ..rule(2, 3, 0.01, NEVER).config };
        let mut whole = EarlyStop::new(config);
        let losses: Vec<f64> = (0..9).map(|t| 1.0 / f64::from(t + 1)).collect();
        for (epoch, loss) in losses.iter().enumerate() {
            let mut resumed = EarlyStop::resume(whole.config.clone(), whole.state.clone());
            let metric = 0.5 - 0.01 * (epoch as f64 - 2.0).abs();
            assert_eq!(resumed.hear(epoch as u64, *loss, metric), whole.hear(epoch as u64, *loss, metric));
            assert_eq!(resumed, whole);
        }
    }

    #[test]
    fn ties_go_to_the_later_epoch() {
        let best = Best { epoch: 3, valid: 0.8, test: 0.7 };
        assert!(Best::is_reached(None, 0.0));
        assert!(Best::is_reached(Some(best.valid), 0.8));
        assert!(!Best::is_reached(Some(best.valid), 0.799));
        assert!(!Best::is_reached(Some(best.valid), f64::NAN));
    }
}
