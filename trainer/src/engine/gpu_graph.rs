//! Full-batch training of one graph on a GPU: whole steps, with weights and moments on the GPU.
//!
//! Runs that differ only in numbers are computed together. Each has its own engine, all at the same step: the first
//! engine that is asked for a step computes it for all runs, and the others find it done.

use std::{cell::RefCell, rc::Rc};

use kith_kernels::cuda::{Gpu, Losses, Measured as Counted, Program};
use kith_run::{
    config::RunConfig,
    measured::{Measured, Metric},
    phase::Phase,
    report::Confusion,
};
use kith_store::LabelKind;
use tch::Tensor;

use super::{Engine, gpu_losses::with_losses, host::Host, stage::Stage};
use crate::{
    data::{feed::At, input::GraphInput, matrix::Matrix},
    distributed::{exchange::SliceRecord, world::World},
    engine::gpu,
    error::TrainError,
    inference::{
        confusion,
        evaluate::{Evaluator, measure_logits, needs_scores},
        layerwise::Room,
        tally::Tally,
    },
    optimizer::Schedule,
};

/// Advice for a graph that is too large for a GPU.
const ADVICE: &str = "train.mode = \"mini-batch\" needs less, and --device cpu none";

/// One of the runs whose steps a GPU computes.
#[derive(Debug)]
pub(super) struct GraphEngine {
    together: Rc<RefCell<Together>>,
    /// Its number among the runs.
    place: usize,
    /// Record of the step that was computed.
    record: Option<SliceRecord>,
}

/// Runs that are computed together.
#[derive(Debug)]
struct Together {
    program: Program,
    /// Courses of the learning rate, by run.
    schedules: Vec<Schedule>,
    /// Steps so far, and the losses of the last.
    step: u64,
    losses: Vec<Losses>,
    /// The last evaluation, and its step.
    measured: Option<(u64, Vec<[Counted; 2]>)>,
    /// Step whose weights computed the last outputs without dropout, for metrics that need logits.
    evaluated: Option<u64>,
    n_seeds: u64,
    n_edges: u64,
    /// Losses that the mean over the valid nodes is taken of.
    n_valid_terms: u64,
}

