//! Accuracy against λ_E, p_n and p_e, each varied alone.

use kith_partition::progress::Progress;
use kith_report::{Axis, statistics::Spread};

use crate::{
    bench::{machine, run},
    curves::{self, Curve},
    error::LabError,
    experiment::{Done, Training, Workplace},
    findings::{Cell as Shown, Figure, Findings, Table},
    grid::{Cells, Grid, Variant},
};

/// Varied keys, their names in the paper, and the paper's values.
pub const SWEEPS: [(&str, &str, &[f64]); 3] = [
    ("edge_loss.weight", "λ_E", &[1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0]),
    ("edge_loss.neg_sample_ratio", "p_n", &[0.1, 0.5, 1.0, 2.5, 5.0]),
    ("edge_loss.edge_sampling_ratio", "p_e", &[0.1, 0.3, 0.5, 0.7, 0.9]),
];

/// Trains every value of every key.
pub fn sensitivity(asked: &Grid<'_>, place: &Workplace, progress: &dyn Progress) -> Result<Findings, LabError> {
    let variant =
        |key, symbol, value: &f64| Variant { assignments: vec![format!("{key}={value:?}")], name: (symbol, *value) };
    let variants =
        SWEEPS.iter().flat_map(|(key, symbol, tried)| tried.iter().map(|value| variant(*key, *symbol, value)));
    let Cells { cells, variants: values, mut notes } = asked.cells(&variants.collect::<Vec<_>>(), place, progress)?;
    let done = run(cells, &Training, place, progress)?;
    notes.extend(done.iter().flat_map(Done::failures));
    notes.push(
        "accuracies in percent, mean ± population standard deviation; everything else is as in the preset".to_owned(),
    );
    let columns = ["dataset", "model", "what", "value", "valid", "test", "test_last", "runs"];
    let mut table = Table::new("Accuracy against the settings of the edge loss", &columns);
    let spread = |spread: Spread| Shown::shown(spread.mean, format!("{:.2} ± {:.2}", spread.mean, spread.std));
    let figures = figures(&done, &values);
    for (done, (symbol, value)) in done.iter().zip(values) {
        table.rows.push(vec![
            Shown::text(&done.cell.subject.name),
            Shown::text(&done.cell.model),
            Shown::text(symbol),
            Shown::shown(value, format!("{value:?}")),
            spread(done.valid()),
            spread(done.test()),
            spread(done.test_last()),
            Shown::number(done.test().n as f64, 0),
        ]);
    }
    Ok(Findings { kind: "sensitivity", tables: vec![table], figures, notes, machine: machine(&done) })
}

/// Accuracy against each key: one figure per dataset and key.
fn figures(done: &[Done], values: &[(&str, f64)]) -> Vec<Figure> {
    let all: Vec<(&Done, &str, f64)> =
        done.iter().zip(values).map(|(done, (symbol, value))| (done, *symbol, *value)).collect();
    let draw = |own: &[(&Done, &str, f64)]| {
        let (first, symbol, _) = own[0];
        let curve = |name: &str, of: fn(&Done) -> Spread| Curve {
            name: name.to_owned(),
            points: own.iter().map(|(done, _, value)| (*value, of(done))).collect(),
        };
        let x = if symbol == "λ_E" { Axis::log(symbol) } else { Axis::linear(symbol) };
        let curves = [curve("valid", Done::valid), curve("test", Done::test)];
        curves::figure(format!("{}: {symbol}", first.cell.subject.name), x, Axis::linear("accuracy (%)"), &curves)
    };
    all.chunk_by(|a, b| (&a.0.cell.subject.name, a.1) == (&b.0.cell.subject.name, b.1)).map(draw).collect()
}
