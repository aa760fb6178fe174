//! Batches of a neighbor loader, made ahead on threads.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use kith_client::{
    Digest, FetchedRows, Job, Labels, Neighborhood, NeighborhoodMaker, Plan, PlanConfig, Prefetch, PrefetchConfig,
    Seeds, Shards,
};
use kith_sampler::{EdgeData, Fanout, Sampling};
use pyo3::prelude::*;

use crate::{
    array::Array,
    error::Failed,
    graph::{Graph, dense, ids_of, read_ids},
};

/// Batches of one epoch, in order: some of its steps.
#[pyclass(frozen, module = "kith._kith")]
pub struct Loader {
    /// `None` once it is dropped.
    batches: Mutex<Option<Prefetch<Made>>>,
}

/// A batch before Python sees it.
struct Made {
    step: u64,
    n_id: Array,
    input_id: Array,
    edge_index: Array,
    edge_attr: Option<Array>,
    x: Option<Array>,
    n_nodes: Vec<usize>,
    n_edges: Vec<usize>,
    digest: u64,
}

/// One batch.
#[pyclass(frozen, get_all, module = "kith._kith")]
pub(crate) struct Batch {
    /// Its step, over all epochs.
    step: u64,
    /// Ids of its nodes: the seeds, then the others in the order in which they were found.
    n_id: Py<Array>,
    /// Places of the seeds among those of the loader.
    input_id: Py<Array>,
    /// Sources and destinations of edges, as positions in `n_id`.
    edge_index: Py<Array>,
    /// Data of edges: the weight, then the features.
    edge_attr: Option<Py<Array>>,
    /// Features of the nodes.
    x: Option<Py<Array>>,
    /// The seeds, then the nodes that each hop found.
    num_sampled_nodes: Vec<usize>,
    /// Edges of each hop.
    num_sampled_edges: Vec<usize>,
    /// Digest of everything drawn.
    digest: String,
}

/// Settings of a loader.
#[derive(Clone, FromPyObject)]
struct Settings {
    seed: u64,
    batch_size: usize,
    world_size: usize,
    rank: usize,
    shuffle: bool,
    drop_last: bool,
    /// -1: all neighbors.
    num_neighbors: Vec<i64>,
    replace: bool,
    by_weight: bool,
    with_weights: bool,
    with_edge_features: bool,
    with_x: bool,
    num_threads: usize,
    depth: usize,
}

#[pymethods]
impl Loader {
    /// Starts at the first of `steps` of an epoch, and ends before the second. `seeds` are ids of nodes as bytes, in the order of the caller.
    #[new]
    fn new(
        py: Python<'_>,
        graph: &Graph,
        seeds: &[u8],
        settings: Settings,
        epoch: u64,
        steps: (u64, u64),
    ) -> PyResult<Loader> {
        let (shards, seeds) = (Arc::clone(&graph.shards), read_ids(seeds)?);
        Ok(py.detach(|| start(shards, seeds, &settings, epoch, steps.0..steps.1))?)
    }

    fn __iter__(this: PyRef<'_, Loader>) -> PyRef<'_, Loader> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        let next = py.detach(|| self.batches.lock().expect("nobody panics while waiting").as_mut()?.next());
        let Some(made) = next else { return Ok(None) };
        let Made { step, n_id, input_id, edge_index, edge_attr, x, n_nodes, n_edges, digest } =
            made.map_err(Failed::from)?;
        let own = |array: Option<Array>| array.map(|array| Py::new(py, array)).transpose();
        Ok(Some(Batch {
            step,
            n_id: Py::new(py, n_id)?,
            input_id: Py::new(py, input_id)?,
            edge_index: Py::new(py, edge_index)?,
            edge_attr: own(edge_attr)?,
            x: own(x)?,
            num_sampled_nodes: n_nodes,
            num_sampled_edges: n_edges,
            digest: format!("{digest:016x}"),
        }))
    }
}

impl Drop for Loader {
    /// Its threads end after the batch in hand; nobody waits for them.
    fn drop(&mut self) {
        let batches = self.batches.get_mut().ok().and_then(Option::take);
        std::thread::spawn(move || drop(batches));
    }
}

/// Seeds of every step, in the order of an epoch.
struct Order {
    /// Places among the caller's seeds.
    places: Vec<u32>,
    /// Seeds of a step, all ranks together.
    per_step: usize,
    n_ranks: usize,
    drop_last: bool,
}

