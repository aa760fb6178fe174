//! Output of a run: a record of each step, and the report at its end.

use serde::{Deserialize, Serialize};

use crate::{
    clock::Phases,
    measured::{Measured, Metric},
};

/// The run file as it was followed, all defaults said.
pub const RUN_FILE: &str = "run.toml";
/// One line per step.
pub const STEPS: &str = "steps.jsonl";
/// Settings and results of the run.
pub const REPORT: &str = "report.json";

/// The folder of checkpoints: all that resuming needs.
pub const CHECKPOINTS: &str = "checkpoints";

/// One line of `steps.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Weight updates before this one, over the whole run.
    pub step: u64,
    /// Epochs before this one.
    pub epoch: u64,
    /// Total loss: node loss plus weighted edge losses.
    pub loss: f64,
    /// Mean loss of the nodes trained on.
    pub node_loss: f64,
    /// Mean loss of each layer's pairs, before they are weighted.
    pub edge_losses: Vec<f64>,
    /// Nodes whose loss counted.
    pub n_seeds: u64,
    /// Edges that layers looked at, all layers together; each node's edge to itself is not counted.
    pub n_edges: u64,
    /// Digest of the draws of each slice of the step, 16 hexadecimal digits; mini-batches only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<String>,
    /// Measured after the last step of an epoch, where it is time to.
    #[serde(flatten)]
    pub measured: Option<Measured>,
    /// Duration of the step, evaluation included.
    pub micros: u64,
    /// Time of each rank by phase, since the previous exchange of gradients.
    pub phases: Vec<Phases>,
    /// Bytes that each rank sent to others in that time; only several ranks do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent_bytes: Vec<u64>,
    /// Slices of each rank from this step on, in the order of ranks: at the first step of a process, and where slices move. Only where
    /// they may move.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<usize>,
}

impl StepRecord {
    /// A step that has learned nothing yet.
    pub fn new(step: u64, epoch: u64) -> StepRecord {
        StepRecord {
            step,
            epoch,
            loss: 0.0,
            node_loss: 0.0,
            edge_losses: Vec::new(),
            n_seeds: 0,
            n_edges: 0,
            digests: Vec::new(),
            measured: None,
            micros: 0,
            phases: Vec::new(),
            sent_bytes: Vec::new(),
            slices: Vec::new(),
        }
    }
}

/// `report.json`: settings and results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The dataset or generator the store was made from.
    pub dataset: String,
    /// The model, as presets call it.
    pub model: String,
    /// Names all randomness of the run.
    #[serde(rename = "seed")]
    pub run_key: u64,
    /// Its results.
    pub results: Results,
    /// Metric of `valid` and `test`.
    pub metric: Metric,
    /// Numbers that were learned.
    pub n_weights: usize,
    /// Negatives that could not be drawn, over the whole run.
    pub n_negatives_left_out: u64,
    /// Feature vectors of all steps, by source; mini-batches only.
    #[serde(rename = "features", skip_serializing_if = "Option::is_none")]
    pub rows: Option<RowsReport>,
    /// Ranks that trained it.
    pub n_ranks: usize,
    /// Time of each rank by phase, in microseconds.
    pub phases: Vec<Phases>,
    /// Nodes of an evaluation; mini-batches only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluated_nodes: Option<EvaluatedNodes>,
    /// Times that a step waited for the GPU, on average: synchronous copies and the like; mini-batches on a GPU only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_syncs_per_step: Option<f64>,
    /// Names of the ranks at sampling servers, by rank, as lines of the servers' logs have them; only if the graph is on servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<String>,
    /// Identity of the store.
    pub store_digest: String,
    /// CPU instruction set, with the vendor of a CPU that is not Intel's: equal names give equal bits.
    pub instruction_set: &'static str,
    /// `cpu`, or the CUDA device.
    pub device: String,
    /// Version of this program.
    pub kith: &'static str,
    /// Version of libtorch.
    pub libtorch: &'static str,
    /// The run file as it was followed.
    pub run_file: String,
    /// Confusion matrices with the weights of the best epoch; only of nodes with one class each, of at most [`MOST_CONFUSED`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Confusion>,
}

/// Most classes of a confusion matrix.
pub const MOST_CONFUSED: usize = 50;

/// Counts of nodes by true class (rows) and predicted class (columns).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confusion {
    /// Validation nodes.
    pub valid: Vec<Vec<u64>>,
    /// Test nodes.
    pub test: Vec<Vec<u64>>,
}

/// Number of nodes that an evaluation computes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvaluatedNodes {
    /// Nodes of the graph.
    pub graph: u64,
    /// Nodes whose features are read.
    pub features: u64,
    /// Nodes that each layer computes, the first layer first.
    pub layers: Vec<u64>,
}

/// Number of feature vectors, by source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RowsReport {
    /// From files of this machine.
    pub local: u64,
    /// From the cache.
    pub cached: u64,
    /// From sampling servers.
    pub remote: u64,
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Epochs that ran.
    pub epochs: u64,
    /// Weight updates.
    pub steps: u64,
    /// True if early stopping ended it.
    pub stopped_early: bool,
    /// The epoch with the best validation metric, counted from 0; of several, the last.
    pub best_epoch: u64,
    /// Validation metric of that epoch.
    pub valid: f64,
    /// Test metric of that epoch.
    pub test: f64,
    /// Validation metric of the last epoch.
    pub valid_last: f64,
    /// Test metric of the last epoch: what the paper's tables show.
    pub test_last: f64,
    /// Validation loss of the last epoch.
    pub valid_loss_last: f64,
    /// Time spent in steps and evaluations.
    pub seconds: f64,
    /// Of it, time spent in evaluations.
    #[serde(alias = "seconds_measuring")]
    pub seconds_evaluating: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(step: u64, measured: Option<Measured>) -> StepRecord {
        StepRecord {
            loss: 1.5,
            node_loss: 1.0,
            edge_losses: vec![0.25, 0.25],
            n_seeds: 5,
            n_edges: 60,
            measured,
            micros: 7,
            phases: vec![Phases { sample: 1, compute: 2, exchange: 3, update: 4, ..Phases::default() }],
            ..StepRecord::new(step, step)
        }
    }

    #[test]
    fn records_are_lines_that_hold_what_was_measured() {
        let measured = Measured { valid_loss: 0.5, valid: 0.75, test: 0.25 };
        assert_eq!(
            serde_json::to_string(&record(3, Some(measured))).unwrap(),
            "{\"step\":3,\"epoch\":3,\"loss\":1.5,\"node_loss\":1.0,\"edge_losses\":[0.25,0.25],\
             \"n_seeds\":5,\"n_edges\":60,\"valid_loss\":0.5,\"valid\":0.75,\"test\":0.25,\"micros\":7,\
             \"phases\":[{\"sample\":1,\"compute\":2,\"exchange\":3,\"update\":4}]}"
        );
        assert!(!serde_json::to_string(&record(3, None)).unwrap().contains("valid"));
    }
}
