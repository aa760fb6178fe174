//! One run: everything the loop needs, made new or from a checkpoint.

use std::{path::Path, time::Instant};

use kith_client::RowCounts;
use tch::{Device, Tensor};

use crate::{
    checkpoint::{self, Checkpoint, Exact, FORMAT_VERSION, SavedState, Tensors},
    config::{Kernels, RunConfig},
    data::Data,
    device::devices,
    early_stop::{Best, EarlyStop},
    error::TrainError,
    evaluate::{Measured, Metric, evaluate},
    feed::Feed,
    layerwise::Room,
    model::{Forward, Model, Sample},
    optimizer::Adam,
    report::{CHECKPOINT, Report, Results, RowsReport, RunFolder, StepRecord},
    weights::Weights,
};

/// A run that can start or go on.
#[derive(Debug)]
pub struct Run<'a> {
    pub(crate) config: RunConfig,
    pub(crate) run_key: u64,
    pub(crate) feed: Feed<'a>,
    pub(crate) model: Model,
    pub(crate) optimizer: Adam,
    pub(crate) state: LoopState,
    data: &'a Data,
    room: Room,
    source: Source,
    device: Device,
    folder: Option<RunFolder>,
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// What is trained, and how.
    pub config: RunConfig,
    /// Names all randomness of the run.
    pub run_key: u64,
    /// What it learns from, loaded as the config says.
    pub data: &'a Data,
    /// Where that came from.
    pub source: Source,
    /// Where to compute.
    pub device: Device,
    /// The folder to keep it in; without one nothing is kept.
    pub out: Option<&'a Path>,
    /// Whether to go on from the folder's checkpoint, if it has one.
    pub resume: bool,
    /// How much a measuring pass over batches' data may hold.
    pub room: Room,
}

/// Where the graphs of a run came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The dataset or generator that the store was made from.
    pub dataset: String,
    /// Identity of the store.
    pub digest: String,
}

impl Source {
    /// What an open graph says of itself.
    pub fn of(info: &kith_client::Info) -> Source {
        let dataset = match info.source.split_once(" (").map_or(info.source.as_str(), |(name, _)| name) {
            // Graphs that are made are called what the command that makes them calls them.
            "random partition graph" => "partition-graph",
            "power-law graph" => "power-law",
            name => name,
        };
        Source { dataset: dataset.to_owned(), digest: info.digest.clone() }
    }
}

/// All that changes while a run goes on, beside weights and moments.
#[derive(Debug)]
pub(crate) struct LoopState {
    /// Weight updates so far.
    pub(crate) step: u64,
    /// Epochs so far.
    pub(crate) epoch: u64,
    pub(crate) n_negatives_left_out: u64,
    pub(crate) row_counts: RowCounts,
    pub(crate) micros: u64,
    micros_measuring: u64,
    early_stop: Option<EarlyStop>,
    stopped_early: bool,
    best: Option<(Best, Tensor)>,
    last: Option<Measured>,
}

impl LoopState {
    /// Hears how good an epoch's weights are.
    fn hear(&mut self, measured: Measured, weights: &Weights) {
        let Measured { valid_loss, valid, test } = measured;
        if Best::is_reached(self.best.as_ref().map(|(best, _)| best), valid) {
            self.best = Some((Best { epoch: self.epoch, valid, test }, weights.flat().copy()));
        }
        if let Some(early_stop) = &mut self.early_stop {
            self.stopped_early = early_stop.hear(self.epoch, valid_loss, valid);
        }
        self.last = Some(measured);
    }
}

