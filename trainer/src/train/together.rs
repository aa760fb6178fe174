//! Several runs computed together on one GPU: small graphs leave most of it idle.

use std::ops::ControlFlow;

use kith_kernels::cuda::Gpu;
use kith_run::report::StepRecord;

use crate::{error::TrainError, run::Run, train::train_runs};

/// Observer of runs.
pub trait Watch {
    /// These start, or go on, together.
    fn begin(&mut self, runs: &[Run<'_>]);

    /// One of them did a step.
    fn step(&mut self, record: &StepRecord);

    /// One of them is at its end.
    fn end(&mut self, run: &Run<'_>);
}

/// Trains runs of one graph that differ only in numbers, as many together as fit on the GPU. Afterwards they have left
/// it, in the order of their steps and seeds.
pub fn train_all(runs: &mut [Run<'_>], gpu: &Gpu, watch: &mut dyn Watch) -> Result<(), TrainError> {
    // Runs that go on may stand at different steps; those of one step go on together.
    let place = |run: &Run<'_>| (run.n_steps(), run.is_due());
    runs.sort_by_key(place);
    runs.chunk_by_mut(|a, b| place(a) == place(b)).try_for_each(|group| train_group(group, gpu, watch))
}

/// Trains runs that stand at one step: all at once, or where that is too much for the GPU, one half after the other.
fn train_group(runs: &mut [Run<'_>], gpu: &Gpu, watch: &mut dyn Watch) -> Result<(), TrainError> {
    match Run::put_on_gpu(gpu, runs) {
        Err(TrainError::GpuMemory { .. }) if runs.len() > 1 => {
            let (first, rest) = runs.split_at_mut(runs.len() / 2);
            train_group(first, gpu, watch)?;
            return train_group(rest, gpu, watch);
        }
        boarded => boarded?,
    }
    watch.begin(runs);
    let heard = std::cell::RefCell::new(watch);
    let step = |_, record: &StepRecord| {
        heard.borrow_mut().step(record);
        ControlFlow::Continue(())
    };
    train_runs(runs, step, |run| heard.borrow_mut().end(run))?;
    runs.iter_mut().for_each(Run::free_gpu);
    Ok(())
}
