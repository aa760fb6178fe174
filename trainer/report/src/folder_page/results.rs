//! Results of runs: key numbers, and a table of all runs.

use crate::page::{Cell, Column, Table};

use super::{
    folder::{Run, Runs},
    json::{JsonPart, count, percent, seconds},
};
use crate::statistics::Spread;

/// Key numbers.
pub(super) fn tiles(runs: &Runs, paper: Option<(f64, f64)>) -> Vec<(&'static str, Cell)> {
    let mut tiles = Vec::new();
    if runs.reports().next().is_some() {
        tiles.push(("test, best epoch", spread(runs, "test").followed_by("%")));
        tiles.push(("valid, best epoch", spread(runs, "valid").followed_by("%")));
        tiles.push(("test, last epoch", spread(runs, "test_last").followed_by("%")));
        if let Some(paper) = paper {
            tiles.push(("test, last epoch, paper", paper_cell(paper).followed_by("%")));
        }
    }
    if let [run] = &runs.all[..] {
        if let (None, Some(last)) = (&run.report, run.steps.all.iter().rev().find(|step| step.valid.is_some())) {
            let cell = |share: Option<f64>| {
                share.map_or_else(Cell::unknown, |share| Cell::new(percent(share)).with_value(share)).followed_by("%")
            };
            tiles.extend([("test so far", cell(last.test)), ("valid so far", cell(last.valid))]);
        }
        tiles.push(("epochs", epochs(run)));
    } else {
        tiles.push(("runs", Cell::new(count(runs.all.len() as f64))));
    }
    tiles.push(("time of all steps", time(runs).followed_by("s")));
    tiles
}

/// One row per run, their means below, and the paper's results.
pub(super) fn table(runs: &Runs, paper: Option<(f64, f64)>, metric: &str) -> Table {
    let heads = [
        ("seed", "determines all random draws of the run".to_owned()),
        ("epochs", "epochs that ran".to_owned()),
        ("best epoch", "the epoch with the best validation, counted from 0; of several, the last".to_owned()),
        ("valid (%)", format!("validation {metric} of the best epoch")),
        ("test (%)", format!("test {metric} of the best epoch")),
        ("valid_last (%)", format!("validation {metric} of the last epoch")),
        ("test_last (%)", format!("test {metric} of the last epoch: what the paper's tables show")),
        ("valid loss", "validation loss of the last epoch".to_owned()),
        ("time (s)", "time of steps and measuring".to_owned()),
    ];
    let named = |(name, tip): (&str, String)| Column { name: name.to_owned(), tip };
    let mut foot = Vec::new();
    if runs.reports().count() > 1 {
        let blank = || Cell::new("");
        let test_last = spread(runs, "test_last");
        let mean = [spread(runs, "valid"), spread(runs, "test"), spread(runs, "valid_last"), test_last];
        foot.push([&[Cell::new("mean ± std"), blank(), blank()], &mean[..], &[blank(), blank()]].concat());
    }
    if let Some(paper) = paper {
        let mut row = vec![Cell::new(""); heads.len()];
        row[0] = Cell::new("paper");
        row[6] = paper_cell(paper);
        foot.push(row);
    }
    Table {
        name: "runs".to_owned(),
        caption: String::new(),
        columns: heads.into_iter().map(named).collect(),
        rows: runs.all.iter().map(row).collect(),
        foot,
    }
}

fn row(run: &Run) -> Vec<Cell> {
    let key = run.key.map_or_else(Cell::unknown, |key| Cell::new(key.to_string()).with_value(key));
    let cell = |name: &str, shown: fn(f64) -> String| {
        run.report.as_ref().map_or_else(Cell::unknown, |report| report.cell(&format!("/results/{name}"), shown))
    };
    let reported = run.report.as_ref().and_then(|report| report.at("/run_key"));
    vec![
        reported.map_or(key, |key| key.as_written()),
        epochs(run),
        cell("best_epoch", count),
        cell("valid", percent),
        cell("test", percent),
        cell("valid_last", percent),
        cell("test_last", percent),
        cell("valid_loss_last", |loss| format!("{loss:.4}")),
        match &run.report {
            Some(_) => cell("seconds", seconds),
            None => Cell::new(seconds(run.steps.seconds())).with_value(run.steps.seconds()),
        },
    ]
}

/// Trained epochs, or started ones while the run lasts.
fn epochs(run: &Run) -> Cell {
    match &run.report {
        Some(report) => report.cell("/results/epochs", count),
        None => Cell::new(format!("{} so far", count(run.steps.n_epochs() as f64))).with_value(run.steps.n_epochs()),
    }
}

/// A result of one run, or mean and standard deviation over all ended runs.
fn spread(runs: &Runs, name: &str) -> Cell {
    if let Some(of) = runs.means.as_ref().and_then(|means| means.at(&format!("/{name}"))) {
        return Cell::joined(vec![of.cell("/mean", percent), of.cell("/std", percent)], " ± ");
    }
    let pointer = format!("/results/{name}");
    let reports: Vec<&JsonPart> = runs.reports().collect();
    if let ([report], false) = (&reports[..], runs.are_several) {
        return report.cell(&pointer, percent);
    }
    let values: Vec<f64> = reports.iter().filter_map(|report| report.number(&pointer)).collect();
    let Spread { mean, std, .. } = Spread::of(&values);
    let cell = |value: f64| Cell::new(percent(value)).with_value(value);
    match values.len() {
        0 => Cell::unknown(),
        1 => cell(mean),
        _ => Cell::joined(vec![cell(mean), cell(std)], " ± "),
    }
}

fn paper_cell((mean, std): (f64, f64)) -> Cell {
    let cell = |value: f64| Cell::new(format!("{value:.1}")).with_value(value);
    Cell::joined(vec![cell(mean), cell(std)], " ± ")
}

/// Seconds of all steps of all runs.
fn time(runs: &Runs) -> Cell {
    if let [Run { report: Some(report), .. }] = &runs.all[..] {
        return report.cell("/results/seconds", seconds);
    }
    let of = |run: &Run| {
        let reported = run.report.as_ref().and_then(|report| report.number("/results/seconds"));
        reported.unwrap_or_else(|| run.steps.seconds())
    };
    let sum: f64 = runs.all.iter().map(of).sum();
    Cell::new(seconds(sum)).with_value(sum)
}
