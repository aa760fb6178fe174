//! A run whose steps a GPU computes whole, and what the loop sees of it. Weights and moments are there; the run's own are
//! fetched when somebody looks at them.

use kith_kernels::cuda::{Gpu, Measured as Counted, Program};
use tch::Tensor;

use super::Run;
use crate::{
    checkpoint::Exact, config::RunConfig, data::Data, error::TrainError, evaluate::Measured, exchange::SliceRecord,
    gpu, model::Model, optimizer::Adam, world::Phase,
};

#[derive(Debug)]
pub(super) struct OnGpu {
    program: Program,
    edge_weight: f64,
    n_seeds: u64,
    n_edges: u64,
    /// Losses of the valid nodes that a mean is taken of.
    n_valid_terms: usize,
}

impl OnGpu {
    /// Puts a run on a GPU, with the weights and moments it has.
    pub(super) fn new(
        device: &Gpu,
        (model, optimizer): (&Model, &Adam),
        data: &Data,
        config: &RunConfig,
        run_key: u64,
    ) -> Result<OnGpu, TrainError> {
        let graph = gpu::graph_of(config, data).map_err(TrainError::NotOnGpu)?;
        let shape = data.shape();
        let program = gpu::program(device, model, graph, &[(config.clone(), run_key)], shape.n_classes)?;
        let numbers = |tensor: &Tensor| Vec::<f32>::try_from(tensor);
        let (first, second) = optimizer.moments();
        let state = (numbers(model.weights().flat())?, numbers(first)?, numbers(second)?);
        program.set_state(optimizer.step(), &state.0, &state.1, &state.2)?;
        Ok(OnGpu {
            program,
            edge_weight: config.edge_loss.as_ref().map_or(0.0, |edge_loss| edge_loss.weight),
            n_seeds: graph.train.len() as u64,
            n_edges: (model.layers().len() * (graph.block.n_edges() - graph.block.n_destinations())) as u64,
            n_valid_terms: graph.valid.len() * if shape.is_multi_label { shape.n_classes } else { 1 },
        })
    }

    fn learn(&mut self) -> Result<SliceRecord, TrainError> {
        self.program.step()?;
        let losses = self.program.losses()?.remove(0);
        let loss = losses.node + self.edge_weight * losses.edges.iter().sum::<f64>();
        Ok(SliceRecord {
            loss: Exact(loss),
            node_loss: Exact(losses.node),
            edge_losses: losses.edges.into_iter().map(Exact).collect(),
            n_negatives_left_out: losses.n_left_out,
            n_seeds: self.n_seeds,
            n_edges: self.n_edges,
            ..SliceRecord::default()
        })
    }

    fn measure(&self) -> Result<Measured, TrainError> {
        let [valid, test] = self.program.measure()?.remove(0);
        let metric = |counted: Counted| match counted.n_said {
            0 => 0.0,
            n_said => (2 * counted.n_right) as f64 / (n_said + counted.n_true) as f64,
        };
        Ok(Measured { valid_loss: valid.loss / self.n_valid_terms as f64, valid: metric(valid), test: metric(test) })
    }
}

impl Run<'_> {
    /// One step by the GPU, update included; `None` where there is none.
    pub(crate) fn learn_on_gpu(&mut self) -> Result<Option<SliceRecord>, TrainError> {
        let Some(on_gpu) = &mut self.on_gpu else { return Ok(None) };
        self.clock.enter(Phase::Compute);
        let record = on_gpu.learn()?;
        if !record.loss.0.is_finite() {
            self.fetch()?;
            self.check_finite(record.loss.0, None)?;
        }
        Ok(Some(record))
    }

    /// How good the model is, if a GPU has it.
    pub(super) fn measure_on_gpu(&self) -> Result<Option<Measured>, TrainError> {
        self.on_gpu.as_ref().map(OnGpu::measure).transpose()
    }

    /// Fetches weights and moments, if a GPU has them.
    pub(super) fn fetch(&mut self) -> Result<(), TrainError> {
        let Some(on_gpu) = &self.on_gpu else { return Ok(()) };
        self.model.weights().set(&Tensor::from_slice(&on_gpu.program.weights()?));
        let (first, second) = on_gpu.program.moments()?;
        self.optimizer.set(self.state.step, &Tensor::from_slice(&first), &Tensor::from_slice(&second));
        Ok(())
    }
}
