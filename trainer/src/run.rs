//! One run: everything that the training loop needs, made new or from a checkpoint.

pub(crate) mod early_stop;
mod loop_state;
mod newest;
mod reported;
mod saved;
mod sessions;
mod start;
mod steps;
mod stopped;
mod within;

use std::{ops::Range, path::Path, sync::Arc, time::Instant};

use kith_kernels::cuda::Gpu;
use kith_run::{
    clock::Clock,
    config::{Kernels, Norm, RunConfig},
    measured::{Measured, Metric},
    memory_plan::MemoryPlan,
    phase::Phase,
    prediction::Moment,
    report::{Confusion, StepRecord},
    stop::Request,
};
use kith_store::LabelKind;
use tch::Device;

use self::{loop_state::LoopState, newest::newest, sessions::sessions_of, start::start_from};
use crate::{
    data::{
        Data,
        feed::Feed,
        opened::Source,
        slices::{self, Division},
        target_scale::TargetScale,
    },
    distributed::{exchange::Exchange, world::World},
    engine::{self, Engine, Host, TensorEngine},
    error::TrainError,
    inference::{
        evaluate::{check_sample, metric_of},
        layerwise::Room,
    },
    loss::NodeLoss,
    model::Model,
    optimizer::Optimizer,
    output::{checkpoint::Saver, keeper::Keeper, metrics::Metrics, run_folder::RunFolder},
};

/// A run that can start or go on.
#[derive(Debug)]
pub struct Run<'a> {
    pub(crate) host: Host<'a>,
    engine: Box<dyn Engine<'a> + 'a>,
    pub(crate) state: LoopState,
    world: &'a mut World,
    exchange: Exchange,
    clock: Clock,
    room: Room,
    /// Parts of the memory, if it is limited.
    memory: MemoryPlan,
    source: Source,
    device: Device,
    gpu: Option<Gpu>,
    gpu_rows: Option<u64>,
    /// Only rank 0 keeps anything.
    folder: Option<RunFolder>,
    saver: Saver,
    /// Time of the last checkpoint that was handed over, and its step.
    saved: (Instant, Option<u64>),
    /// Records of steps that nobody has taken yet.
    ready: Vec<StepRecord>,
    /// Time of the last record.
    recorded: Instant,
    /// Asked of any rank in the last exchange.
    asked: Option<Request>,
    /// True if it is time for a checkpoint on any rank.
    saves: bool,
    metrics: Arc<Metrics>,
    notes: Vec<String>,
    /// Names of all ranks at sampling servers; empty without servers.
    sessions: Vec<String>,
    /// Counted at the end.
    confusion: Option<Confusion>,
}

/// Parts of a run.
#[derive(Clone, Debug)]
pub struct RunPlan<'a> {
    /// Its config.
    pub config: RunConfig,
    /// Its seed.
    pub run_key: u64,
    /// Its data, loaded as the config says.
    pub data: &'a Data,
    /// Origin of the data.
    pub source: Source,
    /// Device of tensor operations.
    pub device: Device,
    /// GPU with its own kernels, if any.
    pub gpu: Option<Gpu>,
    /// GPU memory for features in mini-batch training, in bytes; `None`: half of the free memory.
    pub gpu_rows: Option<u64>,
    /// The folder to keep it in; without one nothing is kept. Only rank 0 looks at it.
    pub out: Option<&'a Path>,
    /// File of initial weights, in Kith's names or PyG's, or folder of a run; `None`: drawn. A checkpoint comes first.
    pub init: Option<&'a Path>,
    /// True to resume from the folder's newest checkpoint, if it has one.
    pub resume: bool,
    /// Keeper that is notified of news in the folder.
    pub keeper: Keeper,
    /// Memory limits of the process, and of evaluations over mini-batch data.
    pub room: Room,
    /// Metrics that record every step.
    pub metrics: Arc<Metrics>,
}

