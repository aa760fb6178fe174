//! Forecasts the features that a run will fetch from a few of its mini-batches. Draws are named, so these are exactly
//! the mini-batches it will train on.

use std::sync::Arc;

use crate::{
    batch::{BatchConfig, BatchMaker},
    error::Result,
    plan::Plan,
    shards::Shards,
    stock::Stock,
};

/// Source of a feature vector for a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In a shard beside it.
    Local,
    /// In its cache.
    Cached,
    /// At a server.
    Remote,
}

/// The average step of a run; all counts are of all ranks together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Steps it was seen in.
    pub n_steps: u64,
    /// Rows that batches need, each batch's nodes once.
    pub rows: f64,
    /// Of these, rows beside the rank that needs them.
    pub local_rows: f64,
    /// Of these, rows in its cache.
    pub cached_rows: f64,
    /// Of these, rows at servers.
    pub remote_rows: f64,
    /// Nodes that servers expand, all hops together.
    pub remote_frontier: f64,
    /// Neighbors that they draw.
    pub remote_drawn: f64,
    /// The largest batch, in rows.
    pub most_rows: u64,
}

/// Makes the batches of `n_steps` steps, one slice per rank, spread over the first epoch, and says where each of their
/// rows would be found: `find(rank, node)`.
pub fn forecast<S: Shards + ?Sized>(
    shards: Arc<S>,
    plan: Arc<Plan>,
    config: BatchConfig,
    n_steps: u64,
    find: impl Fn(usize, u64) -> Found,
) -> Result<Forecast> {
    let world = plan.config().slices;
    let mut maker =
        BatchMaker::new(shards, Arc::clone(&plan), BatchConfig { has_rows: false, ..config }, Stock::new(1));
    // The last step of an epoch may be a short one.
    let n_whole = (plan.seeds().len() / plan.config().seeds_per_step).max(1) as u64;
    let n_steps = n_steps.clamp(1, n_whole);
    let mut sum = Forecast { n_steps, ..Forecast::default() };
    for nth in 0..n_steps {
        let step = plan.step(nth * n_whole / n_steps);
        for rank in 0..world {
            let batch = maker.make_slice(&step, rank)?;
            sum.most_rows = sum.most_rows.max(batch.nodes.len() as u64);
            sum.rows += batch.nodes.len() as f64;
            for block in &batch.blocks {
                for (position, bounds) in block.indptr().windows(2).enumerate() {
                    if find(rank, block.id(position)) != Found::Local {
                        sum.remote_frontier += 1.0;
                        // Every destination has a loop of its own, which nobody drew.
                        sum.remote_drawn += (bounds[1] - bounds[0]) as f64 - 1.0;
                    }
                }
            }
            for node in batch.nodes.iter() {
                match find(rank, *node) {
                    Found::Local => sum.local_rows += 1.0,
                    Found::Cached => sum.cached_rows += 1.0,
                    Found::Remote => sum.remote_rows += 1.0,
                }
            }
        }
    }
    let per_step = |total: f64| total / n_steps as f64;
    Ok(Forecast {
        rows: per_step(sum.rows),
        local_rows: per_step(sum.local_rows),
        cached_rows: per_step(sum.cached_rows),
        remote_rows: per_step(sum.remote_rows),
        remote_frontier: per_step(sum.remote_frontier),
        remote_drawn: per_step(sum.remote_drawn),
        ..sum
    })
}
