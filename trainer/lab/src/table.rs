//! The paper's table of accuracies: datasets × models × seeds, beside the published numbers.

use kith_partition::progress::Progress;
use kith_report::{
    paper::{Mark, Printed, printed},
    statistics::{Spread, pooled_t_test, welch_t_test},
};

use crate::{
    bench::{machine, run},
    error::LabError,
    experiment::{Done, Training, Workplace},
    findings::{Cell as Shown, Findings, Table},
    grid::{Cells, Grid, Variant},
};

/// Trains all cells and makes one of the paper's tables: `main` or `supervised`.
pub fn table(
    which: &'static str,
    asked: &Grid<'_>,
    place: &Workplace,
    progress: &dyn Progress,
) -> Result<Findings, LabError> {
    let Cells { cells, mut notes, .. } = asked.cells(&[Variant::PLAIN], place, progress)?;
    let done = run(cells, &Training, place, progress)?;
    notes.extend(done.iter().flat_map(Done::failures));
    notes.push(NUMBERS.to_owned());
    let rows: Vec<Row> = done.iter().map(|own| Row::of(own, which, gat_beside(own, &done))).collect();
    let kind = if which == "main" { "table" } else { "supervised" };
    let tables = vec![wide(&rows, &asked.models), long(&rows)];
    Ok(Findings { kind, tables, figures: Vec::new(), notes, machine: machine(&done) })
}

const NUMBERS: &str = "accuracies in percent, mean ± population standard deviation; test_last is measured after the last \
    epoch, as in the paper's tables; test at the epoch with the best validation accuracy; ** p < .0001 and * p < .0005 better \
    than GAT by an unpaired t-test of test_last, ↓ worse; the paper agrees where the difference of means is at most 1.0 or two \
    of its standard deviations";

/// GAT on the same dataset, with the same supervision.
fn gat_beside<'a>(own: &Done, all: &'a [Done]) -> Option<&'a Done> {
    let model = if own.cell.model.ends_with("-full") { "gat-full" } else { "gat" };
    let is_it = |done: &&Done| done.cell.model == model && done.cell.subject.name == own.cell.subject.name;
    all.iter().find(is_it).filter(|_| own.cell.model != model)
}

/// Results of one cell.
struct Row {
    dataset: String,
    model: String,
    n_runs: usize,
    test_last: Spread,
    test: Spread,
    epochs: Spread,
    seconds: Spread,
    /// p-values of Student's and Welch's test against GAT.
    p: Option<(f64, f64)>,
    mark: Mark,
    printed: Option<&'static Printed>,
}

impl Row {
    fn of(done: &Done, table: &str, gat: Option<&Done>) -> Row {
        let test_last = done.test_last();
        let beside = gat.map(Done::test_last);
        let p = beside.map(|gat| (pooled_t_test(test_last, gat), welch_t_test(test_last, gat)));
        let of =
            |of: fn(&kith_run::report::Results) -> f64| Spread::of(&done.values(|run| run.results.as_ref().map(of)));
        Row {
            dataset: done.cell.subject.name.clone(),
            model: done.cell.model.clone(),
            n_runs: test_last.n,
            test_last,
            test: done.test(),
            epochs: of(|results| results.epochs as f64),
            seconds: of(|results| results.seconds),
            p,
            mark: beside.zip(p).map_or(Mark::None, |(gat, (p, _))| Mark::of(test_last.mean - gat.mean, p)),
            printed: printed(table, &done.cell.subject.name, &done.cell.model),
        }
    }

    /// Difference of `spread.mean` from the published mean, and whether it is within tolerance.
    fn nearness(&self, spread: Spread) -> Option<(f64, bool)> {
        let printed = self.printed?;
        let difference = spread.mean - printed.mean;
        Some((difference, difference.abs() <= f64::max(1.0, 2.0 * printed.std.unwrap_or(0.0))))
    }
}

/// Datasets × models, each above the published numbers.
fn wide(rows: &[Row], models: &[&str]) -> Table {
    let columns: Vec<&str> = [&["dataset", ""], models].concat();
    let mut table = Table::new("Test accuracy (test_last), and the paper's", &columns);
    let mut datasets: Vec<&str> = rows.iter().map(|row| row.dataset.as_str()).collect();
    datasets.dedup();
    for dataset in datasets {
        let find = |model: &&str| rows.iter().find(|row| row.dataset == dataset && row.model == **model);
        let own = |model: &&str| {
            find(model).map_or(Shown::text(""), |row| {
                let Spread { mean, std, .. } = row.test_last;
                Shown::shown(mean, format!("{mean:.1} ± {std:.1} {}", row.mark.symbol()).trim_end().to_owned())
            })
        };
        let printed = |model: &&str| {
            find(model)
                .and_then(|row| row.printed)
                .map_or(Shown::text(""), |printed| Shown::shown(printed.mean, as_printed(printed)))
        };
        table.rows.push([vec![Shown::text(dataset), Shown::text("kith")], models.iter().map(own).collect()].concat());
        table.rows.push([vec![Shown::text(""), Shown::text("paper")], models.iter().map(printed).collect()].concat());
    }
    table
}

fn as_printed(printed: &Printed) -> String {
    let std = printed.std.map(|std| format!("± {std:.1}")).unwrap_or_default();
    let reprint = if printed.is_reprint { "(reprint)" } else { "" };
    let parts = [&format!("{:.1}", printed.mean), &std, printed.mark.symbol(), reprint];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// One line per cell, with p-values.
fn long(rows: &[Row]) -> Table {
    let columns = [
        "dataset",
        "model",
        "runs",
        "test_last",
        "test",
        "paper",
        "last − paper",
        "best − paper",
        "agrees by",
        "p (pooled)",
        "p (Welch)",
        "mark",
        "paper's mark",
        "epochs",
        "seconds",
    ];
    let mut table = Table::new("Every cell, with t-tests against GAT", &columns);
    let spread = |spread: Spread| Shown::shown(spread.mean, format!("{:.2} ± {:.2}", spread.mean, spread.std));
    let probability = |p: Option<f64>| p.map_or(Shown::text(""), |p| Shown::shown(p, format!("{p:.1e}")));
    for row in rows {
        let (last, best) = (row.nearness(row.test_last), row.nearness(row.test));
        let difference = |found: Option<(f64, bool)>| {
            found.map_or(Shown::text(""), |(difference, _)| Shown::shown(difference, format!("{difference:+.2}")))
        };
        let agrees = match (last, best) {
            (Some((_, true)), Some((_, true))) => "both",
            (Some((_, true)), _) => "last",
            (_, Some((_, true))) => "best",
            (Some(_), _) => "neither",
            _ => "",
        };
        table.rows.push(vec![
            Shown::text(&row.dataset),
            Shown::text(&row.model),
            Shown::number(row.n_runs as f64, 0),
            spread(row.test_last),
            spread(row.test),
            row.printed.map_or(Shown::text(""), |printed| Shown::shown(printed.mean, as_printed(printed))),
            difference(last),
            difference(best),
            Shown::text(agrees),
            probability(row.p.map(|p| p.0)),
            probability(row.p.map(|p| p.1)),
            Shown::text(row.mark.symbol()),
            Shown::text(row.printed.map_or("", |printed| printed.mark.symbol())),
            Shown::number(row.epochs.mean, 0),
            Shown::number(row.seconds.mean, 2),
        ]);
    }
    table
}
