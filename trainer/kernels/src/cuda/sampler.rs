//! Neighbor sampling on a GPU: the same blocks as on the CPU, bit for bit.

use std::sync::Arc;

use bytemuck::Pod;

use super::{
    args::{Args, args},
    compile::Constants,
    error::GpuError,
    graph_lists::GraphLists,
    machine::{Gpu, Lane},
    memory::Array,
    sampled::{Sampled, SampledOnDevice},
    sort::Sort,
};

/// Threads of a block, and numbers that one block of a scan adds up; SAMPLE_THREADS and SCAN_TILE in sample.cu.
const N_THREADS: usize = 256;
pub(super) const SCAN_TILE: usize = 1024;

/// Above this fanout edges are written by threads of their own; MAX_OWN in sample.cu.
const MAX_OWN: u32 = 64;

/// Edges of a batch are counted in 31 bits: the last one tells them from positions.
const MAX_EDGES: u64 = 1 << 31;

/// Most edges of a hop that room is made for without reading back the hop's true size.
const MOST_UNSEEN: u64 = 1 << 26;

const WHAT: &str = "sampling";

/// Draws neighbors, without replacement, from lists that are on a machine: by weight if these have weights. One batch at a time; memory of batches that
/// were given back is used again.
#[derive(Debug)]
pub struct GraphSampler {
    gpu: Gpu,
    lists: Arc<GraphLists>,
    most_unseen: u64,
    /// By id; says nothing of any node between batches.
    table: Array<u32>,
    is_clean: bool,
    totals: Array<u32>,
    pub(super) sort: Sort,
    spare: Vec<SampledOnDevice>,
}

/// Upper bounds of a batch's sizes before a hop.
struct Bounds {
    frontier: u64,
    first_edge: u64,
    first_bound: u64,
}

impl GraphSampler {
    /// Draws from these lists.
    pub fn new(lists: &Arc<GraphLists>) -> Result<GraphSampler, GpuError> {
        let gpu = lists.gpu.in_lane(Lane::Sample);
        Ok(GraphSampler {
            lists: Arc::clone(lists),
            most_unseen: MOST_UNSEEN,
            table: Array::zeros(&gpu, lists.n_nodes as usize, WHAT)?,
            is_clean: false,
            totals: Array::zeros(&gpu, 0, WHAT)?,
            sort: Sort::new(&gpu)?,
            spare: Vec::new(),
            gpu,
        })
    }

    /// The same, but a hop that may have more edges than this is counted before room is made for it. That costs a round trip.
    pub fn with_most_unseen(self, n_edges: u64) -> GraphSampler {
        GraphSampler { most_unseen: n_edges, ..self }
    }

    /// Draws the blocks around some roots, which must differ. `name` is the seed and the step; fanouts are listed from
    /// the roots outwards, and without a number all neighbors are taken. Waits for the end.
    pub fn sample(
        &mut self,
        name: (u64, u64),
        fanouts: &[Option<u32>],
        roots: &[u64],
    ) -> Result<SampledOnDevice, GpuError> {
        self.check_roots(roots)?;
        let mut batch = self.spare.pop().map_or_else(|| SampledOnDevice::empty(&self.gpu), Ok)?;
        batch.is_transposed = false;
        if !self.is_clean {
            // All bits: no position. The first batch, and one after a batch that failed, find anything there.
            self.table.fill(0xff)?;
        }
        self.is_clean = false;
        let n_hops = fanouts.len() as u32;
        batch.hops.fit(fanouts.len() + 1)?;
        batch.ids.fit(roots.len())?;
        batch.ids.write_part(0, roots)?;
        // At least one thread, which writes the sizes.
        let args = args![self.sampled(&batch), roots.len() as u32];
        self.launch("kith_place_roots", roots.len().max(1), N_THREADS, args)?;
        let mut bounds = Bounds { frontier: roots.len() as u64, first_edge: 0, first_bound: 0 };
        for (hop, fanout) in fanouts.iter().enumerate() {
            self.sample_hop(&mut batch, name, hop as u32, fanout.unwrap_or(u32::MAX), &mut bounds)?;
        }
        let args = args![self.sampled(&batch), n_hops];
        self.launch("kith_relabel", bounds.first_edge as usize, N_THREADS, args)?;
        let args = args![self.sampled(&batch), n_hops];
        self.launch("kith_forget_positions", bounds.frontier as usize, N_THREADS, args)?;
        batch.sizes = batch.hops.read_part(0..fanouts.len() + 1)?;
        self.is_clean = true;
        Ok(batch)
    }

    /// Takes a batch that is no longer needed, for the memory.
    pub fn give_back(&mut self, batch: SampledOnDevice) {
        self.spare.push(batch);
    }

