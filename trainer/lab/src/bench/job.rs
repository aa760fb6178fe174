//! Jobs: assignment of runs to CPU and GPU, and groups of runs that a GPU trains together.

use kith_run::config::{Kernels, Mode, RunConfig};
use kith_trainer::engine::{device, gpu::refusal};

use crate::{
    error::LabError,
    experiment::{Cell, Experiment, Manner, Workplace},
};

/// Minimum edges × hidden width at which a single run (not trained together with others) is worth a GPU.
const WORTH_A_GPU: u64 = 1 << 24;

/// One run of an experiment: a cell and a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    pub(super) cell: usize,
    pub(super) run_key: u64,
}

/// Runs that are computed together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) runs: Vec<Wanted>,
    /// Estimated cost: the most expensive job starts first.
    pub(super) cost: f64,
    /// Approximate bytes of one of its runs.
    pub(super) bytes: u64,
}

/// All jobs of an experiment.
#[derive(Debug, PartialEq)]
pub(super) struct Jobs {
    pub(super) on_gpu: Vec<Job>,
    pub(super) on_cpu: Vec<Job>,
    /// The GPU, if one was requested.
    pub(super) device: Option<String>,
}

impl Jobs {
    pub(super) fn plan(
        cells: &[Cell],
        missing: &[Wanted],
        experiment: &dyn Experiment,
        place: &Workplace,
    ) -> Result<Jobs, LabError> {
        let number = device::number_of(&place.device).map_err(LabError::Wrong)?;
        if number.is_some() && !missing.is_empty() {
            device::check(&place.device).map_err(LabError::Wrong)?;
        }
        Ok(Jobs::group(cells, missing, experiment, number.map(|_| place.device.clone())))
    }

    /// Groups runs into jobs: for the CPU, and for the GPU `device` if there is one.
    pub(super) fn group(
        cells: &[Cell],
        missing: &[Wanted],
        experiment: &dyn Experiment,
        device: Option<String>,
    ) -> Jobs {
        let mut jobs = Jobs { on_gpu: Vec::new(), on_cpu: Vec::new(), device };
        // Graph and shared settings of each GPU job.
        let mut shared: Vec<(String, String)> = Vec::new();
        for wanted in missing {
            let cell = &cells[wanted.cell];
            let (cost, bytes) = (cost(cell), bytes(cell));
            let job = Job { runs: vec![*wanted], cost, bytes };
            if jobs.device.is_none() || !is_for_gpu(cell, experiment) {
                jobs.on_cpu.push(job);
                continue;
            }
            let key = (cell.subject.opened.info().digest.clone(), in_common(&cell.config, wanted.run_key, experiment));
            let together = shared.iter().position(|own| *own == key).filter(|_| are_together(cell, experiment));
            match together {
                Some(place) => {
                    jobs.on_gpu[place].runs.push(*wanted);
                    jobs.on_gpu[place].cost += cost;
                }
                None => {
                    shared.push(key);
                    jobs.on_gpu.push(job);
                }
            }
        }
        for list in [&mut jobs.on_gpu, &mut jobs.on_cpu] {
            list.sort_by(|a, b| b.cost.total_cmp(&a.cost));
        }
        jobs
    }
}

/// True if a GPU trains several runs of a cell at once: full-batch, on one graph, with CUDA kernels.
pub(super) fn are_together(cell: &Cell, experiment: &dyn Experiment) -> bool {
    cell.config.train.mode == Mode::FullBatch
        && !cell.subject.opened.info().is_set
        && refusal(&cell.config).is_none()
        && !experiment.is_by_run_key(&cell.config)
        && experiment.manner() == Manner::Together
}

fn is_for_gpu(cell: &Cell, experiment: &dyn Experiment) -> bool {
    // Tensor operations on a GPU are slower than kernels on a few cores (GraphSAGE on Computers: 55 ms an epoch).
    let is_able = refusal(&cell.config).is_none() || cell.config.train.kernels == Kernels::Reference;
    match experiment.manner() {
        Manner::OnCpu => false,
        Manner::Alone => is_able,
        Manner::Together if are_together(cell, experiment) => true,
        // Models without kernels on either device gain most.
        Manner::Together => {
            is_able && (cell.config.train.kernels == Kernels::Reference || work_of_an_epoch(cell) >= WORTH_A_GPU)
        }
    }
}

/// Settings that runs of one group share: all but those that each run may set for itself.
fn in_common(config: &RunConfig, run_key: u64, experiment: &dyn Experiment) -> String {
    let mut config = config.clone();
    (config.optimizer.learning_rate, config.optimizer.weight_decay, config.model.dropout) = (1.0, 0.0, 0.0);
    config.train.epochs = 1;
    config.early_stop = None;
    if let Some(edge_loss) = config.edge_loss.as_mut().filter(|edge_loss| edge_loss.weight != 0.0) {
        edge_loss.weight = 1.0;
    }
    let own = if experiment.is_by_run_key(&config) { run_key.to_string() } else { String::new() };
    config.to_toml() + &own
}

fn hidden_width(cell: &Cell) -> u64 {
    let model = &cell.config.model;
    let heads = if model.kind.has_attention() { model.heads } else { 1 };
    (model.n_layers * heads * model.hidden) as u64
}

fn work_of_an_epoch(cell: &Cell) -> u64 {
    let info = cell.subject.opened.info();
    (info.n_edges + info.n_nodes) * hidden_width(cell)
}

fn cost(cell: &Cell) -> f64 {
    cell.config.train.epochs as f64 * work_of_an_epoch(cell) as f64
}

/// Bytes of a run beside the graph: matrices as wide as its layers for every node, and their gradients.
fn bytes(cell: &Cell) -> u64 {
    const N_MATRICES: u64 = 12;
    let info = cell.subject.opened.info();
    let width = hidden_width(cell) + (cell.config.model.out_heads * info.n_classes) as u64;
    let rows = info.n_nodes * info.dim as u64 / 4; // Mostly sparse, and shared; the first layer's dropout is not.
    4 * (N_MATRICES * info.n_nodes * width + rows) + (64 << 20)
}
