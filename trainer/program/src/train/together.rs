//! Several runs, computed together on one GPU.

use kith_cli::progress::{Epochs, say};
use kith_run::{
    measured::Metric,
    report::{Report, StepRecord},
    stop::Stop,
};
use kith_trainer::{
    distributed::world::World,
    engine::gpu::Gpu,
    error::TrainError,
    run::{Run, RunPlan},
    train::together::{self, Watch},
};

use super::status::{LossWatch, how_it_goes};

/// Trains all runs, as many together as fit on the GPU.
pub(super) fn train_all(plans: Vec<RunPlan<'_>>, gpu: &Gpu, stop: &Stop) -> anyhow::Result<Vec<Report>> {
    let mut worlds: Vec<World> = plans.iter().map(|_| World::alone()).collect();
    worlds.iter_mut().for_each(|world| world.heed(stop.clone()));
    let made = plans.into_iter().zip(&mut worlds).map(|(plan, world)| Run::new(plan, world));
    let mut runs = made.collect::<Result<Vec<Run<'_>>, TrainError>>()?;
    runs.iter().flat_map(Run::notes).for_each(|note| say(&format!("note: {note}")));
    let heeded = stop.heeded();
    together::train_all(&mut runs, gpu, &mut Shown::default())?;
    drop(heeded);
    runs.sort_by_key(Run::run_key);
    let report = |run: &Run<'_>| {
        run.report().ok_or_else(|| anyhow::anyhow!("no epoch was trained: set `train.epochs` to 1 or more"))
    };
    runs.iter().map(report).collect()
}

/// Shows how far the runs are that are computed now, and watches their mean loss.
#[derive(Default)]
struct Shown {
    epochs: Option<(Epochs, Metric)>,
    losses: Option<LossWatch>,
}

impl Watch for Shown {
    fn begin(&mut self, runs: &[Run<'_>]) {
        let what = match runs {
            [run] => format!("{}, seed {}", run.name(), run.run_key()),
            _ => format!("{}, {} seeds", runs[0].name(), runs.len()),
        };
        let epochs = Epochs::begin(what, runs[0].n_epochs(), runs[0].epochs());
        self.epochs = Some((epochs, runs[0].metric()));
        self.losses = Some(LossWatch::new(runs[0].config().optimizer.learning_rate));
    }

    fn step(&mut self, record: &StepRecord) {
        if let Some((shown, metric)) = &mut self.epochs {
            shown.advance(record.epoch + 1, || how_it_goes(record, *metric));
        }
        if let Some(warning) = self.losses.as_mut().and_then(|losses| losses.hear(record)) {
            say(&format!("warning: {warning}"));
        }
    }

    fn end(&mut self, _run: &Run<'_>) {}
}
