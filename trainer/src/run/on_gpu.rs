//! Runs that a GPU computes, and what the loop sees of them. Over one graph it computes whole steps: weights and moments are
//! there, and a run's own are fetched when somebody looks at them. Of everything else it computes slices: see
//! `slices_on_gpu.rs`.
//!
//! Runs that differ in nothing but numbers are computed together. Each still has a loop of its own, all at the same step: the
//! first that asks for a step computes it for all, and the others find it done.

use std::{cell::RefCell, rc::Rc};

use kith_kernels::cuda::{Gpu, Losses, Measured as Counted, Program};
use tch::Tensor;

use super::{Run, slices_on_gpu::Slices};
use crate::{
    checkpoint::Exact,
    config::RunConfig,
    data::Data,
    error::TrainError,
    exchange::SliceRecord,
    gpu,
    input::GraphInput,
    measured::{Measured, Metric},
    model::Model,
    optimizer::Adam,
    world::Phase,
};

/// Where a whole graph is too large for a GPU.
const ADVICE: &str = "train.mode = \"batches\" needs less, and --device cpu none";

/// How a GPU computes a run.
#[derive(Debug)]
pub(super) enum OnGpu<'a> {
    /// Whole steps, with the update of the weights.
    Steps(Steps),
    /// Gradients of slices.
    Slices(Box<Slices<'a>>),
}

/// One of the runs whose steps a GPU computes.
#[derive(Debug)]
pub(super) struct Steps {
    together: Rc<RefCell<Together>>,
    /// Which of them it is.
    place: usize,
    edge_weight: f64,
}

/// What runs on a GPU share.
#[derive(Debug)]
struct Together {
    program: Program,
    /// Steps so far, and what the last one came to.
    step: u64,
    losses: Vec<Losses>,
    /// What was measured, after which step.
    measured: Option<(u64, Vec<[Counted; 2]>)>,
    n_seeds: u64,
    n_edges: u64,
    /// Losses of the valid nodes that a mean is taken of.
    n_valid_terms: usize,
}

/// A run to be put on a GPU.
#[derive(Clone, Copy)]
pub(super) struct Passenger<'a> {
    pub(super) model: &'a Model,
    pub(super) optimizer: &'a Adam,
    pub(super) config: &'a RunConfig,
    pub(super) run_key: u64,
}

