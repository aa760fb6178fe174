//! Programs that train on mini-batches.

use super::{
    Losses, Program, ProgramPlan,
    work::{Batches, Work},
};
use crate::cuda::{
    batch::DeviceBatch,
    error::GpuError,
    machine::Gpu,
    memory::Array,
    pairs::{DrawnPairs, HostPairs},
    rows::{DeviceRows, PlacedRows, Values},
    sampled::{HostBlocks, SampledOnDevice},
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
        Program::of(gpu, Work::Batches(Box::new(Batches { rows, sampler, spread, batch: None })), plan)
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

    /// Reads back what was drawn on the GPU for the started batch, while it is computed: its blocks from the input to
    /// the output, and the pairs of each.
    pub fn fetch_drawn(&self) -> Result<(HostBlocks, Vec<HostPairs>), GpuError> {
        let Work::Batches(batches) = &self.work else { unreachable!("a whole graph has no batches") };
        let batch = batches.batch();
        let layers = self.layers.iter().zip(&batch.placed().graphs);
        let pairs = layers.filter_map(|(layer, graph)| Some(layer.drawn.as_ref()?.fetch(graph.n_edges)));
        Ok((batch.sampled().fetch()?, pairs.collect::<Result<_, _>>()?))
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

    /// Starts the pass of a batch, forward and backward, with these weights.
    pub fn start(&mut self, batch: DeviceBatch, weights: &[f32]) -> Result<(), GpuError> {
        batch.arrived()?;
        let dim = self.plan.layers[0].dim;
        let batches = self.batches();
        batches.batch = Some(batch);
        batches.fit(dim)?;
        self.fit_pairs()?;
        self.fit()?;
        self.weights.write(weights)?;
        self.differentiate()
    }

    /// Waits for what was started: losses, the gradient of the weights, and the batch, to be filled again.
    pub fn finish(&mut self) -> Result<(Losses, Vec<f32>, DeviceBatch), GpuError> {
        let gradient = self.gradient.read()?;
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
        Ok((losses, gradient, batch))
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
