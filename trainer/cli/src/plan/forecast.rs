//! Traffic of an average step, measured on some sampled steps.

use std::sync::Arc;

use kith_client::{BatchConfig, Forecast, Plan, PlanConfig, forecast};
use kith_sampler::{EdgeData, Fanout, Sampling};
use kith_store::{Contents, FeatureLayout, SplitPart};
use serde::Serialize;

use super::{placement::Placement, planned::Planned};
use crate::{
    partition::fanouts::Fanouts,
    progress::{bytes, grouped},
};

/// The steps to sample.
pub(crate) struct ForecastOptions<'a> {
    pub(crate) fanouts: &'a Fanouts,
    pub(crate) seeds_per_step: usize,
    pub(crate) edge_seeds: usize,
    pub(crate) n_steps: u64,
    pub(crate) run_key: u64,
}

/// An average step, over all ranks.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Fetched {
    /// Sampled steps.
    pub(crate) n_steps: u64,
    /// Feature vectors that mini-batches need.
    pub(crate) rows: f64,
    /// Of these, in local shards.
    pub(crate) local_rows: f64,
    /// Of these, from servers without a cache.
    pub(crate) remote_rows: f64,
    /// Of these, from servers with the cache.
    pub(crate) remote_rows_cached: f64,
    /// Bytes of feature vectors and ids from servers, without a cache.
    pub(crate) remote_row_bytes: f64,
    /// The same with the cache.
    pub(crate) remote_row_bytes_cached: f64,
    /// Bytes of frontiers and of their sampled neighbors.
    pub(crate) remote_hop_bytes: f64,
    /// Bytes of an average feature vector.
    pub(crate) row_bytes: f64,
    /// Feature vectors of the largest mini-batch of one rank.
    pub(crate) largest_batch: u64,
}

const COUNT_BYTES: f64 = 4.0;

pub(crate) fn fetched(
    planned: &Planned,
    placement: &Placement<'_>,
    asked: &ForecastOptions<'_>,
) -> anyhow::Result<Fetched> {
    let seeds = Arc::new(planned.shards.seeds(None, SplitPart::Train)?);
    let config = PlanConfig {
        run_key: asked.run_key,
        seeds_per_step: asked.seeds_per_step,
        edge_seeds: asked.edge_seeds,
        slices: placement.world(),
    };
    let plan = Arc::new(Plan::new(config, planned.contents.n_nodes, seeds)?);
    let fanouts = asked.fanouts.0.iter().map(|fanout| fanout.map_or(Fanout::All, Fanout::AtMost)).collect();
    let config = BatchConfig {
        fanouts,
        sampling: Sampling::Uniform,
        edge_data: EdgeData::NONE,
        pairs: None,
        links: None,
        has_rows: false,
        by_hash: false,
    };
    let find = |rank: usize, node: u64| placement.find(rank, node);
    let step = forecast(Arc::clone(&planned.shards), plan, config, asked.n_steps, find)?;
    Ok(Fetched::of(&step, planned))
}

/// Bytes of an average feature vector as it is stored; 0 without features. `stored_per_row`: mean number of stored values, if
/// features are sparse.
pub(crate) fn vector_bytes(contents: &Contents, stored_per_row: f64) -> f64 {
    match contents.features {
        None => 0.0,
        Some(rows) if rows.layout == FeatureLayout::Dense => (rows.dim * rows.dtype.n_bytes()) as f64,
        // Sparse: a length, and a column with each value.
        Some(_) => COUNT_BYTES + stored_per_row * 2.0 * COUNT_BYTES,
    }
}

impl Fetched {
    fn of(step: &Forecast, planned: &Planned) -> Fetched {
        let id_bytes = if u32::try_from(planned.contents.n_nodes).is_ok() { 4.0 } else { 8.0 };
        let row_bytes = vector_bytes(&planned.contents, planned.stored_per_row);
        let remote_rows = step.remote_rows + step.cached_rows;
        Fetched {
            n_steps: step.n_steps,
            rows: step.rows,
            local_rows: step.local_rows,
            remote_rows,
            remote_rows_cached: step.remote_rows,
            remote_row_bytes: remote_rows * (row_bytes + id_bytes),
            remote_row_bytes_cached: step.remote_rows * (row_bytes + id_bytes),
            remote_hop_bytes: step.remote_frontier * (id_bytes + COUNT_BYTES) + step.remote_drawn * id_bytes,
            row_bytes,
            largest_batch: step.most_rows,
        }
    }

    pub(crate) fn readable(&self, cache_percent: f64) -> Vec<(&'static str, String)> {
        let row = |n: f64| grouped(n.round() as u64);
        let size = |n: f64| bytes(n.round() as u64);
        let share = 100.0 * self.remote_rows_cached / self.remote_rows.max(1.0);
        vec![
            (
                "features per step",
                format!("of {} nodes, {} of them in shards of their rank", row(self.rows), row(self.local_rows)),
            ),
            (
                "remote features per step",
                format!("{}, {} with their ids", row(self.remote_rows), size(self.remote_row_bytes)),
            ),
            (
                "with a cache",
                format!(
                    "{} ({share:.0}%), {}, where each host caches {cache_percent}% of all features",
                    row(self.remote_rows_cached),
                    size(self.remote_row_bytes_cached)
                ),
            ),
            ("remote hops per step", size(self.remote_hop_bytes)),
        ]
    }
}