impl<'a> Run<'a> {
    /// Makes a run ready, from its folder's checkpoint if it is to go on.
    pub fn new(plan: Plan<'a>) -> Result<Run<'a>, TrainError> {
        let Plan { mut config, run_key, data, source, device, out, resume, room } = plan;
        if device != Device::Cpu && config.train.kernels == Kernels::Fused {
            return Err(TrainError::KernelsOnCpu);
        }
        data.settle(&mut config);
        let shape = data.shape();
        let model = Model::new(&config, shape.dim, shape.n_classes, run_key, device)?;
        let feed = Feed::new(data, &config, run_key)?;
        let n_weights = model.weights().n_elements() as i64;
        let mut optimizer = Adam::new(config.train.learning_rate, config.train.weight_decay, n_weights, device);
        let mut state = LoopState {
            step: 0,
            epoch: 0,
            n_negatives_left_out: 0,
            row_counts: RowCounts::default(),
            micros: 0,
            micros_measuring: 0,
            early_stop: config.early_stop.clone().map(EarlyStop::new),
            stopped_early: false,
            best: None,
            last: None,
        };
        let path = out.map(|dir| dir.join(CHECKPOINT)).filter(|path| resume && path.exists());
        if let Some(path) = path {
            let checkpoint = Checkpoint::load(&path)?;
            checkpoint.check_store(&source.digest)?;
            checkpoint.check_run(&config, run_key)?;
            let restored = checkpoint.restore(model.weights().entries())?;
            model.weights().set(&restored.weights);
            optimizer = optimizer.resume(checkpoint.state.step, &restored.first, &restored.second);
            state.restore(&checkpoint.state, &config, restored.best.to_device(device));
        }
        let folder = match out {
            None => None,
            Some(dir) if resume => Some(RunFolder::resume(dir, &config, state.step)?),
            Some(dir) => Some(RunFolder::create(dir, &config)?),
        };
        Ok(Run { config, run_key, feed, model, optimizer, state, data, room, source, device, folder })
    }

    /// Whether there is nothing left to train.
    pub fn is_done(&self) -> bool {
        self.state.stopped_early || self.state.epoch >= self.config.train.epochs
    }

    /// Epochs so far.
    pub fn n_epochs(&self) -> u64 {
        self.state.epoch
    }

    /// The model as it is now.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What came of the run so far; `None` before an epoch was measured.
    pub fn report(&self) -> Option<Report> {
        let (best, _) = self.state.best.as_ref()?;
        let last = self.state.last?;
        let machine = devices();
        let RowCounts { local, cached, remote } = self.state.row_counts;
        Some(Report {
            dataset: self.source.dataset.clone(),
            model: self.config.name(),
            run_key: self.run_key,
            results: Results {
                epochs: self.state.epoch,
                steps: self.state.step,
                stopped_early: self.state.stopped_early,
                best_epoch: best.epoch,
                valid: best.valid,
                test: best.test,
                valid_last: last.valid,
                test_last: last.test,
                valid_loss_last: last.valid_loss,
                seconds: self.state.micros as f64 / 1e6,
                seconds_measuring: self.state.micros_measuring as f64 / 1e6,
            },
            metric: Metric::of(self.data.shape()),
            n_weights: self.model.weights().n_elements(),
            n_negatives_left_out: self.state.n_negatives_left_out,
            rows: matches!(self.data, Data::Batches(_)).then_some(RowsReport { local, cached, remote }),
            store_digest: self.source.digest.clone(),
            instruction_set: machine.instruction_set,
            device: match self.device {
                Device::Cuda(index) => format!("cuda:{index}"),
                _ => "cpu".to_owned(),
            },
            kith: env!("CARGO_PKG_VERSION"),
            libtorch: machine.libtorch,
            run_file: self.config.to_toml(),
        })
    }

    pub(crate) fn record(&mut self, record: &StepRecord) -> Result<(), TrainError> {
        self.folder.as_mut().map_or(Ok(()), |folder| folder.record(record))
    }

    /// Saves a checkpoint after every so many epochs, and after the last.
    pub(crate) fn save_now_and_then(&self) -> Result<(), TrainError> {
        let is_time = self.state.epoch.is_multiple_of(self.config.train.checkpoint_every);
        let Some(folder) = self.folder.as_ref().filter(|_| is_time || self.is_done()) else { return Ok(()) };
        folder.sync()?;
        let (first, second) = self.optimizer.moments();
        let weights = self.model.weights();
        let best = self.state.best.as_ref().map_or(weights.flat(), |(_, best)| best);
        let tensors = Tensors { weights, first, second, best };
        checkpoint::save(&folder.checkpoint(), &self.saved_state(), &tensors)
    }

    pub(crate) fn finish(&self) -> Result<(), TrainError> {
        match (&self.folder, self.report()) {
            (Some(folder), Some(report)) => folder.report(&report),
            _ => Ok(()),
        }
    }

    /// Ends an epoch: measures the model as it is after every so many, and after the last.
    pub(crate) fn end_epoch(&mut self) -> Result<Option<Measured>, TrainError> {
        let n_epochs = self.state.epoch + 1;
        let is_last = n_epochs >= self.config.train.epochs;
        let mut measured = None;
        if is_last || n_epochs.is_multiple_of(self.config.train.evaluate_every) {
            let started = Instant::now();
            let found = evaluate(&self.model, self.data, &self.room)?;
            self.check_finite(found.valid_loss, None)?;
            self.state.hear(found, self.model.weights());
            self.state.micros_measuring += started.elapsed().as_micros() as u64;
            measured = Some(found);
        }
        self.state.epoch = n_epochs;
        Ok(measured)
    }

    /// Stops a run whose loss is not finite, naming the first layer with a part that is not. `forward` is the pass that
    /// gave the loss, and what it read; without one it was a pass that measures.
    pub(crate) fn check_finite(&self, loss: f64, forward: Option<(&Sample, &Forward)>) -> Result<(), TrainError> {
        if loss.is_finite() {
            return Ok(());
        }
        let is_finite = |tensor: &Tensor| tensor.isfinite().all().int64_value(&[]) == 1;
        let traced = match (forward, self.data) {
            (Some((sample, _)), _) => Some(self.model.trace(sample)?),
            (None, Data::Full(input)) => Some(self.model.trace(&input.graphs[0].sample(self.model.layers().len()))?),
            // What does not fit into memory is not traced: the weights tell.
            (None, Data::Batches(_)) => None,
        };
        let edge_losses = forward.map_or(&[][..], |(_, forward)| &forward.edge_losses);
        let of_layer = |layer: usize| {
            let own = format!("layers.{layer}.");
            let entries = self.model.weights().entries().iter().filter(|entry| entry.name.starts_with(&own));
            let mut weights = entries.filter_map(|entry| self.model.weights().get(&entry.name));
            if weights.any(|weight| !is_finite(weight)) {
                return Some(format!("the weights of layer {layer} are the first that are not"));
            }
            if traced.as_ref().is_some_and(|traced| !is_finite(&traced.rows[layer])) {
                return Some(format!("the output of layer {layer} is the first that is not"));
            }
            edge_losses
                .get(layer)
                .filter(|loss| !is_finite(loss))
                .map(|_| format!("the edge loss of layer {layer} is the first that is not"))
        };
        let n_layers = self.model.layers().len();
        let place = (0..n_layers).find_map(of_layer);
        // What dropout made too large may be finite without it.
        let place = place.unwrap_or_else(|| format!("the output of layer {} is the first that is not", n_layers - 1));
        let step = if forward.is_some() { self.state.step } else { self.state.step.saturating_sub(1) };
        Err(TrainError::NotFinite { step, epoch: self.state.epoch, place })
    }

    fn saved_state(&self) -> SavedState {
        let state = &self.state;
        let (losses, metrics) = state.early_stop.as_ref().map(EarlyStop::remembered).unwrap_or_default();
        let exact = |values: Vec<f64>| values.into_iter().map(Exact).collect();
        let shape = self.data.shape();
        SavedState {
            format_version: FORMAT_VERSION,
            run_file: self.config.to_toml(),
            run_key: self.run_key,
            store_digest: self.source.digest.clone(),
            dim: shape.dim,
            n_classes: shape.n_classes,
            is_multi_label: shape.is_multi_label,
            step: state.step,
            epoch: state.epoch,
            stopped_early: state.stopped_early,
            losses: exact(losses),
            metrics: exact(metrics),
            best: state.best.as_ref().map(|(best, _)| (best.epoch, Exact(best.valid), Exact(best.test))),
            last: state.last.map(|last| (Exact(last.valid_loss), Exact(last.valid), Exact(last.test))),
            n_negatives_left_out: state.n_negatives_left_out,
            row_counts: (state.row_counts.local, state.row_counts.cached, state.row_counts.remote),
            micros: state.micros,
            micros_measuring: state.micros_measuring,
        }
    }
}

impl LoopState {
    fn restore(&mut self, saved: &SavedState, config: &RunConfig, best_weights: Tensor) {
        let numbers = |values: &[Exact]| values.iter().map(|value| value.0).collect();
        let (local, cached, remote) = saved.row_counts;
        let best = saved.best.map(|(epoch, valid, test)| Best { epoch, valid: valid.0, test: test.0 });
        let measured = |(valid_loss, valid, test): (Exact, Exact, Exact)| Measured {
            valid_loss: valid_loss.0,
            valid: valid.0,
            test: test.0,
        };
        *self = LoopState {
            step: saved.step,
            epoch: saved.epoch,
            n_negatives_left_out: saved.n_negatives_left_out,
            row_counts: RowCounts { local, cached, remote },
            micros: saved.micros,
            micros_measuring: saved.micros_measuring,
            early_stop: config
                .early_stop
                .clone()
                .map(|rule| EarlyStop::resume(rule, numbers(&saved.losses), numbers(&saved.metrics))),
            stopped_early: saved.stopped_early,
            best: best.map(|best| (best, best_weights)),
            last: saved.last.map(measured),
        };
    }
}
