//! Programs that train on mini-batches.

use super::{
    Losses, Program, ProgramPlan,
    work::{Batches, Work},
};
use crate::cuda::{
    args::args,
    batch::DeviceBatch,
    error::GpuError,
    layer::N_THREADS,
    machine::{Gpu, Lane},
    memory::Array,
    pairs::{DrawnPairs, HostPairs, PairPlaces},
    rows::{DeviceRows, PlacedRows, Values},
    sampled::{BlockPlaces, HostBlocks, SampledOnDevice},
    sampler::GraphSampler,
};

impl Program {
    /// For batches of one run: see [`Program::start`]. `rows` are those of all nodes, unless batches bring their own; a sampler
    /// needs them.
    pub fn of_batches(
        gpu: &Gpu,
        rows: Option<DeviceRows>,
        sampler: Option<GraphSampler>,
        plan: ProgramPlan,
    ) -> Result<Program, GpuError> {
        assert_eq!(plan.runs.len(), 1, "every run has its own batches");
        let spread = Array::zeros(gpu, 0, "rows of a batch")?;
        let sum = Array::zeros(gpu, plan.n_weights, "gradients of weights")?;
        Program::of(gpu, Work::Batches(Box::new(Batches { rows, sampler, spread, batch: None, sum })), plan)
    }

    /// Samples the blocks of a batch: see [`GraphSampler::sample`]. They come with their lists by source.
    pub fn sample(
        &mut self,
        name: (u64, u64),
        fanouts: &[Option<u32>],
        roots: &[u64],
    ) -> Result<SampledOnDevice, GpuError> {
        let sampler = self.batches().sampler.as_mut().expect("a program that samples has a sampler");
        let mut sampled = sampler.sample(name, fanouts, roots)?;
        sampler.transpose(&mut sampled)?;
        Ok(sampled)
    }

    /// Takes what was sampled and is no longer needed, for the memory.
    pub fn give_back(&mut self, sampled: SampledOnDevice) {
        if let Some(sampler) = &mut self.batches().sampler {
            sampler.give_back(sampled);
        }
    }

    /// The features of all nodes and the neighbor lists, as far as they are on the GPU.
    pub fn known(&self) -> (Option<&DeviceRows>, Option<&GraphSampler>) {
        match &self.work {
            Work::Batches(batches) => (batches.rows.as_ref(), batches.sampler.as_ref()),
            Work::Graph(_) => (None, None),
        }
    }

    /// The draws of the started batch, which another thread may read until [`Program::finish`].
    pub fn draws(&self) -> Draws {
        let Work::Batches(batches) = &self.work else { unreachable!("a whole graph has no batches") };
        let batch = batches.batch();
        let layers = self.layers.iter().zip(&batch.placed().graphs);
        let pairs = layers.filter_map(|(layer, graph)| Some(layer.drawn.as_ref()?.places(graph.n_edges)));
        Draws { gpu: self.gpu.clone(), blocks: batch.sampled().places(), pairs: pairs.collect() }
    }

    fn batches(&mut self) -> &mut Batches {
        match &mut self.work {
            Work::Batches(batches) => batches,
            Work::Graph(_) => unreachable!("a whole graph has no batches"),
        }
    }

    /// Makes room for pairs that are drawn here.
    fn fit_pairs(&mut self) -> Result<(), GpuError> {
        let Program { work: Work::Batches(batches), layers, plan, gpu, .. } = self else { return Ok(()) };
        let placed = batches.batch().placed();
        let (Some(slice), Some(config)) = (placed.drawn_slice, plan.pairs) else { return Ok(()) };
        for (layer, graph) in layers.iter_mut().zip(&placed.graphs) {
            let drawn = match layer.drawn.take() {
                Some(drawn) => layer.drawn.insert(drawn),
                None => layer.drawn.insert(DrawnPairs::new(gpu)?),
            };
            drawn.fit(graph, config, slice, 1)?;
        }
        Ok(())
    }

    /// Starts the pass of a batch, forward and backward.
    pub fn start(&mut self, batch: DeviceBatch) -> Result<(), GpuError> {
        batch.arrived()?;
        self.gpu.machine().follow(Lane::Compute, Lane::Sample)?; // The batch may have been sampled there.
        let dim = self.plan.layers[0].dim;
        let batches = self.batches();
        batches.batch = Some(batch);
        batches.fit(dim)?;
        self.fit_pairs()?;
        self.fit()?;
        self.differentiate()
    }

