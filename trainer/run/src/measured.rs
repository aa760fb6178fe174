//! Evaluation results and metrics.

use serde::{Deserialize, Serialize};

use crate::choice::Choice;

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
    /// Mean over classes of the share of the class's nodes that are recognized.
    BalancedAccuracy,
    /// Mean over classes of the harmonic mean of precision and recall.
    MacroF1,
    /// Area under the ROC curve: the share of (node with a class, node without it) in which the first has the higher score; mean over
    /// classes.
    RocAuc,
    /// Mean precision at the nodes with a class, by score; mean over classes.
    AveragePrecision,
    /// Share of the variance of the numbers to predict that the predictions explain; mean over numbers.
    R2,
    /// Mean absolute error.
    Mae,
    /// Root of the mean squared error.
    Rmse,
    /// Area under the ROC curve: the share of (held-out edge, pair without an edge) in which the edge scores higher.
    Auc,
    /// Mean of 1 / rank of each held-out edge among the pairs without an edge.
    Mrr,
    /// Share of held-out edges that score above all pairs without an edge but 9.
    #[serde(rename = "hits@10")]
    HitsAt10,
    /// The same but 49.
    #[serde(rename = "hits@50")]
    HitsAt50,
    /// The same but 99.
    #[serde(rename = "hits@100")]
    HitsAt100,
}

/// Those that a run file may name.
impl Choice for Metric {
    const ALL: &'static [(&'static str, Self)] = &[
        ("accuracy", Self::Accuracy),
        ("balanced-accuracy", Self::BalancedAccuracy),
        ("micro-f1", Self::MicroF1),
        ("macro-f1", Self::MacroF1),
        ("roc-auc", Self::RocAuc),
        ("average-precision", Self::AveragePrecision),
        ("r2", Self::R2),
        ("mae", Self::Mae),
        ("rmse", Self::Rmse),
        ("mrr", Self::Mrr),
        ("hits@10", Self::HitsAt10),
        ("hits@50", Self::HitsAt50),
        ("hits@100", Self::HitsAt100),
    ];
}

impl Metric {
    /// True if it is of link prediction alone.
    pub fn is_of_links(self) -> bool {
        matches!(self, Metric::Auc | Metric::Mrr | Metric::HitsAt10 | Metric::HitsAt50 | Metric::HitsAt100)
    }

    /// True if it is of node regression.
    pub fn is_of_numbers(self) -> bool {
        matches!(self, Metric::R2 | Metric::Mae | Metric::Rmse)
    }

    /// The value as a score: the higher the better.
    pub fn score(self, value: f64) -> f64 {
        if matches!(self, Metric::Mae | Metric::Rmse) { -value } else { value }
    }

    /// The value for users: a share in percent, an error as it is.
    pub fn show(self, value: f64) -> String {
        if self.is_of_numbers() { format!("{value:.4}") } else { format!("{:.2}", 100.0 * value) }
    }

    /// True if it can measure link prediction.
    pub fn measures_links(self) -> bool {
        self.is_of_links() || matches!(self, Metric::RocAuc | Metric::AveragePrecision)
    }

    /// Its name for users.
    pub fn shown(self) -> &'static str {
        if self == Metric::Auc { "ROC AUC of held-out edges" } else { self.name() }
    }
}
