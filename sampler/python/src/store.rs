//! Stores from arrays.

use std::path::{Path, PathBuf};

use kith_partition::{
    csr::{EdgeOptions, EdgeRows, EdgeValue, ListsBuilder, StoreBuilder},
    progress::Quiet,
};
use kith_store::{Dtype, NO_CLASS, SplitPart};
use pyo3::prelude::*;

use crate::{error::Failed, graph::ids_of_numbers, memory::Borrowed};

/// Numpy arrays of a graph.
#[derive(FromPyObject)]
pub(crate) struct Arrays<'py> {
    n_nodes: u64,
    /// int64: all sources, then all destinations.
    edge_index: Bound<'py, PyAny>,
    /// float32 per edge.
    edge_weight: Option<Bound<'py, PyAny>>,
    /// float32, edges × edge_dim.
    edge_attr: Option<Bound<'py, PyAny>>,
    edge_dim: usize,
    /// float32, nodes × dim.
    x: Option<Bound<'py, PyAny>>,
    dim: usize,
    /// int64: a class per node, -1 for none.
    y: Option<Bound<'py, PyAny>>,
    /// float32, nodes × n_classes: 1 for every class of a node (`y_kind` multi-label), or numbers to predict (targets).
    y_rows: Option<Bound<'py, PyAny>>,
    y_kind: String,
    n_classes: usize,
    /// uint8 per node: 0 in no part, 1 train, 2 valid, 3 test.
    split: Option<Bound<'py, PyAny>>,
    symmetrize: bool,
    merge_duplicates: bool,
    source: String,
}

/// Writes a store.
#[pyfunction]
pub(crate) fn write_store(py: Python<'_>, out: PathBuf, arrays: Arrays<'_>, memory_bytes: u64) -> PyResult<()> {
    let edge_index = Borrowed::<i64>::of(&arrays.edge_index, "edge_index")?;
    let (edge_weight, edge_attr) =
        (floats(arrays.edge_weight.as_ref(), "edge_weight")?, floats(arrays.edge_attr.as_ref(), "edge_attr")?);
    let (x, y_rows) = (floats(arrays.x.as_ref(), "x")?, floats(arrays.y_rows.as_ref(), "y")?);
    let y = arrays.y.as_ref().map(|array| Borrowed::<i64>::of(array, "y")).transpose()?;
    let split = arrays.split.as_ref().map(|array| Borrowed::<u8>::of(array, "split")).transpose()?;
    let columns = Columns {
        n_nodes: arrays.n_nodes,
        ends: edge_index.numbers(),
        weights: edge_weight.as_ref().map(Borrowed::numbers),
        edge_features: edge_attr.as_ref().map(|given| (given.numbers(), arrays.edge_dim)),
        x: x.as_ref().map(|given| (given.numbers(), arrays.dim)),
        labels: match (y.as_ref(), y_rows.as_ref()) {
            (Some(classes), _) => Some(Labels::Classes(classes.numbers())),
            (None, Some(rows)) if arrays.y_kind == "targets" => Some(Labels::Targets(rows.numbers())),
            (None, Some(rows)) => Some(Labels::MultiLabel(rows.numbers())),
            (None, None) => None,
        },
        n_classes: arrays.n_classes,
        split: split.as_ref().map(Borrowed::numbers),
        options: EdgeOptions {
            symmetrize: arrays.symmetrize,
            drop_loops: false,
            merge_duplicates: arrays.merge_duplicates,
        },
        source: &arrays.source,
    };
    Ok(py.detach(|| columns.write(&out, memory_bytes))?)
}

fn floats<'py>(array: Option<&Bound<'py, PyAny>>, name: &str) -> PyResult<Option<Borrowed<'py, f32>>> {
    array.map(|array| Borrowed::of(array, name)).transpose()
}

