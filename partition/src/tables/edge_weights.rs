//! Weights of edge tables: a column of the table, or an array beside it.

use std::path::Path;

use arrow_array::ArrayRef;
use kith_store::is_weight;

use crate::{
    PartitionError, Result,
    tables::{
        fields::{Misplaced, not_a_weight},
        files::{Format, TableFile},
        npy::NpyRows,
        parquet::floats,
    },
};

/// Weights of one file of edges.
pub(super) enum Weights<'a> {
    None,
    Column(&'a str),
    File(TableFile),
}

impl Weights<'_> {
    /// The array of weights of `n_edges` edges in an npy file.
    pub(super) fn of_array(self, edges: &Path, n_edges: u64) -> Result<Option<NpyRows>> {
        let file = match self {
            Weights::None => return Ok(None),
            Weights::Column(name) => {
                let problem = format!(
                    "npy edges have no columns: give --edge-weights an npy file with one weight per edge, not {name}"
                );
                return Err(PartitionError::input(edges, "header", problem));
            }
            Weights::File(file) => file,
        };
        if file.format != Format::Npy {
            return Err(PartitionError::input(
                &file.path,
                "name",
                "expected an npy file of weights, because the edges are npy",
            ));
        }
        let weights = NpyRows::open(&file.path)?;
        if weights.width != 1 || weights.n_rows != n_edges {
            let (found, width) = (weights.n_rows, weights.width);
            let problem = format!("expected {n_edges} weights, one per edge, found shape ({found}, {width})");
            return Err(PartitionError::input(&file.path, "header", problem));
        }
        Ok(Some(weights))
    }
}

/// Columns to read of a parquet file.
pub(super) fn with_weight(columns: [usize; 2], weight: Option<usize>) -> Vec<usize> {
    columns.into_iter().chain(weight).collect()
}

/// The weights in a third column, or ones without end.
pub(super) fn weights_of(arrays: &[ArrayRef]) -> Result<impl Iterator<Item = f32>, Misplaced> {
    let mut weights = Vec::new();
    if let Some(array) = arrays.get(2) {
        weights.resize(array.len(), 0.0);
        floats(array, &mut weights, 1)?;
        if let Some(row) = weights.iter().position(|weight| !is_weight(*weight)) {
            return Err((row, not_a_weight(&weights[row]).into()));
        }
    }
    let has_weights = arrays.len() > 2;
    Ok(weights.into_iter().chain(std::iter::repeat_n(1.0, if has_weights { 0 } else { usize::MAX })))
}

/// The column with a name, whatever its case and punctuation, or with a number from 0 on. `are_names`: there is a header.
pub(super) fn column_named(names: &[String], name: &str, are_names: bool) -> Result<usize, String> {
    let plain = |name: &str| -> String {
        name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
    };
    if let Some(column) = names.iter().position(|other| are_names && plain(other) == plain(name)) {
        return Ok(column);
    }
    match name.parse() {
        Ok(column) if column < names.len() => Ok(column),
        _ if are_names => Err(format!("has no column {name} for --edge-weights: columns are {}", names.join(", "))),
        _ => {
            Err(format!("has no column {name} for --edge-weights, and no header: columns are 0 to {}", names.len() - 1))
        }
    }
}
