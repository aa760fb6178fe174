//! Runs all cells of an experiment: reuses finished runs and trains the others, several at a time.

mod cpu;
mod gpu;
mod job;
mod shared;

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

use kith_partition::progress::{Piece, Progress, Unit};
use kith_trainer::engine::device::{self, devices};

use self::{
    job::{Jobs, Wanted},
    shared::Shared,
};
use crate::{
    error::LabError,
    experiment::{Cell, Done, Experiment, Manner, Workplace},
    findings::Machine,
    kept::FinishedRuns,
};

/// Trains all unfinished runs and returns the runs of every cell.
pub fn run(
    cells: Vec<Cell>,
    experiment: &dyn Experiment,
    place: &Workplace,
    progress: &dyn Progress,
) -> Result<Vec<Done>, LabError> {
    device::start();
    let kept = train_missing(&cells, experiment, place, progress)?;
    let done = |cell: Cell| {
        let run = |run_key| kept.get(&cell.id(experiment, run_key)).cloned().expect("all runs are finished");
        let runs = cell.run_keys.clone().map(run).collect();
        Done { cell, runs }
    };
    Ok(cells.into_iter().map(done).collect())
}

fn train_missing(
    cells: &[Cell],
    experiment: &dyn Experiment,
    place: &Workplace,
    progress: &dyn Progress,
) -> Result<FinishedRuns, LabError> {
    let n_workers = match experiment.manner() {
        Manner::Alone => 1,
        _ => place.n_workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)),
    };
    let kept = FinishedRuns::open(&place.dir)?;
    let all: Vec<Wanted> = (0..cells.len())
        .flat_map(|cell| cells[cell].run_keys.clone().map(move |run_key| Wanted { cell, run_key }))
        .collect();
    let is_kept = |wanted: &Wanted| kept.get(&cells[wanted.cell].id(experiment, wanted.run_key)).is_some();
    let missing: Vec<Wanted> = all.iter().copied().filter(|wanted| !is_kept(wanted)).collect();
    let Jobs { on_gpu, on_cpu, device } = Jobs::plan(cells, &missing, experiment, place)?;
    if missing.is_empty() {
        return Ok(kept);
    }
    let what = match all.len() - missing.len() {
        0 => "training".to_owned(),
        n_kept => format!("training, {n_kept} more runs are finished already"),
    };
    let shown = Piece::begin(progress, &what, Some(missing.len() as u64), Unit::Runs);
    let shared = Shared { cells, experiment, kept: Mutex::new(kept), shown, failed: Mutex::new(None) };
    thread::scope(|scope| {
        let shared = &shared;
        if let Some(device) = device.filter(|_| !on_gpu.is_empty()) {
            let on_gpu = scope.spawn(move || shared.guard(|| gpu::work(shared, on_gpu, &device)));
            if experiment.manner() == Manner::Alone {
                let _ = on_gpu.join();
            }
        }
        cpu::work(scope, shared, on_cpu, n_workers, place.memory);
    });
    let failed = shared.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let kept = shared.kept.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(kept), Err)
}

/// Hardware and versions that computed an experiment.
pub fn machine(done: &[Done]) -> Machine {
    let report = devices();
    let mut names: Vec<String> = done.iter().flat_map(|done| &done.runs).map(|run| run.device.clone()).collect();
    names.sort();
    names.dedup();
    Machine {
        devices: names,
        instruction_set: report.instruction_set.to_owned(),
        n_threads: report.n_threads,
        kith: env!("CARGO_PKG_VERSION").to_owned(),
        libtorch: report.libtorch.to_owned(),
    }
}

#[cfg(test)]
mod tests;
