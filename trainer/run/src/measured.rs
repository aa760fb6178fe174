//! Evaluation results and metrics.

use serde::{Deserialize, Serialize};

/// Evaluation results of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Mean loss of the valid nodes, edge losses left out.
    pub valid_loss: f64,
    /// Metric of the valid nodes.
    pub valid: f64,
    /// Metric of the test nodes.
    pub test: f64,
}

/// Metric of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The share of nodes whose largest logit is that of their class.
    Accuracy,
    /// The harmonic mean of precision and recall over all (node, class); a logit above 0 says yes.
    MicroF1,
    /// Area under the ROC curve: the share of (held-out edge, pair without an edge) in which the edge scores higher.
    Auc,
}