enum Labels<'a> {
    Classes(&'a [i64]),
    MultiLabel(&'a [f32]),
    Targets(&'a [f32]),
}

/// Columns of a store.
struct Columns<'a> {
    n_nodes: u64,
    ends: &'a [i64],
    weights: Option<&'a [f32]>,
    edge_features: Option<(&'a [f32], usize)>,
    x: Option<(&'a [f32], usize)>,
    labels: Option<Labels<'a>>,
    n_classes: usize,
    split: Option<&'a [u8]>,
    options: EdgeOptions,
    source: &'a str,
}

impl Columns<'_> {
    fn write(&self, out: &Path, memory_bytes: u64) -> Result<(), Failed> {
        let mut builder = StoreBuilder::create(out, memory_bytes, &Quiet)?;
        builder.provenance().source = format!("{} (kith {})", self.source, env!("CARGO_PKG_VERSION"));
        self.write_lists(&mut builder)?;
        let n_nodes = self.n_nodes as usize;
        if let Some((values, dim)) = self.x {
            expect_len("x", values.len(), n_nodes * dim)?;
            expect_finite("x: node", values, dim)?;
            builder.dense_rows(dim as u64, Dtype::F32, |node, row| {
                row.copy_from_slice(&values[node as usize * dim..][..dim]);
                Ok(())
            })?;
        }
        if let Some(labels) = &self.labels {
            self.write_labels(labels, &mut builder)?;
        }
        if let Some(parts) = self.split {
            expect_len("split", parts.len(), n_nodes)?;
            builder.split("given", |node| {
                Ok(match parts[node as usize] {
                    1 => SplitPart::Train,
                    2 => SplitPart::Valid,
                    3 => SplitPart::Test,
                    _ => SplitPart::None,
                })
            })?;
        }
        builder.finish()?;
        Ok(())
    }

    fn write_lists(&self, builder: &mut StoreBuilder<'_>) -> Result<(), Failed> {
        let Columns { n_nodes, options, weights, .. } = *self;
        let ends = ids_of_numbers(self.ends, "edge_index")?;
        let (sources, destinations) = ends.split_at(ends.len() / 2);
        if let Some(node) = ends.iter().find(|node| **node >= n_nodes) {
            return Err(Failed::new(format!("edge_index: expected nodes below num_nodes = {n_nodes}, found {node}")));
        }
        if let Some(weights) = weights {
            expect_len("edge_weight", weights.len(), sources.len())?;
            if let Some(place) = weights.iter().position(|weight| !weight.is_finite() || *weight < 0.0) {
                let problem =
                    format!("edge_weight: expected finite numbers from 0, found {} at edge {place}", weights[place]);
                return Err(Failed::new(problem));
            }
        }
        let feed = |lists: &ListsBuilder<'_>| {
            let mut feeder = lists.feeder();
            for (row, (source, destination)) in sources.iter().zip(destinations).enumerate() {
                let weight = weights.map_or(1.0, |weights| weights[row]);
                feeder.push_with(*source, *destination, EdgeValue { weight, row: row as u64 })?;
            }
            feeder.finish()
        };
        match self.edge_features {
            Some((values, dim)) => {
                expect_len("edge_attr", values.len(), sources.len() * dim)?;
                expect_finite("edge_attr: edge", values, dim)?;
                if options.merge_duplicates {
                    let problem = "merge_duplicates and edge_attr cannot be combined: each edge has its own features";
                    return Err(Failed::new(problem));
                }
                let row = |row: u64| &values[row as usize * dim..][..dim];
                let are_same = |one: u64, other: u64| Ok(row(one) == row(other));
                let rows = EdgeRows { have_weights: weights.is_some(), are_same: &are_same };
                let (_, rows) = builder.lists_with_rows(n_nodes, options, rows, feed)?;
                builder.edge_features(dim as u64, Dtype::F32, |edge, features| {
                    features.copy_from_slice(row(rows.items()[edge as usize]));
                    Ok(())
                })?;
            }
            None if weights.is_some() => drop(builder.weighted_lists(n_nodes, options, feed)?),
            None => drop(builder.lists(n_nodes, options, feed)?),
        }
        Ok(())
    }

    fn write_labels(&self, labels: &Labels<'_>, builder: &mut StoreBuilder<'_>) -> Result<(), Failed> {
        let (n_nodes, n_classes) = (self.n_nodes as usize, self.n_classes);
        match labels {
            Labels::Classes(classes) => {
                expect_len("y", classes.len(), n_nodes)?;
                let class = |class: &i64| match u32::try_from(*class) {
                    Err(_) if *class == -1 => Ok(NO_CLASS),
                    Ok(class) if (class as usize) < n_classes => Ok(class),
                    _ => Err(Failed::new(format!("y: expected classes from 0, or -1 for none, found {class}"))),
                };
                let classes: Vec<u32> = classes.iter().map(class).collect::<Result<_, _>>()?;
                builder.classes(n_classes as u64, |first, places| {
                    places.copy_from_slice(&classes[first as usize..][..places.len()]);
                    Ok(())
                })?;
            }
            Labels::MultiLabel(rows) => {
                expect_len("y", rows.len(), n_nodes * n_classes)?;
                let n_words = n_classes.div_ceil(64);
                let mut words = vec![0; n_nodes * n_words];
                for (row, words) in rows.chunks_exact(n_classes.max(1)).zip(words.chunks_exact_mut(n_words.max(1))) {
                    for (class, value) in row.iter().enumerate() {
                        words[class / 64] |= u64::from(*value != 0.0) << (class % 64);
                    }
                }
                builder.label_bits(n_classes as u64, &words)?;
            }
            Labels::Targets(rows) => {
                expect_len("y", rows.len(), n_nodes * n_classes)?;
                builder.numbers(n_classes as u64, |first, places| {
                    places.copy_from_slice(&rows[first as usize * n_classes..][..places.len()]);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

fn expect_finite(whose: &str, values: &[f32], dim: usize) -> Result<(), Failed> {
    match values.iter().position(|value| !value.is_finite()) {
        Some(place) => Err(Failed::new(format!("{whose} {} has a value that is not finite", place / dim.max(1)))),
        None => Ok(()),
    }
}

fn expect_len(name: &str, found: usize, expected: usize) -> Result<(), Failed> {
    match found == expected {
        true => Ok(()),
        false => Err(Failed::new(format!("{name}: expected {expected} numbers, found {found}"))),
    }
}
