//! Slices on a GPU: mini-batches, or one graph of a set after the other. Weights and moments are on the GPU. The
//! gradients of a step's slices are added there or, with several ranks, on the host. While the GPU computes one slice,
//! the next is sampled and sent, or waits to be sampled there.

mod digester;
mod ready;
mod recipe;
mod sampled;

use kith_client::RowCounts;
use kith_kernels::cuda::{BatchParts, DeviceBatch, Gpu, GpuError, Program, ProgramPlan};
use kith_run::{measured::Measured, phase::Phase};
use tch::Tensor;

use self::{
    digester::Digester,
    ready::{Drawn, Ready, Targets},
    recipe::Recipe,
};
use super::{Engine, gpu_losses::with_losses, host::Host};
use crate::{
    data::{
        Data,
        feed::{At, Slice},
    },
    distributed::{exchange::SliceRecord, world::World},
    engine::gpu,
    error::TrainError,
    inference::{evaluate::evaluate, layerwise::Room, on_gpu::GpuEvaluation},
};

/// Advice for slices that are too large for a GPU.
const ADVICE: &str =
    "a smaller train.batch_size, smaller train.fanouts or more train.slices need less, and so does --gpu-features 0";

/// Computes slices.
#[derive(Debug)]
pub(super) struct BatchEngine<'a> {
    /// Dropped first: it reads memory of the program.
    digester: Digester,
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
    /// True if this rank computes all slices of a step.
    is_alone: bool,
    /// Weight updates so far.
    step: u64,
    /// Gradient of the last slice.
    gradient: Option<Tensor>,
    evaluation: Evaluation,
}

/// Evaluation of the model.
#[derive(Debug)]
enum Evaluation {
    /// Decided by the memory that the first steps leave free.
    Undecided,
    OnGpu(Box<GpuEvaluation>),
    OnCpu,
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
        let (step, (first, second)) = (host.optimizer.step(), host.optimizer.moments());
        let [weights, first, second] = [host.model.weights().flat(), first, second].map(Vec::<f32>::try_from);
        program.set_state(step, &weights?, &first?, &second?)?;
        let gpu = device.clone();
        Ok(BatchEngine {
            digester: Digester::new(),
            gpu,
            plan,
            program,
            knows_rows,
            recipe,
            ahead: None,
            spare: None,
            is_alone: host.own_slices.len() == host.feed.n_slices(),
            step,
            gradient: None,
            evaluation: Evaluation::Undecided,
        })
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
        let is_first = at.slice == host.own_slices.start;
        match batch {
            Some(batch) => {
                self.program.start(batch)?;
                self.program.add_slice(is_first)?;
            }
            None if is_first => self.program.begin_slices()?,
            None => {}
        }
        let is_digested = is_started && matches!(drawn, Drawn::OnGpu(_));
        let on_host = match drawn {
            Drawn::OnHost(slice) => Some(slice),
            Drawn::OnGpu(sampled) => {
                if is_started {
                    self.digester.start(self.program.draws(), sampled);
                }
                None
            }
        };
        // Not known to be needed: the run may stop early. What was sampled is lost then.
        self.ahead = host.after(at).map(|next| self.ready(host, next, enter)).transpose()?;
        enter(Phase::Compute);
        if is_started {
            let (losses, batch) = self.program.finish()?;
            if is_digested {
                record.digest = Some(self.digester.finish()?);
            }
            record = with_losses(record, losses, host.edge_weight() / host.feed.n_slices() as f64);
            if !record.loss.0.is_finite() {
                self.fetch_weights(host)?;
            }
            match &on_host {
                Some(slice) if !self.knows_rows => host.check_slice(at, &record, Some(&slice.sample))?,
                _ => host.check_finite(record.loss.0, at.step, at.epoch, None, &[])?,
            }
            self.take_back(batch);
        }
        self.gradient = Some(match (self.is_alone, is_started) {
            (true, _) => Tensor::from_slice::<f32>(&[]),
            (false, true) => Tensor::from_slice(&self.program.gradient()?),
            (false, false) => host.model.weights().flat().zeros_like(),
        });
        if let Some(slice) = on_host {
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
        if !self.is_alone {
            self.program.set_gradient(&Vec::<f32>::try_from(gradient)?)?;
        }
        self.step += 1;
        let (step_size, inverse_root_scale) = host.optimizer.factors(self.step);
        Ok(self.program.update_by_slices(step_size, inverse_root_scale)?)
    }

    fn evaluate(&mut self, host: &mut Host<'a>, room: &Room, world: &mut World) -> Result<Measured, TrainError> {
        let Data::Batches(input) = host.data else {
            self.fetch_weights(host)?;
            return evaluate(&host.model, host.data, room, world);
        };
        if let Evaluation::Undecided = self.evaluation {
            let made = GpuEvaluation::new(&self.gpu, &self.plan, input, world.n_ranks())?;
            self.evaluation = made.map_or(Evaluation::OnCpu, |made| Evaluation::OnGpu(Box::new(made)));
        }
        if let Evaluation::OnGpu(evaluation) = &mut self.evaluation {
            match evaluation.evaluate(&self.program.weights_of(0)?, &*input.shards, self.program.known(), world) {
                Err(TrainError::Gpu(GpuError::NoMemory { .. })) => self.evaluation = Evaluation::OnCpu,
                found => return found,
            }
        }
        self.fetch_weights(host)?;
        evaluate(&host.model, host.data, room, world)
    }

    fn fetch_weights(&self, host: &mut Host<'a>) -> Result<(), TrainError> {
        host.model.weights().set(&Tensor::from_slice(&self.program.weights_of(0)?));
        Ok(())
    }

    fn fetch(&self, host: &mut Host<'a>, step: u64) -> Result<(), TrainError> {
        self.fetch_weights(host)?;
        let (first, second) = self.program.moments_of(0)?;
        host.optimizer.set(step, &Tensor::from_slice(&first), &Tensor::from_slice(&second));
        Ok(())
    }
}