/// Puts runs on a GPU, with the weights and moments they have. All have done as many steps.
fn board(device: &Gpu, graph: &GraphInput, data: &Data, runs: &[Passenger<'_>]) -> Result<Vec<Steps>, TrainError> {
    let Passenger { model, optimizer, .. } = runs[0];
    let shape = data.shape();
    let settings: Vec<(RunConfig, u64)> = runs.iter().map(|run| (run.config.clone(), run.run_key)).collect();
    let program = gpu::program(device, model, graph, &settings, shape.n_classes)?;
    let all = |of: &dyn Fn(&Passenger<'_>) -> Tensor| -> Result<Vec<f32>, TrainError> {
        let each = runs.iter().map(|run| Vec::<f32>::try_from(of(run)));
        Ok(each.collect::<Result<Vec<_>, _>>()?.concat())
    };
    let weights = all(&|run| run.model.weights().flat().shallow_clone())?;
    let first = all(&|run| run.optimizer.moments().0.shallow_clone())?;
    let second = all(&|run| run.optimizer.moments().1.shallow_clone())?;
    assert!(runs.iter().all(|run| run.optimizer.step() == optimizer.step()), "runs go on from one step");
    program.set_state(optimizer.step(), &weights, &first, &second)?;
    let together = Rc::new(RefCell::new(Together {
        program,
        step: optimizer.step(),
        losses: Vec::new(),
        measured: None,
        n_seeds: graph.train.len() as u64,
        n_edges: (model.layers().len() * (graph.block.n_edges() - graph.block.n_destinations())) as u64,
        n_valid_terms: graph.valid.len() * if shape.is_multi_label { shape.n_classes } else { 1 },
    }));
    let passenger = |(place, run): (usize, &Passenger<'_>)| Steps {
        together: Rc::clone(&together),
        place,
        edge_weight: run.config.edge_loss.as_ref().map_or(0.0, |edge_loss| edge_loss.weight),
    };
    Ok(runs.iter().enumerate().map(passenger).collect())
}

impl Together {
    /// What the step after so many came to, for all runs.
    fn learn(&mut self, step: u64) -> Result<&[Losses], TrainError> {
        if self.step == step {
            self.program.step()?;
            self.step += 1;
            self.losses = self.program.losses()?;
        }
        assert_eq!(self.step, step + 1, "runs on a GPU keep step");
        Ok(&self.losses)
    }

    /// How good all runs are now.
    fn measure(&mut self) -> Result<&[[Counted; 2]], TrainError> {
        if self.measured.as_ref().is_none_or(|(step, _)| *step != self.step) {
            self.measured = Some((self.step, self.program.measure()?));
        }
        Ok(self.measured.as_ref().map_or(&[], |(_, measured)| measured))
    }
}

impl Steps {
    fn learn(&mut self, step: u64) -> Result<SliceRecord, TrainError> {
        let mut together = self.together.borrow_mut();
        let Losses { node, edges, n_left_out } = together.learn(step)?[self.place].clone();
        Ok(SliceRecord {
            loss: Exact(node + self.edge_weight * edges.iter().sum::<f64>()),
            node_loss: Exact(node),
            edge_losses: edges.into_iter().map(Exact).collect(),
            n_negatives_left_out: n_left_out,
            n_seeds: together.n_seeds,
            n_edges: together.n_edges,
            ..SliceRecord::default()
        })
    }

    fn measure(&self) -> Result<Measured, TrainError> {
        let mut together = self.together.borrow_mut();
        let [valid, test] = together.measure()?[self.place];
        let metric = |counted: Counted| match counted.n_said {
            0 => 0.0,
            n_said => (2 * counted.n_right) as f64 / (n_said + counted.n_true) as f64,
        };
        let valid_loss = valid.loss / together.n_valid_terms as f64;
        Ok(Measured { valid_loss, valid: metric(valid), test: metric(test) })
    }
}

impl<'a> Run<'a> {
    /// One slice of the next step by the GPU; `None` where there is none.
    pub(crate) fn learn_on_gpu(&mut self, slice: usize) -> Result<Option<SliceRecord>, TrainError> {
        let steps = match &mut self.on_gpu {
            None => return Ok(None),
            Some(OnGpu::Slices(_)) => {
                return self.with_slices(|run, slices| run.learn_slice_on_gpu(slices, slice)).map(Some);
            }
            Some(OnGpu::Steps(steps)) => steps,
        };
        self.clock.enter(Phase::Compute);
        let record = steps.learn(self.state.step)?;
        if !record.loss.0.is_finite() {
            self.fetch_all()?;
            self.check_finite(record.loss.0, self.state.step, None)?;
        }
        Ok(Some(record))
    }

    /// The gradient of the slice that was computed last; nothing where the GPU changes the weights itself.
    pub(super) fn last_gradient(&mut self) -> Tensor {
        match &mut self.on_gpu {
            None => self.model.weights().gradient(),
            Some(OnGpu::Slices(slices)) => slices.take_gradient(),
            Some(OnGpu::Steps(_)) => Tensor::from_slice::<f32>(&[]),
        }
    }

    /// Whether a GPU changes the weights.
    pub(super) fn is_updated_on_gpu(&self) -> bool {
        self.steps().is_some()
    }

    fn steps(&self) -> Option<&Steps> {
        match &self.on_gpu {
            Some(OnGpu::Steps(steps)) => Some(steps),
            _ => None,
        }
    }

    /// How good the model is, if a GPU has it and knows.
    pub(super) fn measure_on_gpu(&mut self) -> Result<Option<Measured>, TrainError> {
        if Metric::of(self.data) == Metric::Auc {
            self.fetch()?; // Pairs are measured here.
            return Ok(None);
        }
        self.steps().map(Steps::measure).transpose()
    }

    /// Fetches weights, if a GPU has them.
    pub(super) fn fetch(&mut self) -> Result<(), TrainError> {
        let Some(steps) = self.steps() else { return Ok(()) };
        let weights = steps.together.borrow().program.weights_of(steps.place)?;
        self.model.weights().set(&Tensor::from_slice(&weights));
        Ok(())
    }

    /// Fetches weights and moments, if a GPU has them.
    pub(super) fn fetch_all(&mut self) -> Result<(), TrainError> {
        self.fetch()?;
        let Some(steps) = self.steps() else { return Ok(()) };
        let (first, second) = steps.together.borrow().program.moments_of(steps.place)?;
        self.optimizer.set(self.state.step, &Tensor::from_slice(&first), &Tensor::from_slice(&second));
        Ok(())
    }

    /// Leaves the GPU, whose memory is free once all have left. What was there was fetched when the run ended.
    pub fn leave_gpu(&mut self) {
        self.on_gpu = None;
    }

    /// Puts runs that were made ready on a GPU. Several are computed together, which takes one graph.
    pub fn board(device: &Gpu, runs: &mut [Run<'a>]) -> Result<(), TrainError> {
        if let Some(sentence) = runs.iter().find_map(|run| gpu::refusal(&run.config.model)) {
            return Err(TrainError::NotOnGpu(sentence));
        }
        match (gpu::whole_graph(runs[0].data), &mut *runs) {
            (Some(graph), _) => {
                let passengers: Vec<Passenger<'_>> = runs.iter().map(Passenger::of).collect();
                let boarded = board(device, graph, runs[0].data, &passengers).map_err(|error| error.advised(ADVICE))?;
                for (run, steps) in runs.iter_mut().zip(boarded) {
                    run.on_gpu = Some(OnGpu::Steps(steps));
                }
            }
            (None, [run]) => run.on_gpu = Some(OnGpu::Slices(Box::new(Slices::new(device, run)?))),
            (None, _) => unreachable!("runs that are computed together share one graph"),
        }
        runs.iter_mut().for_each(|run| run.gpu = Some(device.clone()));
        Ok(())
    }
}

impl<'a> Passenger<'a> {
    fn of(run: &'a Run<'_>) -> Passenger<'a> {
        Passenger { model: &run.model, optimizer: &run.optimizer, config: &run.config, run_key: run.run_key }
    }
}
