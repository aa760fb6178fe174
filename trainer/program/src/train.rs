//! `kith train`: trains a model, once per seed.

mod choose;
mod kept;
mod presets;
mod ranks;
mod status;
mod summary;
mod together;

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::bail;
use kith_bucket::is_url;
use kith_cli::{
    launched,
    progress::{Epochs, say},
    signals,
    train::{Args, count_start},
};
use kith_run::{
    config::{BY_SEED, RunConfig},
    files::{make_folder, publish_bytes},
    report::{RUN_FILE, Report},
    stop::Stop,
};
use kith_trainer::{
    data::{Data, opened::Source, whole_memory},
    distributed::world::World,
    engine::{
        device::{self, Device},
        gpu::{self, Gpu},
    },
    error::TrainError,
    inference::layerwise::Room,
    output::{keeper::Keeper, metrics::Metrics},
    run::{Run, RunPlan},
    train::train,
};

pub(crate) use self::{choose::choose_mode, ranks::share_cores};
use self::{
    kept::RunMirror,
    status::{LossWatch, how_it_goes, uneven},
};
use crate::graph::open_as;

pub(crate) fn run(mut args: Args) -> anyhow::Result<()> {
    if args.list_presets {
        return presets::list(args.json);
    }
    let stop = signals::heed(args.grace())?;
    let listener = launched::listener()?;
    launched::watch(Duration::ZERO, args.grace() + launched::PATIENCE);
    count_local_start(&args)?;
    device::start();
    let mut world = ranks::join(&args.ranks, &mut args.device, listener)?;
    world.heed(stop.clone());
    let outcome = train_all(&mut args, &mut world, &stop);
    ranks::part(world, &outcome);
    outcome
}

/// Counts this start where the run's folder is on this machine: also one that never meets the other ranks.
fn count_local_start(args: &Args) -> anyhow::Result<()> {
    match (&args.out, args.max_starts) {
        (Some(out), Some(most)) if !out.to_str().is_some_and(is_url) && ranks::is_first()? => count_start(out, most),
        _ => Ok(()),
    }
}

/// One run for each seed. Only rank 0 keeps and says anything.
fn train_all(args: &mut Args, world: &mut World, stop: &Stop) -> anyhow::Result<()> {
    let gpu_number = device::number_of(&args.device).map_err(anyhow::Error::msg)?;
    let is_at_url = args.out.as_deref().and_then(Path::to_str).is_some_and(is_url);
    let typed_out = args.out.clone(); // Of a URL, the mirror makes a temporary folder.
    let bucket = RunMirror::open(args, world.rank())?;
    let args = &*args;
    if let (Some(out), Some(most), true) = (&args.out, args.max_starts, is_at_url && world.rank() == 0) {
        count_start(out, most)?;
        bucket.end()?;
    }
    choose::check(args)?;
    let opened = open_as(&args.graph, world.rank())?;
    let mut config = choose::config(args, &opened, world.rank() == 0)?;
    let run_keys = args.run_keys.clone().unwrap_or(args.run_key..=args.run_key);
    whole_memory::check(&opened, &config, args.memory, gpu_number.is_some())?;
    let mut data = Data::load(&opened, &config, *run_keys.start())?;
    let (device, gpu) = gpu::choose(&args.device, args.kernels, &mut config).map_err(anyhow::Error::msg)?;
    let kept = args.out.as_deref().filter(|_| world.rank() == 0);
    if let (Some(out), Some(_)) = (kept, &args.run_keys) {
        keep_run_file(out, args.resume, &config)?;
    }
    let metrics = Arc::new(Metrics::new(world.rank(), world.n_ranks()));
    if let Some(calls) = opened.calls() {
        metrics.show_calls(calls);
    }
    if let Some(address) = args.metrics {
        say(&format!("metrics on {}", metrics.show(address)?));
    }
    // Splits by seed, and held-out edges, belong to one run.
    let is_by_run_key = config.train.split.as_deref() == Some(BY_SEED) || config.links.is_some();
    let keys: Vec<u64> = run_keys.clone().collect();
    let folder = |run_key: &u64| {
        args.out.as_deref().map(|out| match &args.run_keys {
            Some(_) => out.join(format!("run-{run_key}")),
            None => out.to_owned(),
        })
    };
    let (folders, is_kept) = (keys.iter().map(folder).collect(), world.rank() == 0);
    let (source, keeper) = (opened.source(), bucket.keeper());
    let runs = Runs { args, config: &config, source, device, keys, folders, is_kept, keeper, metrics };
    let mut reports = Vec::new();
    if let Some(gpu) =
        gpu.as_ref().filter(|_| runs.keys.len() > 1 && !is_by_run_key && gpu::whole_graph(&data).is_some())
    {
        let plans = (0..runs.keys.len()).map(|place| runs.plan(place, &data, None));
        reports = together::train_all(plans.collect(), gpu, stop)?;
        if args.json {
            reports.iter().try_for_each(summary::print_line)?;
        }
    } else {
        for place in 0..runs.keys.len() {
            if is_by_run_key && place > 0 {
                data = Data::load(&opened, &config, runs.keys[place])?;
            }
            let report = train_one(runs.plan(place, &data, gpu.clone()), world, stop)?;
            if args.json && world.rank() == 0 {
                summary::print_line(&report)?;
            }
            reports.push(report);
        }
    }
    if !args.json && world.rank() == 0 {
        summary::print_results(&reports)?;
        say(&match typed_out {
            Some(out) => format!("kept in {0}; `kith report {0} --graph PLACE` writes an HTML report", out.display()),
            None => "the model was not kept: add --out runs/NAME to keep it".to_owned(),
        });
    }
    if let (Some(out), Some(_)) = (kept, &args.run_keys) {
        summary::write(&reports, out)?;
        bucket.end()?;
    }
    Ok(())
}

