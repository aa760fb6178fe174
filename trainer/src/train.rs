//! THE loop.

use std::{ops::ControlFlow, time::Instant};

use kith_draw::{Name, Purpose};
use tch::Tensor;

use crate::{
    error::TrainError,
    evaluate::evaluate,
    input::GraphInput,
    loss::node_loss,
    model::{Forward, Pass},
    report::StepRecord,
    run::Run,
};

/// Trains to the end. Whether the run is fresh or was resumed makes no difference. `watch` hears every step and may
/// break off, as a killed process would: what was not saved yet is lost.
pub fn train(run: &mut Run<'_>, mut watch: impl FnMut(&StepRecord) -> ControlFlow<()>) -> Result<(), TrainError> {
    while !run.is_done() {
        let order = order_of_graphs(run);
        for (place, graph) in order.iter().enumerate() {
            let started = Instant::now();
            let mut record = learn(run, graph)?;
            if place + 1 == order.len() {
                let measured = evaluate(&run.model, run.input)?;
                run.check_finite(measured.valid_loss, graph, None)?;
                run.state.end_epoch(measured, run.model.weights());
                record.measured = Some(measured);
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

/// One step: forward, loss, backward, update.
fn learn(run: &mut Run<'_>, graph: &GraphInput) -> Result<StepRecord, TrainError> {
    let (step, epoch) = (run.state.step, run.state.epoch);
    let forward = run.model.forward(graph, Pass::Train { run_key: run.run_key, step })?;
    let node_loss = node_loss(&forward.logits, &graph.labels, &graph.train);
    let loss = match run.config.edge_loss.as_ref().zip(sum(&forward)) {
        Some((config, edge_loss)) => &node_loss + edge_loss * config.weight,
        None => node_loss.shallow_clone(),
    };
    let number = |loss: &Tensor| loss.f_double_value(&[]);
    let edge_losses = forward.edge_losses.iter().map(number).collect::<Result<_, _>>()?;
    let (loss_value, node_loss) = (number(&loss)?, number(&node_loss)?);
    run.check_finite(loss_value, graph, Some(&forward))?;

    loss.f_backward()?;
    let gradient = run.model.weights().gradient();
    run.optimizer.update(&mut run.model.weights().flat().shallow_clone(), &gradient)?;
    run.state.step += 1;
    run.state.n_negatives_left_out += forward.n_negatives_left_out as u64;
    Ok(StepRecord { step, epoch, loss: loss_value, node_loss, edge_losses, measured: None, micros: 0 })
}

fn sum(forward: &Forward) -> Option<Tensor> {
    let (first, others) = forward.edge_losses.split_first()?;
    Some(others.iter().fold(first.shallow_clone(), |sum, loss| sum + loss))
}

/// The graphs that are trained on, one per step, in the order that the epoch draws: by (draw, first node).
fn order_of_graphs<'a>(run: &Run<'a>) -> Vec<&'a GraphInput> {
    let stream = Name { run_key: run.run_key, purpose: Purpose::SeedOrder, step: 0, layer: 0 }.stream();
    let mut graphs: Vec<&GraphInput> = run.input.graphs.iter().filter(|graph| !graph.train.is_empty()).collect();
    graphs.sort_by_key(|graph| {
        let first = graph.block.id(0);
        (stream.draws(run.state.epoch, first, 0).double_word(), first)
    });
    graphs
}

#[cfg(test)]
mod tests;
