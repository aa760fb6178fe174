//! The training loop.

pub mod together;

use std::ops::ControlFlow;

use kith_run::report::StepRecord;

use crate::{error::TrainError, run::Run};

/// Trains a run to its end. Fresh or resumed, on any number of ranks, it computes the same. `watch` gets every step and
/// may break off, like a killed process: unsaved progress is lost. A run that is asked to stop saves a checkpoint and
/// ends with [`TrainError::Asked`].
pub fn train(run: &mut Run<'_>, mut watch: impl FnMut(&StepRecord) -> ControlFlow<()>) -> Result<(), TrainError> {
    train_runs(std::slice::from_mut(run), |_, record| watch(record), |_| ())
}

/// Trains runs, a step of each in turn. `watch` gets every step and the number of its run; `ended` gets every run at
/// its end.
pub fn train_runs(
    runs: &mut [Run<'_>],
    mut watch: impl FnMut(usize, &StepRecord) -> ControlFlow<()>,
    mut ended: impl FnMut(&Run<'_>),
) -> Result<(), TrainError> {
    let mut waiting: Vec<usize> = (0..runs.len()).collect();
    while !waiting.is_empty() {
        let mut stopped = Ok(());
        for place in std::mem::take(&mut waiting) {
            let run = &mut runs[place];
            if !run.is_done() {
                match turn(run, |record| watch(place, record)) {
                    Ok(ControlFlow::Continue(())) => {}
                    Ok(ControlFlow::Break(())) => return Ok(()),
                    // The others of this round stop at the same step.
                    Err(asked @ TrainError::Asked { .. }) => stopped = Err(asked),
                    Err(error) => return Err(error),
                }
            }
            // At once: the next step of another run may change its weights, where one engine computes both.
            if run.is_done() {
                run.finish()?;
                ended(run);
            } else {
                waiting.push(place);
            }
        }
        stopped?;
    }
    Ok(())
}

/// One step, a checkpoint where it is time for one, and the end of a run that was asked to stop.
fn turn(
    run: &mut Run<'_>,
    mut watch: impl FnMut(&StepRecord) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, TrainError> {
    for record in step(run)? {
        if watch(&record).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    run.save_now_and_then()?;
    run.stop_if_asked()?;
    Ok(ControlFlow::Continue(()))
}

/// One step, and the evaluation after the last step of an epoch. The records of the steps that are done by then: an engine that
/// works ahead finishes a step while it computes the next.
fn step(run: &mut Run<'_>) -> Result<Vec<StepRecord>, TrainError> {
    let mut records = match run.take_due() {
        Some(record) => vec![record],
        None => update(run)?,
    };
    if let Some((last, others)) = records.split_last_mut() {
        others.iter().try_for_each(|record| run.record(record))?;
        run.end_epoch(last)?;
        run.record(last)?;
    }
    Ok(records)
}

/// Forward and backward of all slices, and one update of the weights.
fn update(run: &mut Run<'_>) -> Result<Vec<StepRecord>, TrainError> {
    run.make_room();
    for slice in run.own_slices() {
        run.compute(slice)?;
    }
    run.update()?;
    run.check_memory()?;
    run.records()
}

#[cfg(test)]
mod tests;