/// Runs that differ in their seeds.
struct Runs<'a> {
    args: &'a Args,
    config: &'a RunConfig,
    source: Source,
    device: Device,
    keys: Vec<u64>,
    /// The folder of each.
    folders: Vec<Option<PathBuf>>,
    /// True if this rank writes to these folders. The others use them for temporary files.
    is_kept: bool,
    keeper: Keeper,
    metrics: Arc<Metrics>,
}

impl Runs<'_> {
    fn plan<'b>(&'b self, place: usize, data: &'b Data, gpu: Option<Gpu>) -> RunPlan<'b> {
        let folder = &self.folders[place];
        RunPlan {
            config: self.config.clone(),
            run_key: self.keys[place],
            data,
            source: self.source.clone(),
            device: self.device,
            gpu,
            gpu_rows: self.args.gpu_features,
            out: folder.as_deref().filter(|_| self.is_kept),
            init: self.args.init.as_deref(),
            resume: self.args.resume,
            keeper: self.keeper.clone(),
            room: Room { memory: self.args.memory, scratch: folder.clone(), ..Room::default() },
            metrics: Arc::clone(&self.metrics),
        }
    }
}

fn train_one(plan: RunPlan<'_>, world: &mut World, stop: &Stop) -> anyhow::Result<Report> {
    let what = format!("{} {}, seed {}", plan.source.dataset, plan.config.name(), plan.run_key);
    let epochs = plan.config.train.epochs;
    let mut watch = LossWatch::new(plan.config.optimizer.learning_rate);
    let is_first = world.rank() == 0;
    let mut is_uneven = false;
    let mut run = Run::new(plan, world)?;
    run.notes().iter().filter(|_| is_first).for_each(|note| say(&format!("note: {note}")));
    let mut shown = is_first.then(|| Epochs::begin(what, run.n_epochs(), epochs));
    let metric = run.metric();
    let _heeded = stop.heeded();
    let trained = train(&mut run, |record| {
        if let Some(shown) = &mut shown {
            shown.advance(record.epoch + 1, || how_it_goes(record, metric));
            if let Some(warning) = watch.hear(record) {
                say(&format!("warning: {warning}"));
            }
            // Once: slices may move often.
            if let Some(note) = uneven(record).filter(|_| !std::mem::replace(&mut is_uneven, true)) {
                say(&format!("note: {note}"));
            }
        }
        ControlFlow::Continue(())
    });
    if let Err(TrainError::World(_)) = trained {
        run.abandon_gpu();
    }
    trained?;
    drop(shown);
    run.report().ok_or_else(|| anyhow::anyhow!("no epoch was trained: set `train.epochs` to 1 or more"))
}

/// Writes the settings that several runs share to their folder, so that `--resume` needs no run file.
fn keep_run_file(out: &Path, resume: bool, config: &RunConfig) -> anyhow::Result<()> {
    let path = out.join(RUN_FILE);
    if path.exists() && !resume {
        bail!("{}: holds runs already: resume them with --resume, or choose another place", out.display());
    }
    make_folder(out)?;
    Ok(publish_bytes(&path, config.to_toml().as_bytes())?)
}
