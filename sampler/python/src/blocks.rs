//! Batches of a block loader: those of the program, with the same digests.

use std::{mem, sync::Arc};

use kith_block::Block;
use kith_client::{
    BatchConfig, BatchMaker, FetchedRows, Job, Labels as SeedLabels, Plan, PlanConfig, Prefetch, PrefetchConfig, Seeds,
    Shards, Stock,
};
use pyo3::prelude::*;

use crate::{
    array::{Array, Column, Memory, labels_of},
    error::Failed,
    graph::{Graph, dense_into, ids_of_numbers},
    memory::{Borrowed, Labels},
    settings::{SampleConfig, StepConfig},
    waiting::{Batches, wait_for},
};

/// Batches of one epoch, in order: some of its steps.
#[pyclass(frozen, module = "kith._kith")]
pub(crate) struct BlockLoader {
    batches: Batches<MadeBlocks>,
}

/// A batch before Python sees it.
struct MadeBlocks {
    step: u64,
    n_id: Column,
    n_seeds: usize,
    x: Option<Column>,
    y: Option<Column>,
    blocks: Vec<MadeBlock>,
    digest: u64,
}

struct MadeBlock {
    edge_index: Column,
    edge_weight: Option<Column>,
    edge_attr: Option<Column>,
    n_sources: usize,
    n_destinations: usize,
}

/// Edges, their weights and features, number of sources and of destinations.
type BlockParts = (Py<PyAny>, Option<Py<PyAny>>, Option<Py<PyAny>>, usize, usize);

/// One batch.
#[pyclass(frozen, get_all, module = "kith._kith")]
pub(crate) struct BlockBatch {
    /// Its step, over all epochs.
    step: u64,
    /// Ids of its nodes; the seeds come first.
    n_id: Py<PyAny>,
    /// Number of seeds.
    n_seeds: usize,
    /// Features of the nodes.
    x: Option<Py<PyAny>>,
    /// Labels of the seeds.
    y: Option<Py<PyAny>>,
    /// From the input layer to the output layer.
    blocks: Vec<BlockParts>,
    /// Digest of everything drawn.
    digest: String,
}

#[pymethods]
impl BlockLoader {
    /// Starts at the first of `range` of an epoch's steps, and ends before the second. `seeds` are ids of nodes, ascending.
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        graph: &Graph,
        memory: Py<Memory>,
        labels: Option<Py<Labels>>,
        seeds: &Bound<'_, PyAny>,
        config: SampleConfig,
        steps: StepConfig,
        with_loops: bool,
        epoch: u64,
        range: (u64, u64),
    ) -> PyResult<BlockLoader> {
        let seeds = ids_of_numbers(Borrowed::<i64>::of(seeds, "input_nodes")?.numbers(), "input_nodes")?;
        let maker = BlocksMaker { shards: Arc::clone(&graph.shards), memory, labels, with_loops };
        let batches = wait_for(py, move || start(maker, seeds, &config, &steps, epoch, range))?;
        Ok(BlockLoader { batches: Batches::new(batches) })
    }

    fn __iter__(this: PyRef<'_, BlockLoader>) -> PyRef<'_, BlockLoader> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<BlockBatch>> {
        self.batches.next(py)?.map(|made| made.into_python(py)).transpose()
    }
}

fn start(
    maker: BlocksMaker,
    seeds: Vec<u64>,
    config: &SampleConfig,
    steps: &StepConfig,
    epoch: u64,
    range: (u64, u64),
) -> Result<Prefetch<MadeBlocks>, Failed> {
    steps.check()?;
    let none = SeedLabels::Classes(vec![0; seeds.len()]);
    let seeds = Seeds::new(seeds, none).map_err(|error| Failed::new(error.to_string()))?;
    let plan = PlanConfig {
        run_key: config.seed,
        seeds_per_step: steps.batch_size.saturating_mul(steps.world_size),
        edge_seeds: 0,
        slices: steps.world_size,
    };
    let plan = Arc::new(Plan::new(plan, maker.shards.info().n_nodes, Arc::new(seeds))?);
    let n_steps = plan.steps_per_epoch();
    let first = epoch.checked_mul(n_steps).ok_or_else(|| Failed::new(format!("epoch: {epoch} is too large")))?;
    let rank = steps.rank;
    let jobs = (range.0..n_steps.min(range.1)).map(move |step| Job { step: first + step, slice: rank });
    let batches = BatchConfig {
        fanouts: config.fanouts()?,
        sampling: config.sampling(),
        edge_data: config.edge_data(),
        pairs: None,
        links: None,
        has_rows: config.with_x,
        by_hash: false,
    };
    let prefetch = PrefetchConfig { n_threads: steps.num_threads, depth: steps.depth };
    let (stock, maker) = (Stock::new(2 * prefetch.n_threads), Arc::new(maker));
    Ok(Prefetch::start_with(prefetch, jobs, &mut |_| {
        let (stock, maker) = (stock.clone(), Arc::clone(&maker));
        let mut batches = BatchMaker::new(Arc::clone(&maker.shards), Arc::clone(&plan), batches.clone(), stock.clone());
        move |job: Job| {
            let floats = &maker.memory.get().floats;
            stock.take_rows(FetchedRows { values: floats.take(), ..FetchedRows::default() });
            let mut batch = batches.make(job.step, job.slice)?;
            let made = maker.make(&mut batch);
            stock.give_back(batch);
            Ok(made)
        }
    })?)
}

