//! Slices on a GPU: mini-batches, or one graph of a set after the other. Weights, gradients and moments are on the GPU; those
//! of several ranks are exchanged there. A step is started before the one before it is done: losses come one step late.
//! While the GPU computes one slice, the next is sampled and sent, or sampled there.

mod digester;
mod evaluation;
mod note;
mod ready;
mod recipe;
mod sampled;

use std::{collections::VecDeque, sync::Arc};

use kith_client::RowCounts;
use kith_kernels::cuda::{
    BatchParts, BatchRows, DeviceBatch, Features, Gpu, GraphLists, GraphSampler, Program, ProgramPlan, RankSlices,
};
use kith_run::{
    measured::Measured,
    phase::Phase,
    report::{Confusion, EvaluatedNodes},
};
use tch::Tensor;

use self::{
    digester::Digester,
    evaluation::{Evaluation, Parts},
    note::{Waits, place_of_features},
    ready::{Drawn, Ready, Targets},
    recipe::Recipe,
    sampled::SamplesAhead,
};
use super::{Engine, gpu_losses::with_losses, host::Host, stage::Stage};
use crate::{
    data::feed::{At, Slice},
    distributed::{exchange::SliceRecord, world::World},
    engine::gpu,
    error::TrainError,
    inference::{evaluate::Evaluator, layerwise::Room, receptive::ReceptiveSets},
};

/// Advice for slices that are too large for a GPU.
const ADVICE: &str =
    "a smaller train.batch_size, smaller train.fanouts or more train.slices need less, and so does --gpu-features 0";

/// Slices that are started before the first of them is done: their batches take memory.
const MOST_STARTED: usize = 3;

#[derive(Debug)]
pub(super) struct BatchEngine<'a> {
    /// These two are dropped first: their threads use memory of batches and of the program.
    digester: Digester,
    sampling: Sampling,
    gpu: Gpu,
    plan: ProgramPlan,
    program: Program,
    /// Features of all nodes, if the GPU reads them itself.
    features: Option<Arc<Features>>,
    lists: Option<Arc<GraphLists>>,
    /// The slice after the one that is computed, if the host samples.
    ahead: Option<Ready<'a>>,
    /// Memory of slices that were computed.
    spare: Vec<DeviceBatch>,
    /// Slices that were started, and records of those that are done.
    started: VecDeque<Started<'a>>,
    finished: VecDeque<SliceRecord>,
    /// Weight updates so far.
    step: u64,
    evaluation: Evaluation,
    is_exact: bool,
    /// For evaluations on the CPU.
    evaluator: Evaluator,
    waits: Waits,
}

/// Sampling of slices.
#[derive(Debug)]
enum Sampling {
    OnHost,
    /// Begins with the first slice.
    OnGpu(Option<Box<(Recipe, GraphSampler)>>),
    Ahead(SamplesAhead),
}

/// A slice that was started.
#[derive(Debug)]
struct Started<'a> {
    at: At,
    record: SliceRecord,
    /// `None` for a slice without roots.
    batch: Option<DeviceBatch>,
    is_digested: bool,
    on_host: Option<Box<Slice<'a>>>,
}

