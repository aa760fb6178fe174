//! `kith tune`: hyperparameter search.

use std::{path::Path, time::Duration};

use kith_cli::{
    answer::{print, print_json, print_table},
    progress::say,
    train::run_file,
    tune::Args,
};
use kith_lab::tune::{self, BEST, Ground, Outcome, Progress, Space, State, Trial, TrialLog, Tuning, tune};
use kith_run::{
    choice::Choice,
    config::{BY_SEED, RunConfig},
};
use kith_trainer::{
    data::{Data, opened::Opened},
    engine::{device, gpu},
};

use crate::{graph::open, train::choose_mode};

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    device::start();
    device::number_of(&args.device).map_err(anyhow::Error::msg)?;
    let mut file = run_file(&args.run)?;
    for assignment in &args.assignments {
        file.set(assignment)?;
    }
    let opened = open(&args.graph)?;
    choose_mode(&mut file, &opened)?.iter().for_each(|choice| say(choice));
    let tuning = Tuning {
        space: Space::new(&file, &args.asked)?,
        run_file: file,
        method: args.method,
        tuning_key: args.tuning_key,
        n_trials: args.trials as usize,
        run_keys: args.run_keys.clone().collect(),
        n_together: args.parallel as usize,
    };
    let source = opened.source();
    let mut config = tuning.run_file.resolve()?;
    if let Some(metric) = config.train.metric.filter(|metric| metric.score(1.0) < 0.0) {
        let name = metric.name();
        anyhow::bail!("`train.metric`: kith tune maximizes its metric, and a lower {name} is better: use r2");
    }
    // Data is loaded once, for all trials.
    if let Some(key) =
        tuning.space.dimensions().iter().map(|dimension| &dimension.key).find(|key| key.starts_with("links."))
    {
        anyhow::bail!(
            "`{key}`: trials share their held-out edges, so keys of [links] cannot be searched: run `kith train` for each value"
        );
    }
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

/// Training data of a trial's runs: the same for all of them, unless each seed has a split or held-out edges of its own.
fn load(opened: &Opened, config: &RunConfig, run_keys: &[u64]) -> anyhow::Result<Vec<Data>> {
    let is_by_run_key = config.train.split.as_deref() == Some(BY_SEED) || config.links.is_some();
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
