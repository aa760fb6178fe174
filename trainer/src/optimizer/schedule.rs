//! The course of the learning rate.

use std::{cell::Cell, f64::consts::PI, rc::Rc};

use kith_run::config::{RunConfig, ScheduleConfig, ScheduleName};

/// The learning rate of each step.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    learning_rate: f64,
    config: Option<ScheduleConfig>,
    steps_per_epoch: u64,
    epochs: u64,
    /// Reductions on a plateau. Engines that compute several runs hold the schedule of each.
    n_reductions: Rc<Cell<u64>>,
}

impl Schedule {
    pub(super) fn new(config: &RunConfig, steps_per_epoch: u64) -> Schedule {
        Schedule {
            learning_rate: config.optimizer.learning_rate,
            config: config.schedule.clone(),
            steps_per_epoch,
            epochs: config.train.epochs,
            n_reductions: Rc::default(),
        }
    }

    /// True if all steps have the same learning rate.
    pub(crate) fn is_constant(&self) -> bool {
        self.config.as_ref().is_none_or(|config| config.name == ScheduleName::Constant && config.warmup == 0)
    }

    /// Sets the number of reductions on a plateau so far.
    pub(crate) fn set_reductions(&self, n_reductions: u64) {
        self.n_reductions.set(n_reductions);
    }

    /// The learning rate of a step, counted from 0. It changes from step to step, but for `step` and `plateau`, where it changes
    /// from epoch to epoch.
    pub(crate) fn rate(&self, step: u64) -> f64 {
        let Some(config) = &self.config else { return self.learning_rate };
        let n_warm = config.warmup * self.steps_per_epoch;
        if step < n_warm {
            return self.learning_rate * (step + 1) as f64 / (n_warm + 1) as f64;
        }
        let least = config.min_factor.unwrap_or(0.0);
        let reduced = |n: u64| config.factor.unwrap_or(0.5).powf(n as f64);
        // From 0 after the warmup to 1 at the end of the last epoch.
        let n_steps = (self.epochs * self.steps_per_epoch).saturating_sub(n_warm).max(1);
        let share = ((step - n_warm) as f64 / n_steps as f64).min(1.0);
        let factor = match config.name {
            ScheduleName::Constant => 1.0,
            ScheduleName::Cosine => least + (1.0 - least) * (1.0 + (PI * share).cos()) / 2.0,
            ScheduleName::Linear => least + (1.0 - least) * (1.0 - share),
            ScheduleName::Step => {
                let epoch = (step - n_warm) / self.steps_per_epoch;
                reduced(epoch / config.every.unwrap_or(1))
            }
            ScheduleName::Plateau => reduced(self.n_reductions.get()).max(least),
        };
        self.learning_rate * factor
    }
}

/// Epochs without a better validation score, for a schedule that reduces the learning rate then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Plateau {
    /// Epoch and score of the last improvement, or epoch of the last reduction and the best score.
    pub(crate) since: Option<(u64, f64)>,
    pub(crate) n_reductions: u64,
}

impl Plateau {
    /// Records the validation score of an epoch, counted from 0.
    pub(crate) fn hear(&mut self, config: &ScheduleConfig, epoch: u64, metric: f64) {
        if config.name != ScheduleName::Plateau || epoch < config.warmup {
            return;
        }
        match self.since {
            // A score that is not a number is no improvement.
            Some((_, best)) if metric > best || best.is_nan() => self.since = Some((epoch, metric)),
            None => self.since = Some((epoch, metric)),
            Some((since, best)) if epoch.saturating_sub(since) >= config.patience.unwrap_or(10) => {
                self.since = Some((epoch, best));
                self.n_reductions += 1;
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(assignments: &[&str]) -> Schedule {
        let mut file = kith_run::run_file::RunFile::parse("", "test").unwrap();
        let common = ["optimizer.learning_rate=0.8", "train.epochs=10"];
        common.iter().chain(assignments).for_each(|assignment| file.set(assignment).unwrap());
        Schedule::new(&file.resolve().unwrap(), 4)
    }

    #[track_caller]
    fn assert_rates(schedule: &Schedule, expected: &[(u64, f64)]) {
        for (step, rate) in expected {
            assert!((schedule.rate(*step) - rate).abs() < 1e-12, "step {step}: {} {rate}", schedule.rate(*step));
        }
    }

    #[test]
    fn rates_follow_their_course() {
        let constant = schedule(&[]);
        assert!(constant.is_constant());
        assert_rates(&constant, &[(0, 0.8), (39, 0.8)]);
        let warm = schedule(&["schedule.warmup=2"]);
        assert!(!warm.is_constant());
        assert_rates(&warm, &[(0, 0.8 / 9.0), (3, 3.2 / 9.0), (7, 6.4 / 9.0), (8, 0.8), (39, 0.8)]);
        let cosine = schedule(&["schedule.name=cosine", "schedule.min_factor=0.1"]);
        assert_rates(&cosine, &[(0, 0.8), (20, 0.44), (40, 0.08), (10, 0.08 + 0.72 * (0.5 + 0.125f64.sqrt()))]);
        let linear = schedule(&["schedule.name=linear", "schedule.warmup=5"]);
        assert_rates(&linear, &[(19, 16.0 / 21.0), (20, 0.8), (25, 0.6), (40, 0.0), (99, 0.0)]);
        let step = schedule(&["schedule.name=step", "schedule.every=3", "schedule.factor=0.1"]);
        assert_rates(&step, &[(0, 0.8), (11, 0.8), (12, 0.08), (23, 0.08), (24, 0.008)]);
    }

    #[test]
    fn a_plateau_reduces_the_rate() {
        let plateau = schedule(&["schedule.name=plateau", "schedule.patience=2", "schedule.min_factor=0.2"]);
        let config = plateau.config.clone().unwrap();
        let mut state = Plateau::default();
        let scores = [0.1, 0.3, 0.3, 0.2, f64::NAN, 0.1, 0.4, 0.1, 0.1, 0.1, 0.1];
        let mut found = Vec::new();
        for (epoch, score) in scores.iter().enumerate() {
            state.hear(&config, epoch as u64, *score);
            plateau.set_reductions(state.n_reductions);
            found.push((plateau.rate(4 * epoch as u64 + 4) * 1000.0).round());
        }
        assert_eq!(found, [800.0, 800.0, 800.0, 400.0, 400.0, 200.0, 200.0, 200.0, 160.0, 160.0, 160.0]);
        assert_eq!(state.n_reductions, 4);
    }
}
