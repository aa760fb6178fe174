//! Programs whose steps look at batches.

use super::{
    Losses, Plan, Program,
    work::{Batches, Work},
};
use crate::cuda::{
    batch::DeviceBatch,
    error::GpuError,
    machine::Gpu,
    memory::Array,
    rows::{DeviceRows, PlacedRows, Values},
};

impl Program {
    /// For batches of one run: see [`Program::start`]. `rows` are those of all nodes, unless batches bring their own.
    pub fn of_batches(gpu: &Gpu, rows: Option<DeviceRows>, plan: Plan) -> Result<Program, GpuError> {
        assert_eq!(plan.runs.len(), 1, "every run has its own batches");
        let spread = Array::zeros(gpu, 0, "rows of a batch")?;
        Program::of(gpu, Work::Batches(Box::new(Batches { rows, spread, batch: None })), plan)
    }

    /// Starts the pass of a batch, forward and backward, with these weights.
    pub fn start(&mut self, batch: DeviceBatch, weights: &[f32]) -> Result<(), GpuError> {
        batch.arrived()?;
        let Work::Batches(batches) = &mut self.work else { unreachable!("a whole graph has no batches") };
        batches.batch = Some(batch);
        batches.fit(self.plan.layers[0].dim)?;
        self.fit()?;
        self.weights.write(weights)?;
        self.differentiate()
    }

    /// Waits for what was started: losses, the gradient of the weights, and the batch, to be filled again.
    pub fn finish(&mut self) -> Result<(Losses, Vec<f32>, DeviceBatch), GpuError> {
        let gradient = self.gradient.read()?;
        let losses = self.losses.read()?;
        let Work::Batches(batches) = &mut self.work else { unreachable!("a whole graph has no batches") };
        let batch = batches.batch.take().expect("a batch was started");
        let placed = batch.placed();
        let edge = |(layer, n_pairs): (usize, &u32)| {
            (losses[1 + 2 * layer] + losses[2 + 2 * layer]) / f64::from((*n_pairs).max(1))
        };
        let losses = Losses {
            node: losses[0],
            edges: placed.n_pairs.iter().enumerate().map(edge).collect(),
            n_left_out: placed.n_left_out,
        };
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
