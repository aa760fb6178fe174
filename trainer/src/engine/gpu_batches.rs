//! Slices on a GPU: mini-batches, or one graph of a set after the other. Weights stay on the host, where all ranks
//! update them alike; the GPU receives them with every slice and returns its gradient. While it computes one slice, the
//! next is sampled and sent, or waits to be sampled there.

mod ready;
mod recipe;
mod sampled;

use kith_client::RowCounts;
use kith_kernels::cuda::{BatchParts, DeviceBatch, Gpu, Program, ProgramPlan};
use kith_run::{measured::Measured, phase::Phase};
use tch::Tensor;

use self::{
    ready::{Drawn, Ready, Targets},
    recipe::Recipe,
};
use super::{Engine, gpu_losses::with_losses, host::Host};
use crate::{
    data::feed::{At, Slice},
    distributed::{exchange::SliceRecord, world::World},
    engine::gpu,
    error::TrainError,
    inference::{evaluate::evaluate, layerwise::Room},
};

/// Advice for slices that are too large for a GPU.
const ADVICE: &str =
    "a smaller train.batch_size, smaller train.fanouts or more train.slices need less, and so does --gpu-features 0";

/// Computes slices.
#[derive(Debug)]
pub(super) struct BatchEngine<'a> {
    gpu: Gpu,
    plan: ProgramPlan,
    program: Program,
    /// True if the features of all nodes are on the GPU.
    knows_rows: bool,
    /// Settings for sampling on the GPU, if it samples.
    recipe: Option<Recipe>,
    /// The slice after the one that is computed.
    ahead: Option<Ready<'a>>,
    /// Memory of a slice that was computed.
    spare: Option<DeviceBatch>,
    gradient: Option<Tensor>,
}

