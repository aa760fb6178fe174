//! Metrics that need the logits and labels of all evaluated nodes at once, as scikit-learn defines them.
//!
//! Counts are whole numbers, so the order of nodes changes no bit. Where a metric is defined for two classes only, it is the mean
//! over classes, each against all others; with two classes and one per node, it is that of the second class alone.

use kith_draw::{exp, ln};
use kith_run::measured::Metric;
use rayon::prelude::*;

use crate::data::{input::Labels, matrix::Matrix, ranking::Ranking};

/// Logits and labels of evaluated nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scores {
    n_classes: usize,
    logits: Vec<f32>,
    /// ln Σ exp(logits) of each node, where it has one class.
    log_sums: Vec<f64>,
    /// One byte for each node and class.
    is_true: Vec<bool>,
    are_several: bool,
}

impl Scores {
    /// Adds the nodes at these positions.
    pub(crate) fn add(&mut self, logits: &Matrix, labels: &Labels, positions: &[u32]) {
        self.n_classes = logits.width;
        self.are_several = matches!(labels, Labels::Bits { .. });
        for position in positions.iter().map(|position| *position as usize) {
            self.logits.extend_from_slice(logits.row(position));
            match labels {
                Labels::Classes(classes) => {
                    self.log_sums.push(log_sum(logits.row(position)));
                    self.is_true.extend((0..self.n_classes).map(|class| class == classes[position] as usize));
                }
                Labels::Bits { n_classes, bits } => {
                    self.is_true.extend_from_slice(&bits[position * n_classes..][..*n_classes]);
                }
                Labels::Numbers { .. } => unreachable!("numbers have errors, not scores"),
            }
        }
    }

    /// A metric; 0 if there is nothing to measure.
    pub(crate) fn metric(&self, metric: Metric) -> f64 {
        let of_classes = |of: fn(&Ranking) -> Option<f64>| {
            let classes = if self.n_classes == 2 && !self.are_several { 1..2 } else { 0..self.n_classes };
            mean(classes.into_par_iter().map(|class| of(&self.ranking(class))).collect())
        };
        match metric {
            Metric::RocAuc => of_classes(Ranking::roc_auc),
            Metric::AveragePrecision => of_classes(Ranking::average_precision),
            Metric::BalancedAccuracy => mean(self.counts().iter().map(Counts::recall).collect()),
            Metric::MacroF1 => mean(self.counts().iter().map(Counts::f1).collect()),
            _ => unreachable!("counted without scores, or of links"),
        }
    }

    /// Said, true and right for each class.
    fn counts(&self) -> Vec<Counts> {
        let mut counts = vec![Counts::default(); self.n_classes];
        let nodes =
            self.logits.chunks_exact(self.n_classes.max(1)).zip(self.is_true.chunks_exact(self.n_classes.max(1)));
        for (logits, is_true) in nodes {
            // Of several largest the first.
            let largest = logits
                .iter()
                .enumerate()
                .fold(0, |best, (class, logit)| if *logit > logits[best] { class } else { best });
            for (class, counts) in counts.iter_mut().enumerate() {
                let is_said = if self.are_several { logits[class] > 0.0 } else { class == largest };
                counts.n_said += u64::from(is_said);
                counts.n_true += u64::from(is_true[class]);
                counts.n_right += u64::from(is_said && is_true[class]);
            }
        }
        counts
    }

    /// Nodes with a class above those without it.
    fn ranking(&self, class: usize) -> Ranking {
        let nodes = self.logits.chunks_exact(self.n_classes).zip(self.is_true.chunks_exact(self.n_classes));
        let score = |(node, (logits, is_true)): (usize, (&[f32], &[bool]))| {
            // The logarithm of the probability, where a node has one class.
            (f64::from(logits[class]) - self.log_sums.get(node).copied().unwrap_or(0.0), is_true[class])
        };
        Ranking::new(nodes.enumerate().map(score).collect())
    }
}

/// ln Σ exp(logits).
fn log_sum(logits: &[f32]) -> f64 {
    let top = logits.iter().fold(f64::NEG_INFINITY, |top, logit| top.max(f64::from(*logit)));
    // Below e^-700 there is nothing to add.
    top + ln(logits.iter().map(|logit| exp((f64::from(*logit) - top).clamp(-700.0, 0.0))).sum())
}

/// Mean of the classes that have a value.
fn mean(values: Vec<Option<f64>>) -> f64 {
    let values: Vec<f64> = values.into_iter().flatten().collect();
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    n_said: u64,
    n_true: u64,
    n_right: u64,
}

impl Counts {
    /// `None` for a class that no node has.
    fn recall(&self) -> Option<f64> {
        (self.n_true > 0).then(|| self.n_right as f64 / self.n_true as f64)
    }

    /// `None` for a class that no node has and none is said to have.
    fn f1(&self) -> Option<f64> {
        let n = self.n_said + self.n_true;
        (n > 0).then(|| 2.0 * self.n_right as f64 / n as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(logits: &[f32], width: usize, labels: Labels) -> Scores {
        let positions: Vec<u32> = (0..(logits.len() / width) as u32).collect();
        let mut scores = Scores::default();
        scores.add(&Matrix { values: logits.to_vec(), width }, &labels, &positions);
        scores
    }

    const ALL: [Metric; 4] = [Metric::BalancedAccuracy, Metric::MacroF1, Metric::RocAuc, Metric::AveragePrecision];

    /// Expected numbers: scikit-learn 1.9, with the softmax of the logits as scores.
    #[track_caller]
    fn assert_metrics(scores: &Scores, expected: [f64; 4]) {
        let found = ALL.map(|metric| scores.metric(metric));
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?} {expected:?}");
    }

    const LOGITS: [f32; 18] =
        [2.0, 1.0, 0.5, 0.1, 0.3, 0.2, -1.0, 0.0, 1.0, 0.4, 0.4, 0.4, 3.0, -2.0, 0.0, 0.2, 0.9, 0.8];

    const THREE: [f64; 4] = [2.0 / 3.0, 0.6555555555555556, 0.9166666666666666, 31.0 / 36.0];
    const TWO: [f64; 4] = [0.5, 0.4666666666666667, 0.8125, 0.8041666666666667];
    const SEVERAL: [f64; 4] = [1.0, 0.832010582010582, 0.8472222222222223, 0.8629629629629628];

    #[test]
    fn classes_are_measured_as_by_scikit_learn() {
        let three = scores(&LOGITS, 3, Labels::Classes(vec![0, 1, 2, 1, 0, 2]));
        assert_metrics(&three, THREE);
        let two = scores(&LOGITS[..16], 2, Labels::Classes(vec![0, 1, 1, 1, 0, 1, 0, 0]));
        assert_metrics(&two, TWO);
    }

    #[test]
    fn several_classes_are_measured_as_by_scikit_learn() {
        let bits = [1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 1].map(|bit| bit == 1).to_vec();
        assert_metrics(&scores(&LOGITS, 3, Labels::Bits { n_classes: 3, bits }), SEVERAL);
    }

    #[test]
    fn logits_far_apart_keep_their_order() {
        let far = [0.0, 100.0, -750.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0];
        assert_eq!(scores(&far, 3, Labels::Classes(vec![1, 0, 0])).metric(Metric::RocAuc), 1.0);
    }

    #[test]
    fn a_class_that_nobody_has_is_left_out() {
        let one = scores(&LOGITS[..6], 3, Labels::Classes(vec![0, 0]));
        assert_metrics(&one, [0.5, 1.0 / 3.0, 0.0, 1.0]);
        assert_metrics(&Scores::default(), [0.0; 4]);
    }
}
