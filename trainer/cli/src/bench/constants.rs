//! `kith bench constants`: measures what a unit of work costs on this machine, for `kith plan --hosts`.

mod devices;
mod fit;
mod gauge;
mod prices;
mod ranks;
mod runs;
mod subjects;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context;
use kith_run::{choice::Choice, model_kind::ModelKind};

use self::{
    devices::{Disk, loopback, processor},
    prices::Prices,
    ranks::{fit_ranks, fit_threads, idleness},
    runs::{Bench, Ended, Measured},
    subjects::Subject,
};
use super::cores::cores;
use crate::{
    answer::{print, print_json, print_table},
    constants::{Constant, Constants, median},
    progress::say,
    signals,
    temporary::Temporary,
};

/// Measure what a unit of work costs on this machine, for `kith plan --hosts`: sampling, features, calls to servers, forward and
/// backward of each model, exchange of gradients, loopback device, disk. Takes about three minutes; the machine should be idle.
#[derive(clap::Args)]
#[command(after_help = "\
This machine:          kith bench constants
For another machine:   kith bench constants --out constants.json
With GPUs:             kith bench constants --device cuda

Trains small models on generated graphs, with kith-sampler and kith train as processes of this host, and fits the prices of their
counted work to their CPU time. docs/grow/plan.md explains each constant.")]
pub struct Args {
    /// File for the constants (default: ~/.cache/kith/constants.json, where `kith plan` looks).
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also measure the models on a GPU: cuda or cuda:N (default: cpu).
    #[arg(long, default_value = "cpu", hide_default_value = true)]
    device: String,
    /// Models to measure (default: all that can be trained in mini-batches).
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',')]
    models: Vec<String>,
    /// Number of rounds, each of all measurements in turn, of which the median counts (default: 3, or fewer that end within 200 seconds).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: Option<u8>,
    /// Least milliseconds of a measurement in a round (default: 300).
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 300, hide_default_value = true,
        value_parser = clap::value_parser!(u16).range(1..=60_000))]
    round: u16,
    /// Folder on the disk to measure (default: the folder of temporary files).
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Models that can be trained in mini-batches, by the name of their constants.
const MODELS: [ModelKind; 6] =
    [ModelKind::Supergat, ModelKind::Gat, ModelKind::Gcn, ModelKind::Sage, ModelKind::Gin, ModelKind::Mlp];

/// Rounds, if they end in time.
const ROUNDS: u8 = 3;
const MOST: Duration = Duration::from_secs(200);

/// Time of a step relative to its CPU time, above which a machine is not idle.
const BUSY: f64 = 1.2;

pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let at_once = signals::end_at_once()?;
    let models: Vec<ModelKind> = MODELS
        .into_iter()
        .filter(|kind| args.models.is_empty() || args.models.iter().any(|name| name == kind.name()))
        .collect();
    if let Some(name) = args.models.iter().find(|name| !MODELS.iter().any(|kind| kind.name() == *name)) {
        let known: Vec<&str> = MODELS.iter().map(|kind| kind.name()).collect();
        anyhow::bail!("--models {name}: expected some of {}", known.join(", "));
    }
    let out = args.out.clone().map_or_else(Constants::default_path, Ok)?;
    let cores = cores()?;
    let folder = Temporary::new("kith-constants-")?;
    let mut disks = Vec::new();
    let disk_folder = match &args.disk {
        Some(dir) => Some(tempfile::Builder::new().prefix("kith-constants-").tempdir_in(dir)?),
        None => None,
    };
    let mut disk = Disk::new(disk_folder.as_ref().map_or(folder.path(), |dir| dir.path())).context("--disk")?;
    let mut links = Vec::new();
    let n_rounds = args.rounds.unwrap_or(ROUNDS);
    for _ in 0..n_rounds {
        disks.push(disk.measure().context("--disk")?);
        links.push(loopback().context("loopback device")?);
    }
    drop((disk, disk_folder));
    let bench = Bench::new(folder.path(), &cores, Duration::from_millis(args.round.into()))?;
    drop(at_once); // From here on, processes must be stopped before an exit.
    let subjects = Subject::all(&models, cores.len(), &args.device);
    let mut measured: Vec<Measured> =
        subjects.iter().map(|subject| bench.count(subject)).collect::<anyhow::Result<_>>()?;
    let began = Instant::now();
    for round in 0..n_rounds {
        let after = began.elapsed().mul_f64(f64::from(round + 1) / f64::from(round.max(1)));
        if args.rounds.is_none() && round > 0 && after > MOST {
            say(&format!(
                "note: stopped after {round} of {n_rounds} rounds, to end within {} s: --rounds N measures N rounds",
                MOST.as_secs()
            ));
            break;
        }
        say(&format!("round {} of {n_rounds}", round + 1));
        for (place, one) in measured.iter_mut().enumerate() {
            if round == 0 {
                say(&format!("{} of {}: {}", place + 1, subjects.len(), one.subject));
            }
            match bench.measure(&one.subject)? {
                Ended::With(round) => one.rounds.push(round),
                Ended::Stopped(code) => return Ok(code),
            }
        }
    }

    let gpu = Some(args.device.clone()).filter(|device| device != "cpu");
    let mut constants = Constants::new(processor(), cores.len(), gpu);
    let mut prices = Prices::new(&measured);
    prices.fit_work(&models);
    fit_ranks(&mut prices);
    fit_threads(&mut prices);
    let idleness = f64::max(idleness(&measured, 1), idleness(&measured, 2));
    if idleness > BUSY {
        say(&format!(
            "note: steps took {idleness:.1} times their CPU time: the machine has other work, which makes the constants of waits, of \
             the ring, of crowding and of threads too large"
        ));
    }
    prices.put_named("link.latency", (median(&links), links));
    prices.put_named("disk.page", (median(&disks), disks));
    constants.constants = prices.constants;
    constants.errors = prices.errors;
    constants.write(&out)?;
    if args.json {
        print_json(&constants)?;
    } else {
        print(&format!("{}, {} cores, kith {}\n\n", constants.machine, constants.cores, constants.kith))?;
        let mut table = vec![["constant", "median", "least", "greatest", "meaning"].map(str::to_owned).to_vec()];
        for (name, constant) in &constants.constants {
            let shown = |value: f64| readable(value, &constant.unit);
            let Constant { median, least, greatest, meaning, .. } = constant;
            table.push(vec![name.clone(), shown(*median), shown(*least), shown(*greatest), meaning.clone()]);
        }
        print_table(&table)?;
        let errors: Vec<String> =
            constants.errors.iter().map(|(name, error)| format!("{name} {:.0}%", 100.0 * error)).collect();
        print(&format!("\nlargest errors of the measured runs: {}\n", errors.join(", ")))?;
    }
    say(&format!("constants in {}", out.display()));
    Ok(0)
}

/// `12.3 ns`
fn readable(value: f64, unit: &str) -> String {
    if unit != "s" {
        return format!("{value:.3} {unit}");
    }
    let (scale, name) = match value {
        value if value >= 1e-3 => (1e3, "ms"),
        value if value >= 1e-6 => (1e6, "us"),
        value if value >= 1e-9 || value == 0.0 => (1e9, "ns"),
        _ => (1e12, "ps"),
    };
    format!("{:.3} {name}", value * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_readable_units() {
        let shown = [0.0123, 4.5e-6, 7e-8, 2.5e-11, 0.0].map(|value| readable(value, "s"));
        assert_eq!(shown, ["12.300 ms", "4.500 us", "70.000 ns", "25.000 ps", "0.000 ns"]);
        assert_eq!(readable(0.25, "share"), "0.250 share");
    }

    #[test]
    fn all_models_of_mini_batches_are_measured() {
        let all = ModelKind::ALL.iter().filter(|(name, _)| *name != "cgat").count();
        assert_eq!(MODELS.len(), all, "a new model needs constants");
    }
}
