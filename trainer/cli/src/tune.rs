//! `kith tune`.

use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use kith_lab::tune::{self, BEST, Ground, Method, Outcome, Progress, Space, State, Trial, TrialLog, Tuning, tune};
use kith_run::config::{BY_RUN_KEY, Choice, RunConfig};
use kith_trainer::{
    data::{Data, opened::Opened},
    engine::{device, gpu},
};

use crate::{
    answer::{print, print_json, print_table},
    graph::GraphArgs,
    progress::say,
    train::{run_file, run_keys},
};

/// Search for the settings of a run that are best for the valid nodes.
#[derive(clap::Args)]
#[command(after_help = "\
The paper's keys:  kith tune cora/supergat-mx --store stores/cora --trials 60 --out tuned/cora-mx
Go on, or more:    the same again; what is in --out is not run again
Other keys:        kith tune my.toml --store stores/mine --trials 30 --tune train.learning_rate=1e-3..0.1:log \\
                     --tune model.features=4,8,16 --tune edge_loss.kept=off
What it found:     kith train tuned/cora-mx/best.toml --store stores/cora --run-keys 100..110")]
pub(crate) struct Args {
    /// A preset (see kith train --list-presets) or a run file.
    #[arg(value_name = "PRESET|FILE")]
    run: String,
    #[command(flatten)]
    graph: GraphArgs,
    /// Trials in all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    trials: u64,
    /// The runs of each trial: one for each key from A to B - 1.
    #[arg(long, value_name = "A..B", value_parser = run_keys, default_value = "42..45")]
    run_keys: RangeInclusive<u64>,
    /// The folder to keep trials in: what was tried goes on from there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Change a key of the run file before the search; may be given several times. SECTION=off leaves a section out.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    assignments: Vec<String>,
    /// Search a number of the run file: KEY=LOW..HIGH, KEY=LOW..HIGH:log, KEY=A,B,C; KEY=off leaves one of the usual out.
    #[arg(long = "tune", value_name = "KEY=VALUES")]
    asked: Vec<String>,
    /// How settings are chosen: gp, tpe or random.
    #[arg(long, default_value = "gp", value_parser = method)]
    method: Method,
    /// Names all that the choice draws.
    #[arg(long, value_name = "K", default_value_t = 42)]
    tuning_key: u64,
    /// Trials that are chosen together and run at once, each on its part of the cores; on a GPU, one after the other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    parallel: u64,
    /// Where to compute: cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    device::start();
    device::number_of(&args.device).map_err(anyhow::Error::msg)?;
    let mut file = run_file(&args.run)?;
    for assignment in &args.assignments {
        file.set(assignment)?;
    }
    let tuning = Tuning {
        space: Space::new(&file, &args.asked)?,
        run_file: file,
        method: args.method,
        tuning_key: args.tuning_key,
        n_trials: args.trials as usize,
        run_keys: args.run_keys.clone().collect(),
        n_together: args.parallel as usize,
    };
    let opened = args.graph.open()?;
    let source = opened.source();
    let mut config = tuning.run_file.resolve()?;
    let mut kept = match &args.out {
        None => TrialLog::nowhere(),
        Some(out) => TrialLog::open(out, &tuning, &source.digest)?,
    };
    let data = load(&opened, &config, &tuning.run_keys)?;
    let (device, gpu) = gpu::choose(&args.device, None, &mut config).map_err(anyhow::Error::msg)?;
    let ground = Ground { data: &data, source, device, gpu, kernels: config.train.kernels };
    if let n @ 1.. = kept.trials().len().min(tuning.n_trials) {
        say(&format!("{n} of {} trials are kept", tuning.n_trials));
    }
    tune(&tuning, &ground, &mut kept, |progress| say(&line(progress)))?;
    let outcome = kept.finish(&tuning)?;
    match args.json {
        true => print_json(&tune::report(&tuning, &outcome)),
        false => print_results(&tuning, &outcome, args.out.as_deref()),
    }
}

/// What the runs of a trial learn from: the same for all of them, unless each key has a split of its own.
fn load(opened: &Opened, config: &RunConfig, run_keys: &[u64]) -> anyhow::Result<Vec<Data>> {
    let is_by_run_key = config.train.split.as_deref() == Some(BY_RUN_KEY);
    let own = if is_by_run_key { run_keys } else { &run_keys[..1] };
    Ok(own.iter().map(|run_key| Data::load(opened, config, *run_key)).collect::<Result<_, _>>()?)
}

fn line(progress: &Progress<'_>) -> String {
    let Progress { trial, best, n_done, n_trials, left } = progress;
    let best = best.map_or(String::new(), |best| format!(", best {} (trial {})", percent(best.valid), best.trial));
    let left = if n_done < n_trials { format!(", about {} left", span(*left)) } else { String::new() };
    format!("trial {}: valid {}{best}; {n_done} of {n_trials} done{left}", trial.trial, how_it_went(trial))
}

fn how_it_went(trial: &Trial) -> String {
    match trial.state {
        State::Finished => percent(trial.valid),
        State::Stopped => format!("{}, stopped", percent(trial.valid)),
        State::Failed => "none, not finite".to_owned(),
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.2}", 100.0 * share))
}

fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// The best ten trials, the best first, and where its run file is.
fn print_results(tuning: &Tuning, outcome: &Outcome<'_>, out: Option<&Path>) -> anyhow::Result<()> {
    let mut ranked: Vec<&Trial> = outcome.trials.iter().filter(|trial| trial.state == State::Finished).collect();
    ranked.sort_by(|a, b| b.valid.partial_cmp(&a.valid).unwrap_or(std::cmp::Ordering::Equal));
    let keys = tuning.space.dimensions().iter().map(|dimension| dimension.key.clone());
    let mut rows: Vec<Vec<String>> = vec![["trial".to_owned(), "valid".to_owned()].into_iter().chain(keys).collect()];
    for trial in ranked.iter().take(10) {
        let values = trial.values_of(&tuning.space);
        let values = values.iter().map(|value| shortened(*value));
        rows.push([trial.trial.to_string(), percent(trial.valid)].into_iter().chain(values).collect());
    }
    print_table(&rows)?;
    let place = out.map_or(String::new(), |out| format!(": {}", out.join(BEST).display()));
    print(&format!("best: trial {}, valid {}{place}\n", outcome.best.trial, percent(outcome.best.valid)))
}

/// A number to four digits.
fn shortened(value: f64) -> String {
    let exact = format!("{value:?}");
    if exact.len() <= 8 { exact } else { format!("{value:.3e}") }
}

fn method(text: &str) -> Result<Method, String> {
    Method::from_name(text).ok_or_else(|| "write gp, tpe or random".to_owned())
}