    fn check_roots(&self, roots: &[u64]) -> Result<(), GpuError> {
        let n_nodes = self.lists.n_nodes;
        if let Some(root) = roots.iter().find(|root| **root >= n_nodes) {
            return Err(GpuError::Refused(format!("node {root} is outside the graph: it has {n_nodes} nodes")));
        }
        if roots.is_sorted_by(|a, b| a < b) {
            return Ok(());
        }
        let mut sorted = roots.to_vec();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(GpuError::Refused(format!("node {} is a root twice; roots must differ", pair[0]))),
            None => Ok(()),
        }
    }

    /// Draws one hop: every node so far is expanded.
    fn sample_hop(
        &mut self,
        batch: &mut SampledOnDevice,
        (run_key, step): (u64, u64),
        hop: u32,
        fanout: u32,
        bounds: &mut Bounds,
    ) -> Result<(), GpuError> {
        let tiles = |n: u64, tile: usize| n.div_ceil(tile as u64).max(1) as usize;
        // Nodes differ, so none of their lists is taken twice.
        let most =
            (bounds.frontier * (self.lists.longest.min(fanout.into()) + 1)).min(self.lists.n_edges + bounds.frontier);
        self.totals.fit(tiles(bounds.frontier, N_THREADS).max(tiles(most, SCAN_TILE)))?;
        let lists = self.lists.stored();
        let by_node = |bounds: &Bounds| bounds.frontier.max(1) as usize;
        // All neighbors are taken, whatever they weigh.
        let weights = self.lists.stored_weights().filter(|_| fanout != u32::MAX);
        if weights.is_some() && fanout > MAX_OWN {
            let sentence = format!("a fanout of {fanout} is more than a GPU draws by weight ({MAX_OWN})");
            return Err(GpuError::Refused(sentence));
        }
        match weights {
            None => {
                let args = args![lists, self.sampled(batch), hop, fanout];
                self.launch("kith_count_neighbors", by_node(bounds), N_THREADS, args)?;
            }
            Some(weights) => {
                let args = args![weights, self.sampled(batch), hop, fanout];
                self.launch("kith_count_weighted", by_node(bounds), N_THREADS, args)?;
            }
        }
        let mut n_edges = most;
        if most > self.most_unseen || bounds.first_edge + most >= MAX_EDGES {
            let seen = batch.hops.read_part(hop as usize..hop as usize + 1)?[0];
            n_edges = seen.n_edges.into();
            *bounds = Bounds {
                frontier: seen.n_destinations.into(),
                first_edge: seen.first_edge.into(),
                first_bound: seen.first_bound.into(),
            };
        }
        let end = bounds.first_edge + n_edges;
        if end >= MAX_EDGES {
            return Err(GpuError::Refused(format!(
                "a batch of {end} edges is more than a GPU samples at once (2^31); use fewer roots or smaller fanouts"
            )));
        }
        let n_sources = n_edges.min(self.lists.n_nodes);
        self.grow(&mut batch.indptr, bounds.first_bound + bounds.frontier + 1)?;
        self.grow(&mut batch.sources, end)?;
        self.grow(&mut batch.edge_destinations, end)?;
        self.grow(&mut batch.ids, n_sources)?;
        if let Some(weights) = weights {
            let args = args![weights, self.sampled(batch), hop, fanout];
            self.launch("kith_bound_weighted", by_node(bounds), N_THREADS, args)?;
            let args = args![lists, weights, self.sampled(batch), hop, fanout, run_key, step];
            self.launch("kith_draw_weighted", by_node(bounds), N_THREADS / 32, args)?;
        } else {
            let args = args![lists, self.sampled(batch), hop, fanout, run_key, step];
            self.launch("kith_draw_neighbors", by_node(bounds), N_THREADS, args)?;
        }
        if weights.is_none() && fanout > MAX_OWN {
            let args = args![lists, self.sampled(batch), hop, fanout];
            self.launch("kith_take_neighbors", n_edges as usize, N_THREADS, args)?;
        }
        for kernel in ["kith_count_new", "kith_place_new"] {
            let args = args![self.sampled(batch), hop];
            self.launch(kernel, n_edges.max(1) as usize, SCAN_TILE, args)?;
        }
        *bounds =
            Bounds { frontier: n_sources, first_edge: end, first_bound: bounds.first_bound + bounds.frontier + 1 };
        Ok(())
    }

    /// Makes an array at least `len` long; keeps its contents.
    fn grow<T: Pod>(&self, array: &mut Array<T>, len: u64) -> Result<(), GpuError> {
        let (old, len) = (array.len(), len as usize);
        if array.has_room(len) {
            return array.fit(len.max(old)).map(drop);
        }
        let mut longer = Array::zeros(&self.gpu, len + len / 4, WHAT)?;
        longer.fit(len)?;
        let n_words = old * size_of::<T>() / 4;
        self.launch("kith_copy", n_words, N_THREADS, args![n_words as u32, array.at(), longer.at()])?;
        *array = longer;
        Ok(())
    }

    pub(super) fn sampled(&self, batch: &SampledOnDevice) -> Sampled {
        batch.arg(self.table.at(), self.totals.at())
    }

    /// Launches a kernel over `n` items, `together` per block.
    pub(super) fn launch(
        &self,
        kernel: &'static str,
        n: usize,
        together: usize,
        mut args: Args,
    ) -> Result<(), GpuError> {
        let grid = [n.div_ceil(together) as u32, 1, 1];
        self.gpu.launch(self.lists.module, kernel, grid, N_THREADS as u32, &mut args)
    }
}

/// Keys of weighted draws of one node's slots, as a GPU computes them; `name` is the seed and the step.
pub fn weighted_keys(
    gpu: &Gpu,
    (run_key, step): (u64, u64),
    (hop, node): (u32, u64),
    weights: &[f32],
) -> Result<Vec<f64>, GpuError> {
    let module = gpu.machine().compile(&[Constants::NO_LAYER])?[0];
    let on_gpu = Array::of(gpu, weights, WHAT)?;
    let keys = Array::<f64>::zeros(gpu, weights.len(), WHAT)?;
    let mut args = args![weights.len() as u32, node, hop, run_key, step, on_gpu.at(), keys.at()];
    let grid = [weights.len().div_ceil(N_THREADS) as u32, 1, 1];
    gpu.launch(module, "kith_weighted_keys", grid, N_THREADS as u32, &mut args)?;
    keys.read()
}
