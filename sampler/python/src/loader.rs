//! Batches of neighbor loaders, made ahead on threads.

use std::{ops::Range, sync::Arc};

use kith_client::{Job, NeighborhoodMaker, Prefetch, PrefetchConfig, Shards};
use pyo3::prelude::*;

use crate::{
    array::Memory,
    error::Failed,
    graph::{Graph, ids_of_numbers},
    memory::{Borrowed, Labels},
    neighborhoods::{Batch, MadeBatch, NeighborhoodSampler},
    order::Order,
    pairs::{Negatives, PairNodes, Pairs},
    settings::{SampleConfig, StepConfig},
    waiting::{Batches, wait_for},
};

/// Batches of one epoch, in order: some of its steps.
#[pyclass(frozen, module = "kith._kith")]
pub struct Loader {
    batches: Batches<MadeBatch>,
}

/// Seeds of a loader.
enum LoaderSeeds {
    Nodes(Vec<u64>),
    Pairs(Pairs),
}

#[pymethods]
impl Loader {
    /// Starts at the first of `range` of an epoch's steps, and ends before the second. `seeds` are ids of nodes in the order of the caller,
    /// or, with negatives, two rows of them: sources and destinations of pairs.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        graph: &Graph,
        memory: Py<Memory>,
        labels: Option<Py<Labels>>,
        seeds: &Bound<'_, PyAny>,
        negatives: Option<Negatives>,
        config: SampleConfig,
        steps: StepConfig,
        epoch: u64,
        range: (u64, u64),
    ) -> PyResult<Loader> {
        let name = if negatives.is_none() { "input_nodes" } else { "edge_label_index" };
        let mut ids = ids_of_numbers(Borrowed::<i64>::of(seeds, name)?.numbers(), name)?;
        let seeds = match negatives {
            None => LoaderSeeds::Nodes(ids),
            Some(negatives) => {
                let destinations = ids.split_off(ids.len() / 2);
                LoaderSeeds::Pairs(Pairs { sources: ids, destinations, negatives })
            }
        };
        let shards = Arc::clone(&graph.shards);
        let sampler = NeighborhoodSampler::new(config, labels)?;
        let batches = wait_for(py, move || start(shards, memory, seeds, sampler, steps, epoch, range.0..range.1))?;
        Ok(Loader { batches: Batches::new(batches) })
    }

    fn __iter__(this: PyRef<'_, Loader>) -> PyRef<'_, Loader> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        self.batches.next(py)?.map(|made| made.into_python(py)).transpose()
    }
}

fn start(
    shards: Arc<dyn Shards>,
    memory: Py<Memory>,
    seeds: LoaderSeeds,
    sampler: NeighborhoodSampler,
    steps: StepConfig,
    epoch: u64,
    range: Range<u64>,
) -> Result<Prefetch<MadeBatch>, Failed> {
    steps.check()?;
    let n_nodes = shards.info().n_nodes;
    let order = match &seeds {
        LoaderSeeds::Nodes(nodes) => Order::new(nodes, n_nodes, sampler.seed(), &steps, epoch)?,
        LoaderSeeds::Pairs(pairs) => {
            let numbers: Vec<u64> = (0..pairs.sources.len() as u64).collect();
            Order::new(&numbers, numbers.len() as u64, sampler.seed(), &steps, epoch)?
        }
    };
    let n_steps = order.n_steps();
    if epoch.checked_mul(n_steps).is_none_or(|step| step > u64::MAX / 2) {
        return Err(Failed::new(format!("epoch: {epoch} is too large")));
    }
    let rank = steps.rank;
    let jobs = (range.start..n_steps.min(range.end)).map(move |step| Job { step, slice: rank });
    let prefetch = PrefetchConfig { n_threads: steps.num_threads, depth: steps.depth };
    let shared = Arc::new((shards, memory, seeds, sampler, order));
    Ok(Prefetch::start_with(prefetch, jobs, &mut |_| {
        let shared = Arc::clone(&shared);
        let mut maker = NeighborhoodMaker::new(n_nodes);
        move |job: Job| {
            let (shards, memory, seeds, sampler, order) = &*shared;
            let (places, step, memory) = (order.slice(job.step, job.slice), epoch * n_steps + job.step, memory.get());
            let mut made = match seeds {
                LoaderSeeds::Nodes(nodes) => {
                    let seeds: Vec<u64> = places.iter().map(|place| nodes[*place as usize]).collect();
                    sampler.make(&**shards, &mut maker, memory, step, &seeds)?
                }
                LoaderSeeds::Pairs(pairs) => {
                    let name = (sampler.seed(), step, sampler.fanouts.len());
                    let PairNodes { nodes, positions } = pairs.nodes(places, name, n_nodes);
                    let mut made = sampler.make(&**shards, &mut maker, memory, step, &nodes)?;
                    made.put_pairs(positions);
                    made
                }
            };
            made.put_places(places);
            made.pin(memory);
            Ok(made)
        }
    })?)
}