impl<'a> BatchEngine<'a> {
    pub(super) fn new(
        device: &Gpu,
        host: &mut Host<'a>,
        gpu_rows: Option<u64>,
        slices: Option<&RankSlices>,
    ) -> Result<BatchEngine<'a>, TrainError> {
        BatchEngine::make(device, host, gpu_rows, slices).map_err(|error| error.advised(ADVICE))
    }

    fn make(
        device: &Gpu,
        host: &mut Host<'a>,
        gpu_rows: Option<u64>,
        slices: Option<&RankSlices>,
    ) -> Result<BatchEngine<'a>, TrainError> {
        let mut features = gpu::features(device, host.data, gpu_rows, host.most_pinned)?;
        host.feed.serve_gpu(features.is_none());
        let plan = gpu::plan_of_slices(host);
        let recipe = host.feed.recipe().filter(|_| features.is_some()).map(Recipe::of);
        let lists = match &recipe {
            Some(recipe) => gpu::lists(device, host.data, (&recipe.fanouts, recipe.by_weight))?,
            None => None,
        };
        if let (Some(features), Some(lists), Some(recipe)) = (&mut features, &lists, &recipe) {
            let all = recipe.fanouts.contains(&None);
            let widest = recipe.fanouts.iter().copied().max().flatten().filter(|_| !all);
            features.keep_hot(lists, widest, gpu::most_features(device, gpu_rows))?;
        }
        let sampling = match (recipe, &lists) {
            (Some(recipe), Some(lists)) => Sampling::OnGpu(Some(Box::new((recipe, GraphSampler::new(lists)?)))),
            _ => Sampling::OnHost,
        };
        host.feed.leave_sampling(!matches!(sampling, Sampling::OnHost));
        let program = Program::of_batches(device, lists.clone(), plan.clone(), slices)?;
        let (step, (first, second)) = (host.optimizer.step(), host.optimizer.moments());
        let [weights, first, second] = [host.model.weights().flat(), first, second].map(Vec::<f32>::try_from);
        program.set_state(step, &weights?, &first?, &second?)?;
        program.set_averages(&Vec::<f32>::try_from(host.evaluated_weights())?)?;
        Ok(BatchEngine {
            digester: Digester::new(),
            sampling,
            gpu: device.clone(),
            plan,
            program,
            features: features.map(Arc::new),
            lists,
            ahead: None,
            spare: Vec::new(),
            started: VecDeque::new(),
            finished: VecDeque::new(),
            step,
            evaluation: Evaluation::Undecided,
            is_exact: false,
            evaluator: Evaluator::default(),
            waits: Waits::default(),
        })
    }

    /// A slice on its way to the GPU.
    fn ready(&mut self, host: &mut Host<'a>, at: At, stage: &mut Stage<'_>) -> Result<Ready<'a>, TrainError> {
        stage.enter(Phase::Sample);
        if let Sampling::OnGpu(parts) = &mut self.sampling {
            let (recipe, sampler) = *parts.take().expect("sampling begins once");
            let features = Arc::clone(self.features.as_ref().expect("the GPU reads the features of what it samples"));
            let (sampler, slices) = ((sampler, features), host.slices_from(at));
            self.sampling = Sampling::Ahead(SamplesAhead::start(&self.gpu, &self.plan, recipe, sampler, slices));
        }
        if let Sampling::Ahead(ahead) = &self.sampling {
            return Ok(ahead.next()?);
        }
        match self.ahead.take() {
            Some(ready) => Ok(ready),
            None => self.send_next(host, at),
        }
    }

    /// Starts a slice.
    fn start(&mut self, host: &mut Host<'a>, at: At, stage: &mut Stage<'_>) -> Result<(), TrainError> {
        while self.started.len() >= MOST_STARTED {
            self.finish(host, stage)?;
        }
        let Ready { batch, record, drawn } = self.ready(host, at, stage)?;
        stage.enter(Phase::Compute);
        let place = at.slice - host.division.own(at.step).start;
        let batch = match batch {
            Some(batch) => Some(self.program.start(batch, place)?),
            None => {
                self.program.skip(place)?;
                None
            }
        };
        let mut started = Started { at, record, batch, is_digested: false, on_host: None };
        match (drawn, &started.batch) {
            (Drawn::OnHost(slice), _) => started.on_host = Some(slice),
            (Drawn::OnGpu(sampled), Some(batch)) => {
                self.digester.start(batch.draws(&self.gpu), sampled);
                started.is_digested = true;
            }
            (Drawn::OnGpu(_), None) => {}
        }
        self.started.push_back(started);
        if let (Sampling::OnHost, Some(next)) = (&self.sampling, host.after(at)) {
            // Not known to be needed: the run may stop early. What was sampled is lost then.
            stage.enter(Phase::Sample);
            self.ahead = Some(self.send_next(host, next)?);
        }
        Ok(())
    }

    /// Waits for the slice that was started first.
    fn finish(&mut self, host: &mut Host<'a>, stage: &mut Stage<'_>) -> Result<(), TrainError> {
        stage.enter(Phase::Compute);
        let Started { at, mut record, batch, is_digested, on_host } =
            self.started.pop_front().expect("a slice was started");
        if let Some(mut batch) = batch {
            // Before it is computed, gradients of an earlier step are exchanged.
            let waited = stage.world.collective().wait_until(&mut || Ok(batch.is_computed()?));
            let digest = is_digested.then(|| self.digester.finish());
            waited?;
            if let Some(digest) = digest {
                record.digest = Some(digest?);
            }
            let losses = batch.losses()?;
            record = with_losses(record, losses, host.edge_weight() / host.division.n_slices() as f64);
            if !record.loss.0.is_finite() {
                self.fetch_weights(host)?; // The GPU has not changed them since.
            }
            match &on_host {
                Some(slice) if self.features.is_none() => host.check_slice(at, &record, Some(&slice.sample))?,
                _ => host.check_finite(record.loss.0, at.step, at.epoch, None, &[])?,
            }
            match &self.sampling {
                Sampling::Ahead(ahead) => ahead.give_back(batch),
                _ => self.spare.push(batch),
            }
        }
        if let Some(slice) = on_host {
            host.feed.give_back(*slice);
        }
        self.finished.push_back(record);
        Ok(())
    }

    /// Sends the next slice of the host on its way.
    fn send_next(&mut self, host: &mut Host<'a>, at: At) -> Result<Ready<'a>, TrainError> {
        let slice = host.feed.next(&host.model, at)?;
        self.send(slice, at.step)
    }

    fn send(&mut self, mut slice: Slice<'a>, step: u64) -> Result<Ready<'a>, TrainError> {
        let RowCounts { local, mut cached, remote } = slice.row_counts;
        if self.features.is_some() {
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
            let mut own = match self.spare.pop() {
                Some(spare) => spare,
                None => DeviceBatch::new(&self.gpu, &self.plan, false)?,
            };
            let n_roots = slice.sample.blocks.last().map_or(0, |block| block.n_destinations());
            let targets = Targets::of(&slice.labels, &slice.seeds, n_roots);
            let n_classes = self.plan.n_classes();
            own.fill(&BatchParts {
                step,
                blocks: &slice.sample.blocks,
                are_sampled: record.digest.is_some(),
                pairs: &slice.compared.pairs,
                rows: self.features.as_deref().map_or(BatchRows::Sent(&slice.sample.rows), BatchRows::Stored),
                classes: &targets.classes,
                values: &targets.values,
                n_classes,
                n_terms: targets.n_terms(slice.n_step_seeds, n_classes),
            })?;
            batch = Some(own);
        }
        Ok(Ready { batch, record, drawn: Drawn::OnHost(Box::new(slice)) })
    }

    /// Evaluation on the GPU, and its inputs.
    fn evaluation(&mut self) -> (&mut Evaluation, Parts<'_>) {
        let known = (self.features.as_deref(), self.lists.as_deref());
        (&mut self.evaluation, Parts { gpu: &self.gpu, plan: &self.plan, program: &self.program, known })
    }

    /// Counts what a part of a step waits for.
    fn counted<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, TrainError>) -> Result<T, TrainError> {
        let before = self.gpu.n_waits();
        let done = act(self).map_err(|error| error.advised(ADVICE));
        self.waits.n_waits += self.gpu.n_waits() - before;
        done
    }
}

