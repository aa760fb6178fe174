//! Private memory of full-batch training, before the graph is loaded.

use kith_run::config::{Mode, RunConfig};
use kith_store::{FeatureLayout, memory::private_bytes};

use super::{input::edge_data_of, opened::Opened};
use crate::error::TrainError;

/// Bytes of an edge, by destination and by source, and of a node's bounds in both.
const EDGE_BYTES: u64 = 4 * 4;
const NODE_BYTES: u64 = 2 * 8;

/// Bytes of a node's label and of its places in the split.
const LABEL_BYTES: u64 = 12;

/// Refuses a full-batch run that needs more private memory than `limit`. `on_gpu`: activations are in a GPU's memory.
pub fn check(opened: &Opened, config: &RunConfig, limit: Option<u64>, on_gpu: bool) -> Result<(), TrainError> {
    let (Some(limit), Mode::FullBatch) = (limit, config.train.mode) else { return Ok(()) };
    let needed = private_bytes().unwrap_or(0) + bytes(opened, config, on_gpu)?;
    match needed > limit {
        true => Err(TrainError::Memory {
            limit,
            needed,
            what: "full-batch training",
            remedy: "set train.mode = \"mini-batch\", or raise --memory",
        }),
        false => Ok(()),
    }
}

/// Bytes of features, adjacency, labels and activations.
fn bytes(opened: &Opened, config: &RunConfig, on_gpu: bool) -> Result<u64, TrainError> {
    let (info, size) = (opened.info(), opened.size());
    let n_stored = opened.whole()?.features().map_or(0, |features| features.n_stored());
    let features = match info.rows {
        Some(FeatureLayout::Sparse) => 8 * (n_stored + info.n_nodes),
        _ => 4 * size.dim * info.n_nodes,
    };
    let of_edge = EDGE_BYTES + 4 * edge_data_of(&config.model).width(info.edge_dim) as u64;
    let adjacency = of_edge * (info.n_edges + info.n_nodes) + NODE_BYTES * info.n_nodes;
    let activations = if on_gpu { 0 } else { size.step_bytes(config) };
    Ok(features.saturating_add(adjacency + LABEL_BYTES * info.n_nodes).saturating_add(activations))
}
