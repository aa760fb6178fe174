//! Stores from arrays.

use std::path::PathBuf;

use kith_partition::{
    csr::{EdgeOptions, StoreBuilder},
    progress::Quiet,
};
use kith_store::{Dtype, NO_CLASS, SplitPart};
use pyo3::prelude::*;

use crate::{error::Failed, graph::read_ids};

/// Arrays of a graph, as bytes of numpy arrays.
#[derive(FromPyObject)]
pub(crate) struct Arrays {
    n_nodes: u64,
    /// int64: all sources, then all destinations.
    edge_index: Vec<u8>,
    /// float32 per edge.
    edge_weight: Option<Vec<u8>>,
    /// float32, nodes × dim.
    x: Option<Vec<u8>>,
    dim: u64,
    /// int64: a class per node, -1 for none.
    y: Option<Vec<u8>>,
    n_classes: u64,
    /// uint8 per node: 0 in no part, 1 train, 2 valid, 3 test.
    split: Option<Vec<u8>>,
    symmetrize: bool,
    merge_duplicates: bool,
    source: String,
}

/// Writes a store.
#[pyfunction]
pub(crate) fn write_store(py: Python<'_>, out: PathBuf, arrays: Arrays, memory_bytes: u64) -> PyResult<()> {
    Ok(py.detach(|| write(&out, &arrays, memory_bytes))?)
}

fn write(out: &std::path::Path, arrays: &Arrays, memory_bytes: u64) -> Result<(), Failed> {
    let mut builder = StoreBuilder::create(out, memory_bytes, &Quiet)?;
    builder.provenance().source = format!("{} (kith {})", arrays.source, env!("CARGO_PKG_VERSION"));
    let ends = read_ids(&arrays.edge_index)?;
    let (sources, destinations) = ends.split_at(ends.len() / 2);
    if let Some(node) = ends.iter().find(|node| **node >= arrays.n_nodes) {
        let problem = format!("edge_index: expected nodes below num_nodes = {}, found {node}", arrays.n_nodes);
        return Err(Failed::new(problem));
    }
    let weights = arrays.edge_weight.as_deref().map(|bytes| floats(bytes, sources.len(), "edge_weight")).transpose()?;
    let options =
        EdgeOptions { symmetrize: arrays.symmetrize, drop_loops: false, merge_duplicates: arrays.merge_duplicates };
    match weights {
        None => builder.lists(arrays.n_nodes, options, |lists| {
            let mut feeder = lists.feeder();
            sources
                .iter()
                .zip(destinations)
                .try_for_each(|(source, destination)| feeder.push(*source, *destination))?;
            feeder.finish()
        })?,
        Some(weights) => builder.weighted_lists(arrays.n_nodes, options, |lists| {
            let mut feeder = lists.feeder();
            for ((source, destination), weight) in sources.iter().zip(destinations).zip(&weights) {
                feeder.push_weighted(*source, *destination, *weight)?;
            }
            feeder.finish()
        })?,
    };
    let n_nodes = arrays.n_nodes as usize;
    if let Some(bytes) = &arrays.x {
        let dim = arrays.dim as usize;
        let values = floats(bytes, n_nodes * dim, "x")?;
        if let Some(place) = values.iter().position(|value| !value.is_finite()) {
            return Err(Failed::new(format!("x: node {} has a value that is not finite", place / dim.max(1))));
        }
        builder.dense_rows(arrays.dim, Dtype::F32, |node, row| {
            row.copy_from_slice(&values[node as usize * dim..][..dim]);
            Ok(())
        })?;
    }
    if let Some(bytes) = &arrays.y {
        let (classes, []) = bytes.as_chunks::<8>() else { return Err(Failed::new("y: expected int64 numbers")) };
        let class = |bytes: &[u8; 8]| match i64::from_le_bytes(*bytes) {
            -1 => Ok(NO_CLASS),
            class => match u32::try_from(class).ok().filter(|class| u64::from(*class) < arrays.n_classes) {
                Some(class) => Ok(class),
                None => Err(Failed::new(format!("y: expected classes from 0, or -1 for none, found {class}"))),
            },
        };
        let classes: Vec<u32> = classes.iter().map(class).collect::<Result<_, _>>()?;
        expect_len("y", classes.len(), n_nodes)?;
        builder.classes(arrays.n_classes, |first, places| {
            places.copy_from_slice(&classes[first as usize..][..places.len()]);
            Ok(())
        })?;
    }
    if let Some(parts) = &arrays.split {
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

fn floats(bytes: &[u8], n: usize, name: &str) -> Result<Vec<f32>, Failed> {
    let (numbers, []) = bytes.as_chunks::<4>() else {
        return Err(Failed::new(format!("{name}: expected float32 numbers")));
    };
    expect_len(name, numbers.len(), n)?;
    Ok(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

fn expect_len(name: &str, found: usize, expected: usize) -> Result<(), Failed> {
    match found == expected {
        true => Ok(()),
        false => Err(Failed::new(format!("{name}: expected {expected} numbers, found {found}"))),
    }
}