impl<'a> Run<'a> {
    /// Makes a run ready on every rank, from the checkpoint that rank 0 has if it is to go on.
    pub fn new(plan: RunPlan<'a>, world: &'a mut World) -> Result<Run<'a>, TrainError> {
        let clock = Clock::start();
        let RunPlan {
            mut config,
            run_key,
            data,
            source,
            device,
            gpu,
            gpu_rows,
            out,
            init,
            resume,
            keeper,
            room,
            metrics,
        } = plan;
        if device != Device::Cpu && config.train.kernels == Kernels::Fused {
            return Err(TrainError::KernelsOnCpu);
        }
        let mut notes: Vec<String> = Vec::new();
        let out = out.filter(|_| world.rank() == 0);
        // Before a checkpoint is sent to all ranks.
        world.agree(&[("graph", source.digest.clone()), ("seed", run_key.to_string())])?;
        let checkpoint = newest(out.filter(|_| resume), world, &mut notes)?;
        if let Some(checkpoint) = checkpoint.as_ref().filter(|_| config.train.batch_size_per_rank.is_some()) {
            // The number of ranks may be another one by now.
            config.train.batch_size = checkpoint.config()?.train.batch_size;
            config.train.batch_size_per_rank = None;
        }
        data.settle(&mut config, world.n_ranks());
        world.agree(&[("run file", config.to_toml())])?;
        let sessions = sessions_of(&source, world)?;
        let shape = data.shape();
        let model = Model::new(&config, shape.dim, shape.n_classes, run_key, device)?;
        if let Some(path) = init {
            notes.extend(start_from(&model, path)?);
        }
        let n_slices = data.n_slices(&config);
        slices::check(world.n_ranks(), n_slices, matches!(data, Data::Full(_)))?;
        let is_deterministic = config.train.deterministic.unwrap_or(device == Device::Cpu && gpu.is_none());
        // A resumed run begins evenly: its checkpoint knows no ranks.
        let first = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.state().step);
        let moves_from = (is_deterministic && device == Device::Cpu && gpu.is_none()).then_some(first);
        let division = Arc::new(Division::new((world.rank(), world.n_ranks()), n_slices, moves_from));
        let feed = Feed::new(data, &config, run_key, (world, Arc::clone(&division)))?;
        let steps_per_epoch = feed.steps_per_epoch() as u64;
        let weights = model.weights();
        let mut optimizer =
            Optimizer::new(&config, weights.entries(), steps_per_epoch, device).averaging(weights.flat());
        let node_loss = NodeLoss::new(&config.train, data)?;
        let metric = metric_of(&config.train, data)?;
        let sampled = match (data, &config.evaluate) {
            (Data::Batches(input), Some(evaluate)) if evaluate.sample < 1.0 => {
                let sampled = Data::Batches(input.sampled(evaluate.sample, run_key));
                check_sample(&config.train, evaluate.sample, &sampled)?;
                Some(sampled)
            }
            _ => None,
        };
        if config.model.norm() == Norm::Graph && matches!(data, Data::Batches(input) if input.is_set) {
            return Err(TrainError::GraphNorm);
        }
        if config.cgat.is_some() && shape.labels == LabelKind::Targets {
            let problem = "`model.kind`: a cgat compares classes, and these nodes have targets: use another model";
            return Err(TrainError::Labels(problem.to_owned()));
        }
        let mut state = LoopState::new(&config, metric);

        if let Some(checkpoint) = checkpoint {
            checkpoint.check_store(&source.digest)?;
            checkpoint.check_run(&config, run_key)?;
            let restored = checkpoint.restore(weights.entries())?;
            checkpoint.check_state(&config, shape, steps_per_epoch)?;
            if TargetScale::of_state(checkpoint.state()) != data.scales() {
                let problem =
                    "its targets have another mean or standard deviation than those of the graph's training nodes";
                return Err(checkpoint.wrong(problem));
            }
            weights.set(&restored.weights);
            optimizer = optimizer.resume(checkpoint.state().step, &restored.first, &restored.second);
            optimizer.set_average(restored.of(Moment::Last));
            state = LoopState::restore(checkpoint.state(), (&config, metric), restored.best.to_device(device));
            optimizer.schedule().set_reductions(state.plateau.n_reductions);
        }
        let exchange = Exchange::new(Arc::clone(&division), config.model.n_layers, is_deterministic, world);
        let most_pinned = if gpu.is_some() { room.most_pinned(world)? } else { 0 };
        let saver = Saver::default();
        let mut run = Run {
            host: Host {
                config,
                run_key,
                data,
                sampled,
                model,
                optimizer,
                node_loss,
                metric,
                feed,
                division,
                most_pinned,
            },
            engine: Box::new(TensorEngine::default()),
            state,
            world,
            exchange,
            clock,
            room,
            memory: MemoryPlan::default(),
            source,
            device,
            gpu: None,
            gpu_rows,
            folder: None,
            saver,
            saved: (Instant::now(), None),
            ready: Vec::new(),
            recorded: Instant::now(),
            asked: None,
            saves: false,
            metrics,
            notes,
            sessions,
            confusion: None,
        };
        if let Some(gpu) = gpu {
            Run::put_on_gpu(&gpu, std::slice::from_mut(&mut run))?;
        }
        run.plan_memory()?;
        let at = (run.state.step, run.state.epoch);
        run.metrics.follow(run.clock.current(), at, out.is_some());
        run.metrics.show_heartbeats(run.world.heartbeats());
        run.folder = match out {
            None => None,
            Some(dir) if resume => {
                Some(RunFolder::resume(dir, &run.host.config, run.state.n_recorded())?.kept_by(keeper))
            }
            Some(dir) => Some(RunFolder::create(dir, &run.host.config)?.kept_by(keeper)),
        };
        Ok(run)
    }

    /// Lets a GPU compute runs from here on. Several are computed together, which takes one graph.
    pub(crate) fn put_on_gpu(gpu: &Gpu, runs: &mut [Run<'a>]) -> Result<(), TrainError> {
        let gpu_rows = runs[0].gpu_rows;
        let slices = runs[0].exchange.rank_slices();
        let mut hosts: Vec<&mut Host<'a>> = runs.iter_mut().map(|run| &mut run.host).collect();
        let engines = engine::on_gpu(gpu, &mut hosts, gpu_rows, slices.as_ref())?;
        for (run, engine) in runs.iter_mut().zip(engines) {
            run.notes.extend(engine.note());
            run.engine = engine;
            run.gpu = Some(gpu.clone());
        }
        Ok(())
    }

    /// Leaves the GPU as it is: after a rank was lost, what it waits for may never come.
    pub fn abandon_gpu(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.engine, Box::new(TensorEngine::default())));
    }

    /// Frees the GPU's memory, once all runs on it have done so. A run that has ended has its weights here.
    pub(crate) fn free_gpu(&mut self) {
        self.engine = Box::new(TensorEngine::default());
    }

    /// Its seed.
    pub fn run_key(&self) -> u64 {
        self.host.run_key
    }

    /// Its config.
    pub fn config(&self) -> &RunConfig {
        &self.host.config
    }

    /// Its dataset and model.
    pub fn name(&self) -> String {
        format!("{} {}", self.source.dataset, self.host.config.name())
    }

    /// Epochs that it has at most.
    pub fn epochs(&self) -> u64 {
        self.host.config.train.epochs
    }

    /// Weight updates so far.
    pub fn n_steps(&self) -> u64 {
        self.state.step
    }

    /// True if there is nothing left to train.
    pub fn is_done(&self) -> bool {
        self.state.stopped_early || self.state.epoch >= self.host.config.train.epochs
    }

    /// Metric of evaluations.
    pub fn metric(&self) -> Metric {
        self.host.metric
    }

    /// Whole epochs so far.
    pub fn n_epochs(&self) -> u64 {
        self.state.epoch
    }

    /// Calls `act` with the model of evaluations: with `optimizer.ema`, with the average of its weights.
    pub fn with_evaluated<T>(&self, act: impl FnOnce(&Model) -> T) -> T {
        self.host.with_evaluated(act)
    }

    /// The model with the weights of training.
    pub fn model(&self) -> &Model {
        &self.host.model
    }

    /// Notes for the user about its preparation.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Sets the phase of this rank.
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.clock.enter(self.state.step, phase);
        self.world.enter(self.state.step, phase);
    }

    /// The slices of the next step that this rank computes.
    pub(crate) fn own_slices(&self) -> Range<usize> {
        self.host.division.own(self.state.step)
    }

    /// Ends an epoch whose last step is done: evaluates the model every `evaluate_every` epochs, and after the last, and adds
    /// that to the record. A run that is asked to stop leaves it for later.
    pub(crate) fn end_epoch(&mut self, record: &mut StepRecord) -> Result<(), TrainError> {
        if !self.ends_epoch() {
            return Ok(());
        }
        let (begun, n_epochs) = (Instant::now(), self.state.epoch + 1);
        let is_last = n_epochs >= self.host.config.train.epochs;
        if is_last || n_epochs.is_multiple_of(self.host.config.train.evaluate_every) {
            self.enter(Phase::Evaluate);
            let found = match self.evaluate() {
                Err(TrainError::Abandoned(request)) => return Err(self.leave_due(record, begun, request)?),
                found => found?,
            };
            if !found.valid_loss.is_finite() || self.state.is_best(&found) {
                self.engine.fetch_weights(&mut self.host)?;
            }
            let last_step = self.state.step.saturating_sub(1);
            self.host.check_finite(found.valid_loss, last_step, self.state.epoch, None, &[])?;
            self.state.hear_measured(found, self.host.evaluated_weights());
            self.state.hear_plateau(&self.host.config, found.valid);
            self.host.optimizer.schedule().set_reductions(self.state.plateau.n_reductions);
            let nodes = self.engine.evaluated_nodes();
            self.state.evaluated_nodes = nodes.or_else(|| self.state.evaluated_nodes.take());
            self.metrics.hear_measured(found);
            record.measured = Some(found);
        }
        self.state.epoch = n_epochs;
        record.micros += begun.elapsed().as_micros() as u64;
        self.recorded = Instant::now();
        Ok(())
    }

    fn evaluate(&mut self) -> Result<Measured, TrainError> {
        if let Some(request) = self.asked {
            return Err(TrainError::Abandoned(request));
        }
        self.engine.evaluate(&mut self.host, &self.room, self.world)
    }

    /// Keeps the record of a step, and adds its duration.
    pub(crate) fn record(&mut self, record: &StepRecord) -> Result<(), TrainError> {
        self.state.micros += record.micros;
        self.folder.as_mut().map_or(Ok(()), |folder| folder.record(record))
    }
}
