//! Settings of link prediction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LinkNegatives, LinkRanking};
use crate::choice::{Named, named};

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
    /// source of negatives in the loss. uniform: two nodes of the graph, each with the same probability; in-batch: a node of an edge that the
    /// step predicts (in mini-batch training, the slice) and a node of another
    #[serde(with = "named")]
    #[schemars(with = "Named<LinkNegatives>")]
    pub negatives: LinkNegatives,
    /// true: messages do not travel along the edges that a slice predicts (default: true; mini-batch)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_targets: Option<bool>,
    /// pairs that a held-out edge is ranked against. sampled: the held-out pairs without an edge; exact: all nodes without an edge to one of
    /// its nodes, for each of the two
    #[serde(with = "named")]
    #[schemars(with = "Named<LinkRanking>")]
    pub ranking: LinkRanking,
    /// csv file of held-out pairs, which replace drawn ones: source, destination, part (valid or test), is_edge (1 or 0)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<String>,
    /// SHA-256 that the file of pairs must have; training adds it to the run file of its run
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs_digest: Option<String>,
    /// width of a node's output
    #[schemars(range(min = 1, max = 65_536))]
    pub dim: usize,
}

impl Default for LinksConfig {
    fn default() -> LinksConfig {
        LinksConfig {
            valid: 0.05,
            test: 0.1,
            disjoint_train_ratio: 0.0,
            neg_sample_ratio: 1.0,
            negatives: LinkNegatives::Uniform,
            exclude_targets: None,
            ranking: LinkRanking::Sampled,
            pairs: None,
            pairs_digest: None,
            dim: 64,
        }
    }
}
