//! THE loop.

use std::{ops::ControlFlow, time::Instant};

use kith_client::RowCounts;
use tch::Tensor;

use crate::{
    checkpoint::Exact, error::TrainError, exchange::SliceRecord, feed::Slice, loss::node_loss, model::Pass,
    report::StepRecord, run::Run, world::Phase,
};

/// Trains to the end. Whether the run is fresh or was resumed, and on how many ranks, makes no difference. `watch` hears
/// every step and may break off, as a killed process would: what was not saved yet is lost. A run that is asked to stop saves
/// a checkpoint and ends with [`TrainError::Asked`].
pub fn train(run: &mut Run<'_>, mut watch: impl FnMut(&StepRecord) -> ControlFlow<()>) -> Result<(), TrainError> {
    while !run.is_done() {
        if turn(run, &mut watch)?.is_break() {
            return Ok(());
        }
    }
    run.finish()
}

/// Trains runs that a GPU computes together, each as if it were alone, a step of each in turn. `watch` hears every step, and
/// which run's it is; `ended` sees every run at its end.
pub fn train_together(
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
            // At once: with the next step of another, its weights would change.
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

/// One step, and what is done between two steps.
fn turn(
    run: &mut Run<'_>,
    mut watch: impl FnMut(&StepRecord) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, TrainError> {
    let record = step(run)?;
    if watch(&record).is_break() {
        return Ok(ControlFlow::Break(()));
    }
    run.save_now_and_then()?;
    run.stop_if_asked()?;
    Ok(ControlFlow::Continue(()))
}

/// One step, and what comes after the last of an epoch.
fn step(run: &mut Run<'_>) -> Result<StepRecord, TrainError> {
    let begun = Instant::now();
    let mut record = match run.take_due() {
        Some(record) => record,
        None => update(run)?,
    };
    record.measured = run.end_epoch(&record, begun)?;
    record.micros += begun.elapsed().as_micros() as u64;
    run.record(&record)?;
    Ok(record)
}

/// Forward and backward of all slices, and one update of the weights.
fn update(run: &mut Run<'_>) -> Result<StepRecord, TrainError> {
    for slice in run.own_slices() {
        let record = learn(run, slice)?;
        run.hand_in(record);
    }
    run.update()
}

/// One slice of the next step: what it looks at, forward, loss, backward.
fn learn(run: &mut Run<'_>, slice: usize) -> Result<SliceRecord, TrainError> {
    if let Some(record) = run.learn_on_gpu(slice)? {
        return Ok(record);
    }
    run.enter(Phase::Sample);
    let mut slice = run.feed.next(&run.model, run.at(slice))?;
    run.enter(Phase::Compute);
    let record = learn_slice(run, &mut slice)?;
    run.feed.give_back(slice);
    Ok(record)
}

fn learn_slice(run: &Run<'_>, slice: &mut Slice<'_>) -> Result<SliceRecord, TrainError> {
    let RowCounts { local, cached, remote } = slice.row_counts;
    let mut record = SliceRecord {
        digest: slice.digest.take(),
        row_counts: (local, cached, remote),
        n_seeds: slice.seeds.len() as u64,
        n_edges: slice.n_edges(),
        ..SliceRecord::default()
    };
    if slice.is_empty() {
        return Ok(record);
    }
    let pass = Pass::Train { run_key: run.run_key, step: run.state.step };
    let forward = run.model.forward_sample(&slice.sample, pass, std::mem::take(&mut slice.compared))?;
    let node_loss = node_loss(&forward.logits, &slice.labels, &slice.seeds, slice.n_step_seeds);
    let loss = match forward.edge_loss(run.feed.n_slices()) {
        Some(edge_loss) => &node_loss + edge_loss,
        None => node_loss.shallow_clone(),
    };
    let number = |loss: &Tensor| loss.f_double_value(&[]).map(Exact);
    record.loss = number(&loss)?;
    record.node_loss = number(&node_loss)?;
    record.edge_losses = forward.losses_of_layers().map(number).collect::<Result<_, _>>()?;
    record.n_negatives_left_out = forward.n_negatives_left_out as u64;
    run.check_finite(record.loss.0, run.state.step, Some((&slice.sample, &forward)))?;
    loss.f_backward()?;
    Ok(record)
}

#[cfg(test)]
mod tests;
