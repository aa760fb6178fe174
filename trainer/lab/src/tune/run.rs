//! Runs trials batch by batch, several at once, and records them in order.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use kith_run::config::Kernels;
use kith_trainer::{
    data::{Data, opened::Source},
    distributed::world::World,
    engine::{device::Device, gpu::Gpu},
    error::TrainError,
    inference::layerwise::Room,
    output::{keeper::Keeper, metrics::Metrics},
    run::{Run, RunPlan},
    train::train,
};

use crate::tune::{
    State, Trial, TrialLog, TrialRun, TuneError, Tuning,
    search::propose,
    trials::{bar, best, seen},
};

/// Input and devices of all trials.
#[derive(Debug)]
pub struct Ground<'a> {
    /// Input: one for all seeds, or one per seed.
    pub data: &'a [Data],
    /// Source of the input.
    pub source: Source,
    /// Device of tensor operations.
    pub device: Device,
    /// GPU with CUDA kernels, if used.
    pub gpu: Option<Gpu>,
    /// Kernels of the layers.
    pub kernels: Kernels,
}

/// Progress of a search.
#[derive(Debug)]
pub struct Progress<'a> {
    /// The trial that just ended.
    pub trial: &'a Trial,
    /// Best trial so far.
    pub best: Option<&'a Trial>,
    /// Finished trials.
    pub n_done: usize,
    /// Number of trials.
    pub n_trials: usize,
    /// Estimated remaining time, from the trials of this process.
    pub left: Duration,
}

/// Runs all trials that are not recorded yet and calls `hear` after each. On a GPU, trials run one after the other.
pub fn tune(
    tuning: &Tuning,
    ground: &Ground<'_>,
    kept: &mut TrialLog,
    mut hear: impl FnMut(&Progress<'_>),
) -> Result<(), TuneError> {
    let (started, n_before) = (Instant::now(), kept.trials().len());
    while kept.trials().len() < tuning.n_trials {
        // Points and stop bar of a batch depend only on the batches before it, whichever process ran them.
        let n_kept = kept.trials().len();
        let start = n_kept / tuning.n_together * tuning.n_together;
        let end = tuning.n_trials.min(start + tuning.n_together);
        let before = &kept.trials()[..start];
        let (seen, bar) = (seen(before, &tuning.space), bar(before));
        let dim = tuning.space.dimensions().len();
        let points = propose(tuning.method, tuning.tuning_key, dim, &seen, start, end - start);
        let jobs: Vec<Job> = (start..end)
            .zip(points)
            .skip(n_kept - start)
            .map(|(trial, point)| Job { trial, values: tuning.space.at(&point), bar })
            .collect();
        run_all(&jobs, tuning, ground, |trial| {
            kept.push(&trial)?;
            let n_done = kept.trials().len();
            let left = started.elapsed().mul_f64((tuning.n_trials - n_done) as f64 / (n_done - n_before) as f64);
            let best = best(kept.trials());
            hear(&Progress { trial: &trial, best, n_done, n_trials: tuning.n_trials, left });
            Ok(())
        })?;
    }
    Ok(())
}

/// A trial to be run.
struct Job {
    trial: usize,
    values: Vec<f64>,
    /// The validation metric below which it stops after its first run.
    bar: Option<f64>,
}

/// Runs jobs, and passes trials to `take` in the order of the jobs.
fn run_all(
    jobs: &[Job],
    tuning: &Tuning,
    ground: &Ground<'_>,
    mut take: impl FnMut(Trial) -> Result<(), TuneError>,
) -> Result<(), TuneError> {
    let n_threads = jobs.len().min(tuning.n_together);
    if n_threads <= 1 || ground.gpu.is_some() || ground.device != Device::Cpu {
        return jobs.iter().try_for_each(|job| take(run_trial(job, tuning, ground)?));
    }
    let n_cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (next, (sender, receiver)) = (AtomicUsize::new(0), mpsc::channel());
    thread::scope(|scope| {
        for _ in 0..n_threads {
            let (next, sender) = (&next, sender.clone());
            scope.spawn(move || {
                let pool = rayon::ThreadPoolBuilder::new().num_threads((n_cores / n_threads).max(1)).build();
                let pool = pool.expect("a pool of a few threads");
                while let Some((place, job)) = Some(next.fetch_add(1, Relaxed)).and_then(|n| Some((n, jobs.get(n)?))) {
                    if sender.send((place, pool.install(|| run_trial(job, tuning, ground)))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting = BTreeMap::new();
        let mut n_taken = 0;
        for (place, trial) in receiver {
            waiting.insert(place, trial);
            while let Some(trial) = waiting.remove(&n_taken) {
                // An error drops the receiver, and no thread starts another trial.
                take(trial?)?;
                n_taken += 1;
            }
        }
        Ok(())
    })
}

fn run_trial(job: &Job, tuning: &Tuning, ground: &Ground<'_>) -> Result<Trial, TuneError> {
    let started = Instant::now();
    let mut config = tuning.space.apply(&tuning.run_file, &job.values)?.resolve()?;
    config.train.kernels = ground.kernels;
    let (mut state, mut runs) = (State::Finished, Vec::new());
    for (place, run_key) in tuning.run_keys.iter().enumerate() {
        let plan = RunPlan {
            config: config.clone(),
            run_key: *run_key,
            data: ground.data.get(place).unwrap_or(&ground.data[0]),
            source: ground.source.clone(),
            device: ground.device,
            gpu: ground.gpu.clone(),
            gpu_rows: None,
            out: None,
            init: None,
            resume: false,
            keeper: Keeper::default(),
            room: Room::default(),
            metrics: Arc::new(Metrics::default()),
        };
        match run_one(plan) {
            Ok(run) => runs.push(run),
            Err(TrainError::NotFinite { .. }) => {
                state = State::Failed;
                break;
            }
            Err(error) => return Err(error.into()),
        }
        let is_last = place + 1 == tuning.run_keys.len();
        if place == 0 && !is_last && job.bar.is_some_and(|bar| runs[0].valid < bar) {
            state = State::Stopped;
            break;
        }
    }
    let keys = tuning.space.dimensions().iter().map(|dimension| dimension.key.clone());
    let sum: f64 = runs.iter().map(|run| run.valid).sum();
    Ok(Trial {
        trial: job.trial,
        state,
        values: keys.zip(job.values.iter().copied()).collect(),
        valid: (!runs.is_empty()).then(|| sum / runs.len() as f64),
        runs,
        seconds: started.elapsed().as_secs_f64(),
    })
}

fn run_one(plan: RunPlan<'_>) -> Result<TrialRun, TrainError> {
    let mut world = World::alone();
    let mut run = Run::new(plan, &mut world)?;
    train(&mut run, |_| ControlFlow::Continue(()))?;
    let report = run.report().expect("the last epoch is always measured");
    let results = report.results;
    Ok(TrialRun { run_key: report.run_key, valid: results.valid, test: results.test, epochs: results.epochs })
}
