//! Confusion matrices of runs: of one, or added up over several.

use crate::page::{Cell, Matrix, Page};

use super::{folder::Runs, json::JsonPart};

/// Adds a section with the matrices of the test and validation nodes, if the reports have them.
pub(super) fn section(page: &mut Page, runs: &Runs) {
    let parts = [("/confusion/test", "Test nodes"), ("/confusion/valid", "Validation nodes")];
    let matrices: Vec<Matrix> = parts.iter().filter_map(|(pointer, name)| matrix(runs, pointer, name)).collect();
    if matrices.is_empty() {
        return;
    }
    page.section("Confusion matrix");
    page.paragraph(
        "Nodes by true class (rows) and predicted class (columns), with the weights of the best epoch. A color is as strong as the \
         cell's share of its row: blue for right predictions, orange for wrong ones.",
    );
    matrices.iter().for_each(|matrix| page.matrix(matrix));
}

/// The matrix of some nodes; `None` if there is none, if it has no nodes, or if runs have different classes.
fn matrix(runs: &Runs, pointer: &str, name: &str) -> Option<Matrix> {
    let all: Vec<JsonPart> = runs.reports().filter_map(|report| report.at(pointer)).collect();
    let first = counts(all.first()?)?;
    let n_classes = first.len();
    let mut sum = vec![vec![0; n_classes]; n_classes];
    for part in &all {
        let own = counts(part).filter(|own| own.len() == n_classes)?;
        sum.iter_mut()
            .flatten()
            .zip(own.iter().flatten())
            .for_each(|(sum, n): (&mut u64, &u64)| *sum = sum.saturating_add(*n));
    }
    if sum.iter().flatten().all(|n| *n == 0) {
        return None;
    }
    let caption = match all.len() {
        1 => name.to_owned(),
        n => format!("{name}, {n} runs added up"),
    };
    let cell = |row: usize, column: usize, n: u64| match &all[..] {
        [only] => only.cell(&format!("/{row}/{column}"), super::json::count),
        _ => Cell::new(crate::grouped(n)).with_value(n),
    };
    let row = |(row, counts): (usize, Vec<u64>)| {
        counts.into_iter().enumerate().map(|(column, n)| (n, cell(row, column, n))).collect()
    };
    let rows = sum.into_iter().enumerate().map(row).collect();
    Some(Matrix { name: format!("confusion {name}"), caption, rows })
}

/// Counts of a square matrix.
fn counts(part: &JsonPart) -> Option<Vec<Vec<u64>>> {
    let row = |row: &serde_json::Value| row.as_array()?.iter().map(serde_json::Value::as_u64).collect();
    let rows: Vec<Vec<u64>> = part.value().as_array()?.iter().map(row).collect::<Option<_>>()?;
    let is_square = rows.iter().all(|row| row.len() == rows.len());
    is_square.then_some(rows)
}