impl GraphEngine {
    /// Puts runs on a GPU, with the weights and moments they have. All have done as many steps.
    pub(super) fn new(
        device: &Gpu,
        graph: &GraphInput,
        hosts: &[&mut Host<'_>],
    ) -> Result<Vec<GraphEngine>, TrainError> {
        GraphEngine::make(device, graph, hosts).map_err(|error| error.advised(ADVICE))
    }

    fn make(device: &Gpu, graph: &GraphInput, hosts: &[&mut Host<'_>]) -> Result<Vec<GraphEngine>, TrainError> {
        let Host { model, optimizer, data, .. } = &*hosts[0];
        let shape = data.shape();
        let runs: Vec<(&RunConfig, u64)> = hosts.iter().map(|host| (&host.config, host.run_key)).collect();
        let training = gpu::training_plan(hosts[0]);
        let program = gpu::program(device, model, graph, &runs, training, shape.n_classes)?;
        let all = |of: &dyn Fn(&Host<'_>) -> Tensor| -> Result<Vec<f32>, TrainError> {
            let each = hosts.iter().map(|host| Vec::<f32>::try_from(of(host)));
            Ok(each.collect::<Result<Vec<_>, _>>()?.concat())
        };
        let weights = all(&|host| host.model.weights().flat().shallow_clone())?;
        let first = all(&|host| host.optimizer.moments().0.shallow_clone())?;
        let second = all(&|host| host.optimizer.moments().1.shallow_clone())?;
        assert!(hosts.iter().all(|host| host.optimizer.step() == optimizer.step()), "runs go on from one step");
        program.set_state(optimizer.step(), &weights, &first, &second)?;
        program.set_averages(&all(&|host| host.evaluated_weights().shallow_clone())?)?;
        let n_losses = if shape.labels == LabelKind::MultiLabel { shape.n_classes } else { 1 };
        let together = Rc::new(RefCell::new(Together {
            program,
            schedules: hosts.iter().map(|host| host.optimizer.schedule().clone()).collect(),
            step: optimizer.step(),
            losses: Vec::new(),
            measured: None,
            evaluated: None,
            n_seeds: graph.train.len() as u64,
            n_edges: (model.layers().len() * (graph.block.n_edges() - graph.block.n_destinations())) as u64,
            n_valid_terms: (graph.valid.len() * n_losses) as u64,
        }));
        Ok((0..hosts.len()).map(|place| GraphEngine { together: Rc::clone(&together), place, record: None }).collect())
    }
}

impl Together {
    /// Losses of the step after `step` updates, all runs.
    fn compute(&mut self, step: u64) -> Result<&[Losses], TrainError> {
        if self.step == step {
            if !self.schedules[0].is_constant() {
                let rates: Vec<f64> = self.schedules.iter().map(|schedule| schedule.rate(step)).collect();
                self.program.set_rates(&rates)?;
            }
            self.program.step()?;
            self.step += 1;
            self.losses = self.program.losses()?;
        }
        assert_eq!(self.step, step + 1, "runs on a GPU keep step");
        Ok(&self.losses)
    }

    /// Logits of all nodes without dropout, of one run.
    fn logits_of(&mut self, run: usize) -> Result<Vec<f32>, TrainError> {
        if self.evaluated != Some(self.step) {
            self.program.with_averages(Program::evaluate)?;
            self.evaluated = Some(self.step);
        }
        Ok(self.program.with_averages(|program| program.logits_of(run))?)
    }

    /// Logits of all nodes of one run with other weights.
    fn logits_with(&mut self, run: usize, weights: &[f32]) -> Result<Vec<f32>, TrainError> {
        self.evaluated = None; // The outputs are no longer those of the step.
        let own = self.program.weights_of(run)?;
        self.program.set_weights(run, weights)?;
        let logits = self.program.evaluate().and_then(|()| self.program.logits_of(run));
        self.program.set_weights(run, &own)?;
        Ok(logits?)
    }

    /// Sums over the valid and test nodes, all runs.
    fn evaluate(&mut self) -> Result<&[[Counted; 2]], TrainError> {
        if self.measured.as_ref().is_none_or(|(step, _)| *step != self.step) {
            self.measured = Some((self.step, self.program.with_averages(Program::measure)?));
        }
        Ok(self.measured.as_ref().map_or(&[], |(_, measured)| measured))
    }
}

impl<'a> Engine<'a> for GraphEngine {
    /// The step changes the weights, too.
    fn compute(&mut self, host: &mut Host<'a>, at: At, stage: &mut Stage<'_>) -> Result<(), TrainError> {
        stage.enter(Phase::Compute);
        let mut record = {
            let mut together = self.together.borrow_mut();
            let losses = together.compute(at.step)?[self.place].clone();
            let counts = SliceRecord { n_seeds: together.n_seeds, n_edges: together.n_edges, ..SliceRecord::default() };
            with_losses(counts, losses, host.edge_weight())
        };
        if !record.loss.0.is_finite() {
            self.fetch(host, at.step)?;
            record.edge_losses.clear();
            host.check_slice(at, &record, None)?;
        }
        self.record = Some(record);
        Ok(())
    }

    fn update(&mut self, _host: &mut Host<'a>, stage: &mut Stage<'_>) -> Result<(), TrainError> {
        stage.enter(Phase::Update);
        stage.tell(self.record.take().into_iter().collect())
    }

    fn evaluate(&mut self, host: &mut Host<'a>, room: &Room, world: &mut World) -> Result<Measured, TrainError> {
        if host.metric == Metric::Auc {
            self.fetch_weights(host)?; // Pairs are evaluated on the host.
            let mut evaluator = Evaluator::default();
            return host.with_evaluated(|model| evaluator.evaluate(model, host.data, host.metric, room, world));
        }
        let mut together = self.together.borrow_mut();
        if let (true, Some(graph)) = (needs_scores(host.metric), gpu::whole_graph(host.data)) {
            let (values, width) = (together.logits_of(self.place)?, host.data.shape().n_classes);
            return Ok(measure_logits(graph, &Matrix { values, width }, host.metric, host.data.scales()));
        }
        let n_valid_terms = together.n_valid_terms;
        let [valid, test] = together.evaluate()?[self.place];
        Ok(Tally::measured(Tally::of_counted(valid, n_valid_terms), Tally::of_counted(test, 0)))
    }

    fn evaluate_exactly(
        &mut self,
        _host: &Host<'a>,
        _weights: &Tensor,
        _room: &Room,
        _world: &mut World,
    ) -> Result<Measured, TrainError> {
        unreachable!("full-batch evaluations look at all nodes")
    }

    fn confusion(
        &mut self,
        host: &Host<'a>,
        weights: &Tensor,
        _room: &Room,
        _world: &mut World,
    ) -> Result<Confusion, TrainError> {
        let width = host.data.shape().n_classes;
        let mut found = confusion::zeros(width);
        if let Some(graph) = gpu::whole_graph(host.data) {
            let values = self.together.borrow_mut().logits_with(self.place, &Vec::try_from(weights)?)?;
            confusion::add_graph(&mut found, graph, &Matrix { values, width });
        }
        Ok(found)
    }

    fn fetch_weights(&self, host: &mut Host<'a>) -> Result<(), TrainError> {
        gpu::fetch_weights(&self.together.borrow().program, self.place, host)
    }

    fn fetch(&self, host: &mut Host<'a>, step: u64) -> Result<(), TrainError> {
        self.fetch_weights(host)?;
        let (first, second) = self.together.borrow().program.moments_of(self.place)?;
        host.optimizer.set(step, &Tensor::from_slice(&first), &Tensor::from_slice(&second));
        Ok(())
    }
}