    /// Adds the gradient of the started batch to those of the slices before it, or begins with it.
    pub fn add_slice(&mut self, is_first: bool) -> Result<(), GpuError> {
        let n_weights = self.plan.n_weights as u32;
        let (gradient, sum) = (self.gradient.at(), self.batches().sum.at());
        let mut args = args![n_weights, u32::from(is_first), gradient, sum];
        self.launch(self.layers[0].module, "kith_add_slice", n_weights.div_ceil(N_THREADS), N_THREADS, &mut args)
    }

    /// Begins the sum of a step's slices with zeros.
    pub fn begin_slices(&mut self) -> Result<(), GpuError> {
        self.batches().sum.fill(0)
    }

    /// Takes the sum of the gradients of a step's slices from the host.
    pub fn set_gradient(&mut self, sum: &[f32]) -> Result<(), GpuError> {
        self.batches().sum.write(sum)
    }

    /// One step of Adam by the sum of the gradients; the learning rate over the first moment's correction, and one over the
    /// root of the second's.
    pub fn update_by_slices(&mut self, step_size: f32, inverse_root_scale: f32) -> Result<(), GpuError> {
        self.factors.write(&[[step_size, inverse_root_scale]])?;
        let n_weights = self.plan.n_weights as u32;
        let sum = self.batches().sum.at();
        let mut args = args![
            n_weights,
            1u32,
            self.settings.at(),
            self.factors.at(),
            sum,
            self.weights.at(),
            self.first.at(),
            self.second.at()
        ];
        self.launch(self.layers[0].module, "kith_adam", n_weights.div_ceil(N_THREADS), N_THREADS, &mut args)
    }

    /// Waits for what was started: losses, and the batch, to be filled again.
    pub fn finish(&mut self) -> Result<(Losses, DeviceBatch), GpuError> {
        let losses = self.losses.read()?;
        let batch = self.batches().batch.take().expect("a batch was started");
        let placed = batch.placed();
        let mut n_pairs = placed.n_pairs.clone();
        let mut n_left_out = placed.n_left_out;
        for drawn in self.layers.iter().filter_map(|layer| layer.drawn.as_ref()) {
            n_pairs.push(drawn.n_pairs.read()?[0]);
            n_left_out += u64::from(drawn.most_pairs() - n_pairs[n_pairs.len() - 1]);
        }
        let edge = |(layer, n_pairs): (usize, &u32)| {
            (losses[1 + 2 * layer] + losses[2 + 2 * layer]) / f64::from((*n_pairs).max(1))
        };
        let losses = Losses { node: losses[0], edges: n_pairs.iter().enumerate().map(edge).collect(), n_left_out };
        Ok((losses, batch))
    }
}

/// Draws of a batch that was sampled on the GPU, and is computed there.
#[derive(Debug)]
pub struct Draws {
    gpu: Gpu,
    blocks: BlockPlaces,
    pairs: Vec<PairPlaces>,
}

impl Draws {
    /// Reads them beside the computation: the blocks from the input to the output, and the pairs of each.
    pub fn fetch(&self) -> Result<(HostBlocks, Vec<HostPairs>), GpuError> {
        let pairs = self.pairs.iter().map(|pairs| pairs.fetch(&self.gpu)).collect::<Result<_, _>>()?;
        Ok((self.blocks.fetch(&self.gpu)?, pairs))
    }
}

impl Batches {
    /// Makes room for rows of the batch that are spread.
    fn fit(&mut self, dim: usize) -> Result<(), GpuError> {
        let placed = self.batch().placed();
        let is_sparse = match (placed.rows, &self.rows) {
            (PlacedRows::Sparse(_), _) => true,
            (PlacedRows::Known, Some(rows)) => matches!(rows.values, Values::Sparse(_)),
            _ => false,
        };
        let n_rows = if is_sparse { placed.graphs[0].n_sources } else { 0 };
        self.spread.fit(n_rows * dim)?;
        Ok(())
    }
}
