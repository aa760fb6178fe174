//! Results of runs: key numbers, and a table of all runs.

use crate::page::{Cell, Column, Table};

use super::{
    folder::{Run, Runs},
    json::{JsonPart, count, seconds},
    metric::ShownMetric,
};
use crate::statistics::Spread;

/// Key numbers.
pub(super) fn tiles(runs: &Runs, paper: Option<(f64, f64)>, metric: ShownMetric) -> Vec<(&'static str, Cell)> {
    let mut tiles = Vec::new();
    if runs.reports().next().is_some() {
        tiles.push(("test, best epoch", spread(runs, "test", metric).followed_by(metric.unit())));
        tiles.push(("valid, best epoch", spread(runs, "valid", metric).followed_by(metric.unit())));
        tiles.push(("test, last epoch", spread(runs, "test_last", metric).followed_by(metric.unit())));
        if let Some(paper) = paper {
            tiles.push(("test, last epoch, paper", paper_cell(paper).followed_by("%")));
        }
    }
    if let [run] = &runs.all[..] {
        if let (None, Some(last)) = (&run.report, run.steps.all.iter().rev().find(|step| step.valid.is_some())) {
            let cell = |share: Option<f64>| {
                share
                    .map_or_else(Cell::unknown, |share| Cell::new(metric.show(share)).with_value(share))
                    .followed_by(metric.unit())
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
pub(super) fn table(runs: &Runs, paper: Option<(f64, f64)>, metric: ShownMetric) -> Table {
    let name = metric.name;
    let heads = [
        ("seed".to_owned(), "determines all random draws of the run".to_owned()),
        ("epochs".to_owned(), "epochs that ran".to_owned()),
        (
            "best epoch".to_owned(),
            "the epoch with the best validation, counted from 0; of several, the last".to_owned(),
        ),
        (metric.titled("valid"), format!("validation {name} of the best epoch")),
        (metric.titled("test"), format!("test {name} of the best epoch")),
        (metric.titled("valid_last"), format!("validation {name} of the last epoch")),
        (metric.titled("test_last"), format!("test {name} of the last epoch: what the paper's tables show")),
        ("valid loss".to_owned(), "validation loss of the last epoch".to_owned()),
        ("time (s)".to_owned(), "time of steps and evaluations".to_owned()),
    ];
    let named = |(name, tip): (String, String)| Column { name, tip };
    let mut foot = Vec::new();
    if runs.reports().count() > 1 {
        let blank = || Cell::new("");
        let test_last = spread(runs, "test_last", metric);
        let mean = [
            spread(runs, "valid", metric),
            spread(runs, "test", metric),
            spread(runs, "valid_last", metric),
            test_last,
        ];
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
        rows: runs.all.iter().map(|run| row(run, metric)).collect(),
        foot,
    }
}

fn row(run: &Run, metric: ShownMetric) -> Vec<Cell> {
    let score = |name: &str| {
        let pointer = format!("/results/{name}");
        run.report.as_ref().map_or_else(Cell::unknown, |report| report.cell(&pointer, |value| metric.show(value)))
    };
    let key = run.key.map_or_else(Cell::unknown, |key| Cell::new(key.to_string()).with_value(key));
    let cell = |name: &str, shown: fn(f64) -> String| {
        run.report.as_ref().map_or_else(Cell::unknown, |report| report.cell(&format!("/results/{name}"), shown))
    };
    let reported = run.report.as_ref().and_then(|report| report.at("/seed"));
    vec![
        reported.map_or(key, |key| key.as_written()),
        epochs(run),
        cell("best_epoch", count),
        score("valid"),
        score("test"),
        score("valid_last"),
        score("test_last"),
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
fn spread(runs: &Runs, name: &str, metric: ShownMetric) -> Cell {
    let show = |value: f64| metric.show(value);
    if let Some(of) = runs.means.as_ref().and_then(|means| means.at(&format!("/{name}"))) {
        return Cell::joined(vec![of.cell("/mean", show), of.cell("/std", show)], " ± ");
    }
    let pointer = format!("/results/{name}");
    let reports: Vec<&JsonPart> = runs.reports().collect();
    if let ([report], false) = (&reports[..], runs.are_several) {
        return report.cell(&pointer, show);
    }
    let values: Vec<f64> = reports.iter().filter_map(|report| report.number(&pointer)).collect();
    let Spread { mean, std, .. } = Spread::of(&values);
    let cell = |value: f64| Cell::new(show(value)).with_value(value);
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
