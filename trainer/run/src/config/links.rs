//! Settings of link prediction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Link prediction: edges are held out and predicted. The score of a pair of nodes is the dot product of their outputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LinksConfig {
    /// fraction of the edges that is held out for validation
    #[schemars(extend("exclusiveMinimum" = 0.0, "exclusiveMaximum" = 1.0))]
    pub valid: f64,
    /// fraction of the edges that is held out for test
    #[schemars(extend("exclusiveMinimum" = 0.0, "exclusiveMaximum" = 1.0))]
    pub test: f64,
    /// fraction of the training edges that the loss predicts and message passing leaves out; 0: message passing has all training edges, and
    /// the loss predicts all of them
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub disjoint_train_ratio: f64,
    /// negative pairs per edge in the loss, drawn in each step
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1000.0))]
    pub neg_sample_ratio: f64,
    /// width of a node's output
    #[schemars(range(min = 1, max = 65_536))]
    pub dim: usize,
}

impl Default for LinksConfig {
    fn default() -> LinksConfig {
        LinksConfig { valid: 0.05, test: 0.1, disjoint_train_ratio: 0.0, neg_sample_ratio: 1.0, dim: 64 }
    }
}
