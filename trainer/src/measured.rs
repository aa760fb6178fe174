//! How good a model was after an epoch.

use serde::{Deserialize, Serialize};

/// What an epoch is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Mean loss of the valid nodes, edge losses left out.
    pub valid_loss: f64,
    /// Metric of the valid nodes.
    pub valid: f64,
    /// Metric of the test nodes.
    pub test: f64,
}

/// What a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The share of nodes whose largest logit is that of their class.
    Accuracy,
    /// The harmonic mean of precision and recall over all (node, class); a logit above 0 says yes.
    MicroF1,
    /// How often a held-out edge scores higher than a pair that is none.
    Auc,
}

/// Sums over nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) loss: f64,
    pub(crate) n_terms: u64,
    /// Nodes, or (node, class) pairs, that were rightly said to be so.
    pub(crate) n_right: u64,
    /// All that were said, and all that are so; for one class per node both are the number of nodes.
    pub(crate) n_said: u64,
    pub(crate) n_true: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Tally) {
        self.loss += other.loss;
        self.n_terms += other.n_terms;
        self.n_right += other.n_right;
        self.n_said += other.n_said;
        self.n_true += other.n_true;
    }

    pub(crate) fn loss(&self) -> f64 {
        self.loss / self.n_terms as f64
    }

    /// Accuracy where every node has one class: then F1 is that.
    pub(crate) fn metric(&self) -> f64 {
        if self.n_said == 0 { 0.0 } else { (2 * self.n_right) as f64 / (self.n_said + self.n_true) as f64 }
    }
}

impl Measured {
    /// Losses and metrics of the valid and test nodes.
    pub(crate) fn of(valid: Tally, test: Tally) -> Measured {
        Measured { valid_loss: valid.loss(), valid: valid.metric(), test: test.metric() }
    }
}
