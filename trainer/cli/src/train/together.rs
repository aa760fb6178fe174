//! Several runs on one GPU, computed together: small graphs leave most of it idle.

use std::ops::ControlFlow;

use kith_trainer::{
    error::TrainError,
    gpu::Gpu,
    report::Report,
    run::{Plan, Run},
    train::train_together,
    world::World,
};

use super::how_it_goes;
use crate::progress::{Epochs, say};

/// Trains all runs, as many together as fit on the GPU.
pub(super) fn train_all(plans: Vec<Plan<'_>>, gpu: &Gpu) -> anyhow::Result<Vec<Report>> {
    let mut worlds: Vec<World> = plans.iter().map(|_| World::alone()).collect();
    let made = plans.into_iter().zip(&mut worlds).map(|(plan, world)| Run::new(plan, world));
    let mut runs = made.collect::<Result<Vec<Run<'_>>, TrainError>>()?;
    runs.iter().flat_map(Run::notes).for_each(|note| say(&format!("note: {note}")));
    // Runs that go on may stand at different steps; those of one step go on together.
    runs.sort_by_key(Run::n_steps);
    runs.chunk_by_mut(|a, b| a.n_steps() == b.n_steps()).try_for_each(|group| train_group(group, gpu))?;
    runs.sort_by_key(Run::run_key);
    let report = |run: &Run<'_>| run.report().ok_or_else(|| anyhow::anyhow!("no epoch was trained"));
    runs.iter().map(report).collect()
}

/// Trains runs that stand at one step: all at once, or where that is too much for the GPU, one half after the other.
fn train_group(runs: &mut [Run<'_>], gpu: &Gpu) -> Result<(), TrainError> {
    match Run::board(gpu, runs) {
        Err(TrainError::GpuMemory { .. }) if runs.len() > 1 => {
            let (first, rest) = runs.split_at_mut(runs.len() / 2);
            train_group(first, gpu)?;
            return train_group(rest, gpu);
        }
        boarded => boarded?,
    }
    let what = match runs {
        [run] => format!("{}, run key {}", run.name(), run.run_key()),
        _ => format!("{}, {} run keys", runs[0].name(), runs.len()),
    };
    let (n_epochs, epochs) = (runs[0].n_epochs(), runs[0].epochs());
    let mut shown = Epochs::begin(what, n_epochs, epochs);
    train_together(runs, |_, record| {
        shown.advance(record.epoch + 1, || how_it_goes(record));
        ControlFlow::Continue(())
    })?;
    runs.iter_mut().for_each(Run::leave_gpu);
    Ok(())
}
