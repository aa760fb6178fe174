//! `kith train`.

mod choose;
mod kept;
mod presets;
mod ranks;
mod starts;
mod summary;
mod together;

use std::{
    net::SocketAddr,
    ops::{ControlFlow, RangeInclusive},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::bail;
use kith_bucket::is_url;
use kith_sampler::server::seconds;
use kith_trainer::{
    config::{BY_RUN_KEY, Choice, Kernels, RunConfig},
    data::Data,
    device::{self, Device},
    error::TrainError,
    gpu::{self, Gpu},
    keeper::Keeper,
    layerwise::Room,
    metrics::Metrics,
    opened::Source,
    report::{RUN_FILE, Report, StepRecord},
    run::{Plan, Run},
    stop::Stop,
    train::train,
    world::World,
};

pub(crate) use self::choose::{Typed, run_file, typed};
use self::kept::Kept;
use crate::{
    graph::GraphArgs,
    launched,
    progress::{Epochs, say},
    signals,
};

/// Train a model on a store, on its shards, or from sampling servers.
#[derive(clap::Args)]
#[command(after_help = "\
A preset:           kith train cora/supergat-mx --store stores/cora --out runs/cora-mx
Ten runs:           kith train cora/supergat-mx --store stores/cora --run-keys 42..52
Your own run file:  kith train my.toml --store stores/mine --set train.learning_rate=0.01
By the recipe:      kith train --attention auto --store stores/mine
From servers:       kith train my.toml --samplers host-a:7000,host-b:7000 --set train.mode=batches
Go on:              kith train --resume --out runs/cora-mx --store stores/cora")]
pub(crate) struct Args {
    /// A preset (see --list-presets) or a run file.
    #[arg(value_name = "PRESET|FILE")]
    run: Option<String>,
    /// A preset, by its name alone.
    #[arg(long, value_name = "NAME", conflicts_with = "run")]
    preset: Option<String>,
    /// List the presets.
    #[arg(long)]
    list_presets: bool,
    #[command(flatten)]
    pub(crate) graph: GraphArgs,
    /// The folder to keep the run in: run file, steps, checkpoints, report. Several runs get a folder each inside. A URL
    /// (s3://, file://) keeps it there, each checkpoint as soon as it is written.
    #[arg(long, value_name = "RUN_DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Names everything that is drawn.
    #[arg(long, value_name = "K", default_value_t = 42)]
    pub(crate) run_key: u64,
    /// One run for each key from A to B - 1.
    #[arg(long, value_name = "A..B", value_parser = run_keys, conflicts_with = "run_key")]
    run_keys: Option<RangeInclusive<u64>>,
    /// Change a key of the run file; may be given several times. SECTION=off leaves a section out.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    assignments: Vec<String>,
    /// Go on from the checkpoint in --out; without one, start.
    #[arg(long, requires = "out")]
    pub(crate) resume: bool,
    /// auto: let the paper's recipe choose the attention, by the graph's degree and homophily.
    #[arg(long, value_name = "auto", value_parser = ["auto"])]
    attention: Option<String>,
    /// What computes the layers: fused or reference.
    #[arg(long, value_parser = kernels)]
    kernels: Option<Kernels>,
    /// Where to compute: cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub(crate) device: String,
    /// Bytes that a layer's rows may take in memory while a run in batches measures itself, as in 4GiB; beyond that they
    /// go to a file in the run's folder.
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    pub(crate) memory: Option<u64>,
    /// Bytes on the GPU that the rows of all nodes may take where a run in batches has them there, as in 8GiB; 0 sends the
    /// rows of every batch instead. Half of what is free unless said.
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    gpu_rows: Option<u64>,
    /// Where to show metrics for Prometheus, at /metrics: HOST:PORT; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Print one JSON object per run.
    #[arg(long)]
    json: bool,
    /// Seconds after SIGTERM or Ctrl-C in which a run may end its step and save a checkpoint (default: 30).
    #[arg(long, value_name = "SECONDS", default_value_t = 30, hide_default_value = true, value_parser = seconds(0))]
    grace: u64,
    /// Refuse to start (exit code 1) after N starts in a row without a newer checkpoint in --out (default: no limit). For
    /// managers of jobs, which start a run again and see no checkpoint; rank 0 counts, in starts.json.
    #[arg(long, value_name = "N", requires = "resume", value_parser = clap::value_parser!(u64).range(1..))]
    max_starts: Option<u64>,
    #[command(flatten)]
    ranks: ranks::RankArgs,
}

impl Args {
    /// Time for a checkpoint after a signal.
    pub(crate) fn grace(&self) -> Duration {
        Duration::from_secs(self.grace)
    }

    /// Counts this start where the run's folder is on this machine: also one that never meets the other ranks.
    fn count_start(&self) -> anyhow::Result<()> {
        match (&self.out, self.max_starts) {
            (Some(out), Some(most)) if !out.to_str().is_some_and(is_url) && ranks::is_first()? => {
                starts::count(out, most)
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn run(mut args: Args) -> anyhow::Result<()> {
    if args.list_presets {
        return presets::list(args.json);
    }
    let stop = signals::heed(args.grace())?;
    let listener = launched::listener()?;
    launched::watch(Duration::ZERO, args.grace() + launched::PATIENCE);
    args.count_start()?;
    device::start();
    let mut world = args.ranks.join(&mut args.device, listener)?;
    world.heed(stop.clone());
    let outcome = train_all(&mut args, &mut world, &stop);
    ranks::part(world, &outcome);
    outcome
}

/// One run for each run key. Only rank 0 keeps and says anything.
fn train_all(args: &mut Args, world: &mut World, stop: &Stop) -> anyhow::Result<()> {
    device::number_of(&args.device).map_err(anyhow::Error::msg)?;
    let is_at_url = args.out.as_deref().and_then(Path::to_str).is_some_and(is_url);
    let bucket = Kept::open(args, world.rank())?;
    let args = &*args;
    if let (Some(out), Some(most), true) = (&args.out, args.max_starts, is_at_url && world.rank() == 0) {
        starts::count(out, most)?;
        bucket.end()?;
    }
    let opened = args.graph.open_as(world.rank())?;
    let mut config = choose::config(args, &opened)?;
    let run_keys = args.run_keys.clone().unwrap_or(args.run_key..=args.run_key);
    let mut data = Data::load(&opened, &config, *run_keys.start())?;
    let (device, gpu) = gpu::choose(&args.device, args.kernels, &mut config).map_err(anyhow::Error::msg)?;
    let kept = args.out.as_deref().filter(|_| world.rank() == 0);
    if let (Some(out), Some(_)) = (kept, &args.run_keys) {
        keep_run_file(out, args.resume, &config)?;
    }
    let metrics = Arc::new(Metrics::default());
    if let Some(address) = args.metrics {
        say(&format!("metrics on {}", metrics.show(address)?));
    }
    let is_by_run_key = config.train.split.as_deref() == Some(BY_RUN_KEY);
    let keys: Vec<u64> = run_keys.clone().collect();
    let outs: Vec<Option<PathBuf>> = keys
        .iter()
        .map(|run_key| {
            kept.map(|out| match &args.run_keys {
                Some(_) => out.join(format!("run-{run_key}")),
                None => out.to_owned(),
            })
        })
        .collect();
    let runs =
        Runs { args, config: &config, source: opened.source(), device, keys, outs, keeper: bucket.keeper(), metrics };
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
    }
    if let (Some(out), Some(_)) = (kept, &args.run_keys) {
        summary::write(&reports, out)?;
        bucket.end()?;
    }
    Ok(())
}

/// Runs that differ in their keys.
struct Runs<'a> {
    args: &'a Args,
    config: &'a RunConfig,
    source: Source,
    device: Device,
    keys: Vec<u64>,
    /// The folder of each.
    outs: Vec<Option<PathBuf>>,
    keeper: Keeper,
    metrics: Arc<Metrics>,
}

impl Runs<'_> {
    fn plan<'b>(&'b self, place: usize, data: &'b Data, gpu: Option<Gpu>) -> Plan<'b> {
        let out = &self.outs[place];
        Plan {
            config: self.config.clone(),
            run_key: self.keys[place],
            data,
            source: self.source.clone(),
            device: self.device,
            gpu,
            gpu_rows: self.args.gpu_rows,
            out: out.as_deref(),
            resume: self.args.resume,
            keeper: self.keeper.clone(),
            room: Room { memory: self.args.memory, scratch: out.clone(), ..Room::default() },
            metrics: Arc::clone(&self.metrics),
        }
    }
}

fn train_one(plan: Plan<'_>, world: &mut World, stop: &Stop) -> anyhow::Result<Report> {
    let what = format!("{} {}, run key {}", plan.source.dataset, plan.config.name(), plan.run_key);
    let epochs = plan.config.train.epochs;
    let is_first = world.rank() == 0;
    let mut run = Run::new(plan, world)?;
    run.notes().iter().for_each(|note| say(&format!("note: {note}")));
    let mut shown = is_first.then(|| Epochs::begin(what, run.n_epochs(), epochs));
    let _heeded = stop.heeded();
    train(&mut run, |record| {
        if let Some(shown) = &mut shown {
            shown.advance(record.epoch + 1, || how_it_goes(record));
        }
        ControlFlow::Continue(())
    })?;
    drop(shown);
    run.report().ok_or_else(|| anyhow::anyhow!("no epoch was trained"))
}

fn how_it_goes(record: &StepRecord) -> String {
    let measured = record.measured.map(|m| format!(", valid {:.2}, test {:.2}", 100.0 * m.valid, 100.0 * m.test));
    format!("loss {:.4}{}", record.loss, measured.unwrap_or_default())
}

/// The folder of several runs says what they have in common, so that they can be resumed without saying it again.
fn keep_run_file(out: &Path, resume: bool, config: &RunConfig) -> anyhow::Result<()> {
    let path = out.join(RUN_FILE);
    if path.exists() && !resume {
        bail!("{}: holds runs already: resume them with --resume, or choose another place", out.display());
    }
    std::fs::create_dir_all(out).map_err(TrainError::io(out))?;
    Ok(std::fs::write(&path, config.to_toml()).map_err(TrainError::io(&path))?)
}

pub(crate) fn run_keys(text: &str) -> Result<RangeInclusive<u64>, String> {
    let range = text.split_once("..").and_then(|(first, end)| {
        let (first, end) = (first.parse::<u64>().ok()?, end.parse::<u64>().ok()?);
        Some(first..=end.checked_sub(1)?)
    });
    range.filter(|range| !range.is_empty()).ok_or_else(|| "write A..B with A below B, as in 42..52".to_owned())
}

fn kernels(text: &str) -> Result<Kernels, String> {
    Kernels::from_name(text).ok_or_else(|| "write fused or reference".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_keys_are_a_range() {
        assert_eq!(run_keys("42..52"), Ok(42..=51));
        for text in ["42", "52..42", "42..42", "0..0", "..", "a..b", "-1..2", "1...3"] {
            assert!(run_keys(text).is_err(), "{text}");
        }
    }
}
