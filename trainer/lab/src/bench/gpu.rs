//! Runs on a GPU: runs of one graph and shape together, all others one by one.

use kith_run::{config::Kernels, report::StepRecord};
use kith_trainer::{
    data::Data,
    distributed::world::World,
    engine::{
        device,
        gpu::{Gpu, open, refusal},
    },
    error::TrainError,
    run::Run,
    train::together::{self, Watch},
};
use rayon::ThreadPoolBuilder;

use super::{
    cpu::{plan, report, train_one},
    job::{Job, Wanted},
    shared::Shared,
};
use crate::error::LabError;

/// Maximum number of runs trained together: more do not speed up a GPU, and a kill would lose more.
const N_TOGETHER: usize = 128;

pub(super) fn work(shared: &Shared<'_>, jobs: Vec<Job>, device: &str) -> Result<(), LabError> {
    let number = device::number_of(device).map_err(LabError::Wrong)?.unwrap_or(0);
    let gpu = open(number).map_err(|error| LabError::Wrong(format!("device {device}: {error}")))?;
    let pool = ThreadPoolBuilder::new().num_threads(2).build().map_err(|error| LabError::Wrong(error.to_string()))?;
    for job in jobs {
        for runs in job.runs.chunks(N_TOGETHER) {
            if shared.is_over() {
                return Ok(());
            }
            pool.install(|| do_runs(shared, runs, &gpu, device))?;
        }
    }
    Ok(())
}

pub(super) fn do_runs(shared: &Shared<'_>, runs: &[Wanted], gpu: &Gpu, device: &str) -> Result<(), LabError> {
    let cell = shared.cell(runs[0]);
    let data = shared.experiment.load(&cell.subject.opened, &cell.config, runs[0].run_key)?;
    if let [wanted] = runs {
        let mut own = plan(cell, cell.config.clone(), wanted.run_key, &data);
        match refusal(&cell.config) {
            None => own.gpu = Some(gpu.clone()),
            Some(_) => {
                own.config.train.kernels = Kernels::Reference;
                own.device = device::find(device).map_err(LabError::Wrong)?;
            }
        }
        return shared.keep(*wanted, train_one(shared, own));
    }
    let mut worlds: Vec<World> = runs.iter().map(|_| World::alone()).collect();
    let plans = runs.iter().map(|wanted| plan(cell, shared.cell(*wanted).config.clone(), wanted.run_key, &data));
    let made = plans.zip(&mut worlds).map(|(plan, world)| Run::new(plan, world));
    let mut made = made.collect::<Result<Vec<Run<'_>>, TrainError>>()?;
    let mut keeper = Keeper { shared, data: &data, left: runs.to_vec(), outcome: Ok(()) };
    let trained = together::train_all(&mut made, gpu, &mut keeper);
    let Keeper { outcome, left, .. } = keeper;
    outcome?;
    match trained {
        // A run with a loss that is not finite stops its group: the rest is split in two and trained again.
        Err(TrainError::NotFinite { .. }) => {
            drop(made);
            let half = left.len().div_ceil(2);
            left.chunks(half.max(1)).try_for_each(|part| do_runs(shared, part, gpu, device))
        }
        trained => Ok(trained?),
    }
}

/// Records every run when it ends.
struct Keeper<'a> {
    shared: &'a Shared<'a>,
    data: &'a Data,
    /// Runs that have not ended.
    left: Vec<Wanted>,
    outcome: Result<(), LabError>,
}

impl Watch for Keeper<'_> {
    fn begin(&mut self, _runs: &[Run<'_>]) {}

    fn step(&mut self, _record: &StepRecord) {}

    fn end(&mut self, run: &Run<'_>) {
        let is_it =
            |wanted: &Wanted| wanted.run_key == run.run_key() && self.shared.cell(*wanted).config == *run.config();
        let place = self.left.iter().position(is_it).expect("a run that ended was wanted");
        let wanted = self.left.swap_remove(place);
        if self.outcome.is_ok() {
            self.outcome = self.shared.keep(wanted, report(self.shared, run, self.data).map(Some));
        }
    }
}
