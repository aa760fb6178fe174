//! Memory of pods, by the forecast of `kith plan`.

use kith_run::config::RunConfig;
use kith_sampler::Fanout;
use kith_store::FeatureLayout;

use crate::{
    graph::Cache,
    partition::fanouts::Fanouts,
    plan::{
        Planned,
        forecast::{ForecastOptions, fetched},
        placement::Placement,
    },
};

/// Bytes of memory of each kind of pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) sampler: u64,
    pub(super) rank: u64,
}

/// Options of a rank that affect its memory.
pub(super) struct Wanted {
    /// Cache of the servers' features.
    pub(super) cache: Cache,
    pub(super) run_key: u64,
    /// Limit of a rank's private memory; `None`: evaluations take half of the free memory, taken as enough for all nodes.
    pub(super) memory: Option<u64>,
    pub(super) n_threads: u64,
}

/// Memory of a server without shards: `--request-memory`, program and threads.
const SAMPLER_FLOOR: u64 = (256 + 64) << 20;
/// Memory of a rank without a graph: program, libtorch, and their allocations.
const RANK_FLOOR: u64 = 1 << 30;
/// Numbers saved for backward per output of a layer, including gradients.
const NUMBERS_PER_OUTPUT: u64 = 6;
const NUMBER_BYTES: u64 = 4;
/// Sampled steps of the forecast.
const N_STEPS: u64 = 8;

pub(super) fn sizes(planned: &Planned, config: &RunConfig, wanted: &Wanted) -> anyhow::Result<Sizes> {
    let n_nodes = planned.contents.n_nodes;
    let n_seeds = planned.sizes.iter().map(|size| size.n_train).sum::<u64>() as usize;
    let mut train = config.train.clone();
    // Assumes one slice per rank.
    train.settle((n_nodes, n_seeds), config.edge_loss.is_some(), train.slices);
    let as_typed = |fanout: &Fanout| match fanout {
        Fanout::All => None,
        Fanout::AtMost(most) => Some(*most),
    };
    let (first, last) = (train.fanouts.iter(), train.fanouts.last());
    let fanouts = first.chain(std::iter::repeat_with(|| last.expect("a run has fanouts"))).map(as_typed);
    let asked = ForecastOptions {
        fanouts: &Fanouts(fanouts.take(config.model.n_layers).collect()),
        seeds_per_step: train.batch_size.unwrap_or(1),
        edge_seeds: train.edge_seeds.unwrap_or(0),
        n_steps: N_STEPS,
        run_key: wanted.run_key,
    };
    // A rank processes one slice after the other.
    let placement = Placement::new(&planned.owner, train.slices, None, 0);
    let step = fetched(planned, &placement, &asked)?;

    let row_bytes = match planned.contents.features {
        // Features in memory are f32, independent of the type on disk.
        Some(rows) if rows.layout == FeatureLayout::Dense => rows.dim * NUMBER_BYTES,
        _ => step.row_bytes as u64,
    };
    let n_classes = planned.contents.labels.as_ref().map_or(1, |labels| labels.n_classes);
    let model = &config.model;
    let widest = model.widest(n_classes as usize) as u64;
    let held = |n_rows: u64| n_rows * (row_bytes + widest * NUMBER_BYTES * NUMBERS_PER_OUTPUT * model.n_layers as u64);
    // All threads prepare mini-batches ahead; one is computed.
    let in_flight = wanted.n_threads.max(4) * step.largest_batch * row_bytes + held(step.largest_batch);
    // Input and output of a layer.
    let evaluation = 2 * n_nodes * model.widest_record(n_classes as usize) as u64 * NUMBER_BYTES;
    // Owners and inclusion probabilities of nodes: sent by a server, held by a rank.
    let about_nodes = planned.owner_bytes() + n_nodes * NUMBER_BYTES;
    let largest = planned.sizes.iter().map(|size| size.n_bytes).max().unwrap_or(0);
    let without_cache = wanted.memory.unwrap_or(RANK_FLOOR + about_nodes + in_flight + evaluation);
    // Features are cached as they are stored.
    let cached = |n_nodes: u64| n_nodes * step.row_bytes as u64;
    let cache = match wanted.cache {
        Cache::Percent(percent) => cached((n_nodes as f64 * percent / 100.0) as u64),
        Cache::Auto if planned.contents.features.is_none_or(|rows| rows.layout == FeatureLayout::Sparse) => 0,
        Cache::Auto => cached(n_nodes).min(without_cache / (Cache::SHARE - 1)),
    };
    Ok(Sizes { sampler: SAMPLER_FLOOR + largest + about_nodes, rank: without_cache + cache })
}
