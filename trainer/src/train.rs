//! THE loop.

use std::{ops::ControlFlow, time::Instant};

use tch::Tensor;

use crate::{
    error::TrainError,
    feed::{At, Slice},
    loss::node_loss,
    model::{Forward, Pass},
    report::StepRecord,
    run::Run,
};

/// Trains to the end. Whether the run is fresh or was resumed makes no difference. `watch` hears every step and may
/// break off, as a killed process would: what was not saved yet is lost.
pub fn train(run: &mut Run<'_>, mut watch: impl FnMut(&StepRecord) -> ControlFlow<()>) -> Result<(), TrainError> {
    while !run.is_done() {
        let n_steps = run.feed.steps_per_epoch();
        for place in 0..n_steps {
            let started = Instant::now();
            let mut record = learn(run, place)?;
            if place + 1 == n_steps {
                record.measured = run.end_epoch()?;
            }
            record.micros = started.elapsed().as_micros() as u64;
            run.state.micros += record.micros;
            run.record(&record)?;
            if watch(&record).is_break() {
                return Ok(());
            }
        }
        run.save_now_and_then()?;
    }
    run.finish()
}

/// One step: the gradients of its slices added up in their order, then an update.
fn learn(run: &mut Run<'_>, place: usize) -> Result<StepRecord, TrainError> {
    let mut record = StepRecord::new(run.state.step, run.state.epoch);
    for slice in 0..run.feed.n_slices() {
        let at = At { run_key: run.run_key, epoch: record.epoch, step: record.step, place, slice };
        let mut slice = run.feed.next(&run.model, at)?;
        run.state.row_counts += slice.row_counts;
        learn_slice(run, &mut slice, &mut record)?;
        run.feed.give_back(slice);
    }
    let gradient = run.model.weights().gradient();
    run.optimizer.update(&mut run.model.weights().flat().shallow_clone(), &gradient)?;
    run.state.step += 1;
    Ok(record)
}

/// Forward, loss, backward.
fn learn_slice(run: &mut Run<'_>, slice: &mut Slice<'_>, record: &mut StepRecord) -> Result<(), TrainError> {
    record.digests.extend(slice.digest.take());
    if slice.is_empty() {
        return Ok(());
    }
    let pass = Pass::Train { run_key: run.run_key, step: record.step };
    let forward = run.model.forward_sample(&slice.sample, pass, std::mem::take(&mut slice.pairs))?;
    let n_slices = run.feed.n_slices() as f64;
    let node_loss = node_loss(&forward.logits, &slice.labels, &slice.seeds, slice.n_step_seeds);
    let loss = match run.config.edge_loss.as_ref().zip(sum(&forward)) {
        Some((config, edge_loss)) => &node_loss + edge_loss * (config.weight / n_slices),
        None => node_loss.shallow_clone(),
    };
    let number = |loss: &Tensor| loss.f_double_value(&[]);
    let loss_value = number(&loss)?;
    record.loss += loss_value;
    record.node_loss += number(&node_loss)?;
    record.add_edge_losses(forward.edge_losses.iter().map(number).collect::<Result<Vec<_>, _>>()?, n_slices);
    run.check_finite(loss_value, Some((&slice.sample, &forward)))?;
    loss.f_backward()?;
    run.state.n_negatives_left_out += forward.n_negatives_left_out as u64;
    Ok(())
}

fn sum(forward: &Forward) -> Option<Tensor> {
    let (first, others) = forward.edge_losses.split_first()?;
    Some(others.iter().fold(first.shallow_clone(), |sum, loss| sum + loss))
}

#[cfg(test)]
mod tests;