impl Order {
    fn new(seeds: &[u64], n_nodes: u64, settings: &Settings, epoch: u64) -> Result<Order, Failed> {
        let Settings { seed, batch_size, world_size, shuffle, drop_last, .. } = *settings;
        let per_step = batch_size.saturating_mul(world_size);
        let mut places: Vec<u32> = (0..seeds.len() as u32).collect();
        if shuffle && !seeds.is_empty() {
            // Draws are named by nodes, so the caller's order does not matter.
            places.sort_unstable_by_key(|place| seeds[*place as usize]);
            let ids: Vec<u64> = places.iter().map(|place| seeds[*place as usize]).collect();
            if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(Failed::new(format!("node {} is a seed twice: give each seed node once", twice[0])));
            }
            let labels = Labels::Classes(vec![0; ids.len()]);
            let all = Seeds::new(ids, labels).map_err(|error| Failed::new(error.to_string()))?;
            let plan = PlanConfig { run_key: seed, seeds_per_step: all.len(), edge_seeds: 0, slices: 1 };
            let order = Plan::new(plan, n_nodes, Arc::new(all))?.order(epoch);
            places = order.iter().map(|number| places[*number as usize]).collect();
        }
        Ok(Order { places, per_step, n_ranks: world_size, drop_last })
    }

    fn n_steps(&self) -> u64 {
        let (n, per_step) = (self.places.len(), self.per_step);
        if self.drop_last { (n / per_step) as u64 } else { n.div_ceil(per_step) as u64 }
    }

    /// Seeds of a rank in a step of the epoch.
    fn slice(&self, step: u64, rank: usize) -> &[u32] {
        let start = step as usize * self.per_step;
        let all = &self.places[start..(start + self.per_step).min(self.places.len())];
        let (size, n_larger) = (all.len() / self.n_ranks, all.len() % self.n_ranks);
        let bound = |rank: usize| rank * size + rank.min(n_larger);
        &all[bound(rank)..bound(rank + 1)]
    }
}

fn start(
    shards: Arc<dyn Shards>,
    seeds: Vec<u64>,
    settings: &Settings,
    epoch: u64,
    steps: Range<u64>,
) -> Result<Loader, Failed> {
    let Settings { batch_size, world_size, rank, .. } = *settings;
    if batch_size == 0 || world_size == 0 {
        return Err(Failed::new("batch_size and world_size: expected 1 or more"));
    }
    if rank >= world_size {
        return Err(Failed::new(format!("rank: expected a number below world_size = {world_size}, found {rank}")));
    }
    let fanouts = settings.num_neighbors.iter().map(|n| match u32::try_from(*n) {
        Err(_) if *n == -1 => Ok(Fanout::All),
        Ok(n) => Fanout::at_most(n).map_err(|error| Failed::new(format!("num_neighbors: {error}"))),
        Err(_) => Err(Failed::new(format!("num_neighbors: expected numbers from 1, or -1 for all, found {n}"))),
    });
    let fanouts: Arc<Vec<Fanout>> = Arc::new(fanouts.collect::<Result<_, _>>()?);
    let order = Arc::new(Order::new(&seeds, shards.info().n_nodes, settings, epoch)?);
    let (n_steps, seeds) = (order.n_steps(), Arc::new(seeds));
    if epoch.checked_mul(n_steps).is_none_or(|step| step > u64::MAX / 2) {
        return Err(Failed::new(format!("epoch: {epoch} is too large")));
    }
    let jobs = (steps.start..n_steps.min(steps.end)).map(move |step| Job { step, slice: rank });
    let settings = settings.clone();
    let prefetch = PrefetchConfig { n_threads: settings.num_threads, depth: settings.depth };
    let batches = Prefetch::start_with(prefetch, jobs, &mut |_| {
        let (shards, order, seeds) = (Arc::clone(&shards), Arc::clone(&order), Arc::clone(&seeds));
        let (fanouts, settings) = (Arc::clone(&fanouts), settings.clone());
        let mut maker = NeighborhoodMaker::new(shards.info().n_nodes);
        move |job: Job| {
            let places = order.slice(job.step, job.slice).to_vec();
            let roots: Vec<u64> = places.iter().map(|place| seeds[*place as usize]).collect();
            let step = epoch * n_steps + job.step;
            let sampling = match settings {
                Settings { by_weight: true, .. } => Sampling::Weighted,
                Settings { replace: true, .. } => Sampling::WithReplacement,
                _ => Sampling::Uniform,
            };
            let data = EdgeData { weights: settings.with_weights, features: settings.with_edge_features };
            let found = maker.sample(&*shards, (settings.seed, step), &fanouts, (sampling, data), &roots)?;
            let x = match settings.with_x {
                true => {
                    let mut rows = FetchedRows::default();
                    shards.fetch_features(&found.nodes, &mut rows)?;
                    Some(dense(rows, found.nodes.len()))
                }
                false => None,
            };
            let n_edges = found.sources.len();
            let ends = found.sources.iter().chain(&found.destinations).map(|position| i64::from(*position));
            let width = data.width(shards.info().edge_dim);
            Ok(Made {
                step,
                n_id: ids_of(&found.nodes),
                input_id: Array::int64(places.iter().map(|place| i64::from(*place)).collect(), &[places.len()]),
                edge_index: Array::int64(ends.collect(), &[2, n_edges]),
                digest: digest_of(step, &found),
                edge_attr: (width > 0).then(|| Array::float32(found.edge_data, &[n_edges, width])),
                x,
                n_nodes: found.n_nodes,
                n_edges: found.n_edges,
            })
        }
    })?;
    Ok(Loader { batches: Mutex::new(Some(batches)) })
}

/// Digest of what was drawn for a batch.
fn digest_of(step: u64, found: &Neighborhood) -> u64 {
    let mut digest = Digest::default();
    digest.add(&[step]);
    digest.add(&found.nodes);
    digest.add_u32(&found.sources);
    digest.add_u32(&found.destinations);
    digest.finish()
}