impl<'a> BatchEngine<'a> {
    pub(super) fn new(device: &Gpu, host: &mut Host<'a>, gpu_rows: Option<u64>) -> Result<BatchEngine<'a>, TrainError> {
        BatchEngine::make(device, host, gpu_rows).map_err(|error| error.advised(ADVICE))
    }

    fn make(device: &Gpu, host: &mut Host<'a>, gpu_rows: Option<u64>) -> Result<BatchEngine<'a>, TrainError> {
        let rows = gpu::all_rows(device, host.data, gpu_rows)?;
        host.feed.serve_gpu(rows.is_none());
        let plan = gpu::plan_of_slices(&host.model, host.data, &host.config, host.run_key, host.feed.n_slices());
        let knows_rows = rows.is_some();
        let mut recipe = host.feed.recipe().filter(|_| knows_rows).map(Recipe::of);
        let sampler = match &recipe {
            Some(recipe) => gpu::sampler(device, host.data, &recipe.fanouts)?,
            None => None,
        };
        recipe.take_if(|_| sampler.is_none());
        let program = Program::of_batches(device, rows, sampler, plan.clone())?;
        let gpu = device.clone();
        Ok(BatchEngine { gpu, plan, program, knows_rows, recipe, ahead: None, spare: None, gradient: None })
    }

    /// A slice on its way to the GPU.
    fn ready(&mut self, host: &mut Host<'a>, at: At, enter: &mut dyn FnMut(Phase)) -> Result<Ready<'a>, TrainError> {
        enter(Phase::Sample);
        if self.recipe.is_some() {
            return self.sample(at);
        }
        let slice = host.feed.next(&host.model, at)?;
        self.send(slice, at.step)
    }

    fn compute(
        &mut self,
        host: &mut Host<'a>,
        at: At,
        enter: &mut dyn FnMut(Phase),
    ) -> Result<SliceRecord, TrainError> {
        let Ready { batch, mut record, drawn } = match self.ahead.take() {
            Some(ready) => ready,
            None => self.ready(host, at, enter)?,
        };
        enter(Phase::Compute);
        let is_started = batch.is_some();
        if let Some(batch) = batch {
            let weights: Vec<f32> = Vec::try_from(host.model.weights().flat())?;
            self.program.start(batch, &weights)?;
        }
        if let (Drawn::OnGpu(sampled), true) = (&drawn, is_started) {
            // The GPU computes meanwhile.
            record.digest = Some(self.digest(sampled)?);
        }
        // Not known to be needed: the run may stop early. What was sampled is lost then.
        self.ahead = host.after(at).map(|next| self.ready(host, next, enter)).transpose()?;
        enter(Phase::Compute);
        self.gradient = Some(match is_started {
            false => host.model.weights().flat().zeros_like(),
            true => {
                let (losses, gradient, batch) = self.program.finish()?;
                record = with_losses(record, losses, host.edge_weight() / host.feed.n_slices() as f64);
                match &drawn {
                    Drawn::OnHost(slice) if !self.knows_rows => host.check_slice(at, &record, Some(&slice.sample))?,
                    _ => host.check_finite(record.loss.0, at.step, at.epoch, None, &[])?,
                }
                self.take_back(batch);
                Tensor::from_slice(&gradient)
            }
        });
        if let Drawn::OnHost(slice) = drawn {
            host.feed.give_back(*slice);
        }
        Ok(record)
    }

    fn spare(&mut self) -> Result<DeviceBatch, TrainError> {
        self.spare.take().map_or_else(|| Ok(DeviceBatch::new(&self.gpu, &self.plan)?), Ok)
    }

    /// Sends a slice on its way.
    fn send(&mut self, mut slice: Slice<'a>, step: u64) -> Result<Ready<'a>, TrainError> {
        let RowCounts { local, mut cached, remote } = slice.row_counts;
        if self.knows_rows {
            cached += slice.sample.blocks.first().map_or(0, |block| block.n_sources() as u64);
        }
        let record = SliceRecord {
            digest: slice.digest.take(),
            row_counts: (local, cached, remote),
            n_seeds: slice.seeds.len() as u64,
            n_edges: slice.n_edges(),
            ..SliceRecord::default()
        };
        let mut batch = None;
        if !slice.is_empty() {
            let mut own = self.spare()?;
            let n_roots = slice.sample.blocks.last().map_or(0, |block| block.n_destinations());
            let targets = Targets::of(&slice.labels, &slice.seeds, n_roots);
            let n_classes = self.n_classes();
            own.fill(&BatchParts {
                step,
                blocks: &slice.sample.blocks,
                are_sampled: record.digest.is_some(),
                pairs: &slice.compared.pairs,
                rows: (!self.knows_rows).then_some(&*slice.sample.rows),
                classes: &targets.classes,
                bits: targets.bits.as_deref(),
                n_classes,
                n_terms: targets.n_terms(slice.n_step_seeds, n_classes),
            })?;
            batch = Some(own);
        }
        Ok(Ready { batch, record, drawn: Drawn::OnHost(Box::new(slice)) })
    }

    fn n_classes(&self) -> usize {
        self.plan.layers.last().map_or(0, |layer| layer.features)
    }

    /// Takes a batch that was computed.
    fn take_back(&mut self, mut batch: DeviceBatch) {
        if let Some(sampled) = batch.take_sampled() {
            self.program.give_back(sampled);
        }
        self.spare = Some(batch);
    }
}

impl<'a> Engine<'a> for BatchEngine<'a> {
    fn compute(
        &mut self,
        host: &mut Host<'a>,
        at: At,
        enter: &mut dyn FnMut(Phase),
    ) -> Result<SliceRecord, TrainError> {
        BatchEngine::compute(self, host, at, enter).map_err(|error| error.advised(ADVICE))
    }

    fn take_gradient(&mut self, _host: &Host<'a>) -> Tensor {
        self.gradient.take().expect("a slice was computed")
    }

    fn update(&mut self, host: &mut Host<'a>, gradient: &Tensor) -> Result<(), TrainError> {
        Ok(host.optimizer.update(&mut host.model.weights().flat().shallow_clone(), gradient)?)
    }

    fn evaluate(&mut self, host: &mut Host<'a>, room: &Room, world: &mut World) -> Result<Measured, TrainError> {
        evaluate(&host.model, host.data, room, world)
    }
}