impl<'a> Engine<'a> for BatchEngine<'a> {
    fn compute(&mut self, host: &mut Host<'a>, at: At, stage: &mut Stage<'_>) -> Result<(), TrainError> {
        self.counted(|engine| engine.start(host, at, stage))
    }

    fn update(&mut self, host: &mut Host<'a>, stage: &mut Stage<'_>) -> Result<(), TrainError> {
        self.counted(|engine| {
            stage.enter(Phase::Exchange);
            match engine.program.gradients() {
                _ if stage.world.n_ranks() == 1 => {}
                (own, Some(all)) => stage.world.collective().all_gather_on_gpu(&own, &all)?,
                (own, None) => stage.world.collective().all_reduce_on_gpu(&own)?,
            }
            stage.enter(Phase::Update);
            engine.step += 1;
            engine.waits.n_steps += 1;
            Ok(engine.program.update_by_slices(host.optimizer.factors(engine.step))?)
        })
    }

    fn n_ahead(&self) -> usize {
        1
    }

    fn tell(&mut self, host: &mut Host<'a>, stage: &mut Stage<'_>) -> Result<(), TrainError> {
        let n_slices = host.division.own(stage.step).len();
        self.counted(|engine| {
            while engine.finished.len() < n_slices {
                engine.finish(host, stage)?;
            }
            Ok(())
        })?;
        stage.tell(self.finished.drain(..n_slices).collect())
    }

    /// Rank 0 evaluates for all ranks if its GPU can; otherwise all evaluate on the CPU.
    fn evaluate(&mut self, host: &mut Host<'a>, room: &Room, world: &mut World) -> Result<Measured, TrainError> {
        let (evaluation, parts) = self.evaluation();
        if let Some(measured) = evaluation.evaluate(parts, (host.evaluated(), host.metric), None, world)? {
            return Ok(measured);
        }
        self.fetch_weights(host)?;
        host.with_evaluated(|model| self.evaluator.evaluate(model, host.evaluated(), host.metric, room, world))
    }

    fn evaluate_exactly(
        &mut self,
        host: &Host<'a>,
        weights: &Tensor,
        room: &Room,
        world: &mut World,
    ) -> Result<Measured, TrainError> {
        if !std::mem::replace(&mut self.is_exact, true) {
            self.evaluation = Evaluation::Undecided;
        }
        let own = Vec::<f32>::try_from(weights)?;
        let (evaluation, parts) = self.evaluation();
        if let Some(measured) = evaluation.evaluate(parts, (host.data, host.metric), Some(own), world)? {
            return Ok(measured);
        }
        host.with_weights(weights, |model| self.evaluator.evaluate(model, host.data, host.metric, room, world))
    }

    fn confusion(
        &mut self,
        host: &Host<'a>,
        weights: &Tensor,
        room: &Room,
        world: &mut World,
    ) -> Result<Confusion, TrainError> {
        let own = Vec::<f32>::try_from(weights)?;
        let (evaluation, parts) = self.evaluation();
        if let Some(found) = evaluation.confusion(parts, (host.data, &own), world)? {
            return Ok(found);
        }
        host.with_weights(weights, |model| self.evaluator.confusion(model, host.data, room, world))
    }

    fn evaluated_nodes(&self) -> Option<EvaluatedNodes> {
        self.evaluation.receptive().or(self.evaluator.sets()).map(ReceptiveSets::report)
    }

    fn fetch_weights(&self, host: &mut Host<'a>) -> Result<(), TrainError> {
        gpu::fetch_weights(&self.program, 0, host)
    }

    fn fetch(&self, host: &mut Host<'a>, step: u64) -> Result<(), TrainError> {
        self.fetch_weights(host)?;
        let (first, second) = self.program.moments_of(0)?;
        host.optimizer.set(step, &Tensor::from_slice(&first), &Tensor::from_slice(&second));
        Ok(())
    }

    fn note(&self) -> Option<String> {
        Some(place_of_features(self.features.as_ref().map(|features| features.share_on_gpu())))
    }

    fn host_syncs_per_step(&self) -> Option<f64> {
        Some(self.waits.per_step())
    }
}
