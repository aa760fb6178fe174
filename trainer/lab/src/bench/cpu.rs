//! Runs on the CPU: one per worker, each with a share of the cores, as many as memory allows.

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
};

use kith_run::{config::RunConfig, report::Report};
use kith_store::memory::available_bytes;
use kith_trainer::{
    data::Data,
    distributed::world::World,
    engine::device::Device,
    error::TrainError,
    inference::layerwise::Room,
    output::{keeper::Keeper, metrics::Metrics},
    run::{Run, RunPlan},
    train::train,
};
use rayon::ThreadPoolBuilder;
use serde_json::Value;

use super::{
    job::{Job, Wanted},
    shared::Shared,
};
use crate::{error::LabError, experiment::Cell};

/// Share of the free memory for all runs together.
const SHARE_OF_MEMORY: f64 = 0.7;

/// Waiting jobs, bytes in use, and number of running jobs.
struct Queue {
    state: Mutex<(VecDeque<Job>, u64, usize)>,
    changed: Condvar,
    memory: u64,
}

/// Starts the workers.
pub(super) fn work<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    shared: &'scope Shared<'_>,
    jobs: Vec<Job>,
    n_workers: usize,
    memory: Option<u64>,
) {
    let n_cores = thread::available_parallelism().map_or(1, usize::from);
    let n_workers = n_workers.min(jobs.len());
    let n_threads = (n_cores / n_workers.max(1)).max(1);
    let free = available_bytes().unwrap_or(u64::MAX);
    let memory = memory.unwrap_or((free as f64 * SHARE_OF_MEMORY) as u64);
    let queue = Arc::new(Queue { state: Mutex::new((jobs.into(), 0, 0)), changed: Condvar::new(), memory });
    let loaded = Arc::new(Mutex::new(VecDeque::new()));
    for _ in 0..n_workers {
        let (queue, loaded) = (Arc::clone(&queue), Arc::clone(&loaded));
        scope.spawn(move || {
            shared.guard(|| {
                let pool = ThreadPoolBuilder::new().num_threads(n_threads).build();
                let pool = pool.map_err(|error| LabError::Wrong(error.to_string()))?;
                while let Some(job) = queue.take().filter(|_| !shared.is_over()) {
                    let outcome = pool.scope(|_| do_job(shared, &job, &loaded));
                    queue.give_back(&job);
                    outcome?;
                }
                Ok(())
            });
        });
    }
}

impl Queue {
    /// Takes the first job that fits into memory, or any job if none is running. Blocks while no job fits.
    fn take(&self) -> Option<Job> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let (jobs, used, n_running) = &mut *state;
            if jobs.is_empty() {
                return None;
            }
            let fits = jobs.iter().position(|job| *n_running == 0 || *used + job.bytes <= self.memory);
            if let Some(job) = fits.and_then(|place| jobs.remove(place)) {
                *used += job.bytes;
                *n_running += 1;
                return Some(job);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, job: &Job) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 -= job.bytes;
        state.2 -= 1;
        self.changed.notify_all();
    }
}

/// Loaded inputs, the latest last, by graph, split, supervision and mode.
type Loaded = Mutex<VecDeque<(String, Arc<Data>)>>;

/// Inputs that stay in memory.
const N_LOADED: usize = 3;

fn do_job(shared: &Shared<'_>, job: &Job, loaded: &Loaded) -> Result<(), LabError> {
    for wanted in &job.runs {
        let cell = shared.cell(*wanted);
        let data = load(shared, *wanted, loaded)?;
        let outcome = train_one(shared, plan(cell, cell.config.clone(), wanted.run_key, &data));
        shared.keep(*wanted, outcome)?;
    }
    Ok(())
}

fn load(shared: &Shared<'_>, wanted: Wanted, loaded: &Loaded) -> Result<Arc<Data>, TrainError> {
    let Cell { subject, config, .. } = shared.cell(wanted);
    let own = |run_key| shared.experiment.load(&subject.opened, config, run_key).map(Arc::new);
    if shared.experiment.is_by_run_key(config) {
        return own(wanted.run_key);
    }
    let train = &config.train;
    let key = format!("{} {:?} {:?} {:?}", subject.opened.info().digest, train.split, train.supervision, train.mode);
    // Loads under the lock: other workers wait for the same input instead of loading it twice.
    let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, data)) = loaded.iter().find(|(own, _)| *own == key) {
        return Ok(Arc::clone(data));
    }
    let data = own(wanted.run_key)?;
    loaded.push_back((key, Arc::clone(&data)));
    if loaded.len() > N_LOADED {
        loaded.pop_front();
    }
    Ok(data)
}

/// Plan of a run that writes no files.
pub(super) fn plan<'a>(cell: &Cell, config: RunConfig, run_key: u64, data: &'a Data) -> RunPlan<'a> {
    RunPlan {
        config,
        run_key,
        data,
        source: cell.subject.opened.source(),
        device: Device::Cpu,
        gpu: None,
        gpu_rows: None,
        out: None,
        init: None,
        resume: false,
        keeper: Keeper::default(),
        room: Room::default(),
        metrics: Arc::new(Metrics::default()),
    }
}

/// Trains one run to its end; `None` if another worker's failure stops it.
pub(super) fn train_one(shared: &Shared<'_>, plan: RunPlan<'_>) -> Result<Option<(Report, Value)>, TrainError> {
    let (mut world, data) = (World::alone(), plan.data);
    let mut run = Run::new(plan, &mut world)?;
    let watch = |_: &_| if shared.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    train(&mut run, watch)?;
    run.is_done().then(|| report(shared, &run, data)).transpose()
}

/// Report of a finished run, and the experiment's own result.
pub(super) fn report(shared: &Shared<'_>, run: &Run<'_>, data: &Data) -> Result<(Report, Value), TrainError> {
    let report = run.report().expect("a run that was trained was measured");
    Ok((report, shared.experiment.see(run, data)?))
}
