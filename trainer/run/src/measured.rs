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