/// Turns batches of the program into arrays.
struct BlocksMaker {
    shards: Arc<dyn Shards>,
    memory: Py<Memory>,
    labels: Option<Py<Labels>>,
    with_loops: bool,
}

impl BlocksMaker {
    /// The arrays of a batch, which loses its features.
    fn make(&self, batch: &mut kith_client::Batch) -> MadeBlocks {
        let (memory, rows) = (self.memory.get(), mem::take(&mut batch.rows));
        let x = (rows.dim > 0).then(|| {
            let (values, dim) = dense_into(rows, batch.nodes.len(), Some(&memory.floats));
            memory.float32(values, &[batch.nodes.len(), dim])
        });
        let mut made = MadeBlocks {
            step: batch.step,
            n_id: memory.ids(batch.nodes.iter().copied()),
            n_seeds: batch.roots().len(),
            x,
            y: self.labels.as_ref().map(|labels| labels_of(labels.get(), batch.roots())),
            blocks: batch.blocks.iter().map(|block| self.make_block(block)).collect(),
            digest: batch.digest,
        };
        made.pin(memory);
        made
    }

    fn make_block(&self, block: &Block) -> MadeBlock {
        let (memory, n_destinations) = (self.memory.get(), block.n_destinations());
        // The loop of a destination is the last of its edges.
        let edges_into = |destination: usize| {
            let all = block.edges_into(destination);
            all.start..all.end - usize::from(!self.with_loops)
        };
        let edge_index = memory.edge_index(|ends| {
            ends.reserve(2 * block.n_edges());
            for destination in 0..n_destinations {
                ends.extend(block.sources()[edges_into(destination)].iter().map(|source| i64::from(*source)));
            }
            for destination in 0..n_destinations {
                ends.extend(std::iter::repeat_n(destination as i64, edges_into(destination).len()));
            }
        });
        let edge_weight = block.weights().map(|weights| {
            let weights: Vec<f32> = (0..n_destinations).flat_map(edges_into).map(|edge| weights[edge]).collect();
            let n = weights.len();
            Column::Here(Array::float32(weights, &[n]))
        });
        let dim = block.edge_features().len() / block.n_edges().max(1);
        let edge_attr = (dim > 0).then(|| {
            let mut features = memory.floats.take();
            features.clear();
            for edges in (0..n_destinations).map(edges_into) {
                features.extend_from_slice(&block.edge_features()[edges.start * dim..edges.end * dim]);
            }
            let n = features.len() / dim;
            memory.float32(features, &[n, dim])
        });
        MadeBlock { edge_index, edge_weight, edge_attr, n_sources: block.n_sources(), n_destinations }
    }
}

impl MadeBlocks {
    fn pin(&mut self, memory: &Memory) {
        let MadeBlocks { n_id, x, y, blocks, .. } = self;
        let of_blocks = blocks.iter_mut().flat_map(|block| {
            let MadeBlock { edge_index, edge_weight, edge_attr, .. } = block;
            [Some(edge_index), edge_weight.as_mut(), edge_attr.as_mut()]
        });
        memory.pin([Some(n_id), x.as_mut(), y.as_mut()].into_iter().chain(of_blocks).flatten());
    }

    fn into_python(self, py: Python<'_>) -> PyResult<BlockBatch> {
        let given = |column: Column| column.into_pyobject(py).map(Bound::unbind);
        let block = |block: MadeBlock| {
            let (weight, features) =
                (block.edge_weight.map(given).transpose()?, block.edge_attr.map(given).transpose()?);
            Ok((given(block.edge_index)?, weight, features, block.n_sources, block.n_destinations))
        };
        Ok(BlockBatch {
            step: self.step,
            n_id: given(self.n_id)?,
            n_seeds: self.n_seeds,
            x: self.x.map(given).transpose()?,
            y: self.y.map(given).transpose()?,
            blocks: self.blocks.into_iter().map(block).collect::<PyResult<_>>()?,
            digest: format!("{:016x}", self.digest),
        })
    }
}
