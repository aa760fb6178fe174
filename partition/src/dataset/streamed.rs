//! Datasets too large for memory: edges and features stay in their files until they are written to the store.

use half::{bf16, f16};
use kith_store::Dtype;

use crate::{PartitionError, Result, csr::StoreBuilder, raw::RawGraph, raw::RawLabels};

/// A dataset whose nodes are in memory, and whose edges and features are read in order.
pub(crate) struct StreamedGraph {
    /// Nodes, labels, splits, ids and notes; neither edges nor features.
    pub(crate) nodes: RawGraph,
    /// Edges in the order of their files.
    pub(crate) edges: Box<dyn EdgeSource>,
    /// Features in the order of the nodes; `None` where the files hold none.
    pub(crate) rows: Option<Box<dyn FeatureSource>>,
}

/// Source and destination of an edge, and its weight: 1 where edges have none.
pub(crate) type Edge = ([u32; 2], f32);

/// Edges, one after the other.
pub(crate) trait EdgeSource {
    /// True if the edges have weights.
    fn is_weighted(&self) -> bool {
        false
    }

    /// The next edge, whose ends are nodes; `None` after the last, once the files agree on the number of edges.
    fn next_edge(&mut self) -> Result<Option<Edge>>;
}

/// Features, one node after the other.
pub(crate) trait FeatureSource {
    /// Features per node.
    fn dim(&self) -> u32;

    /// Reads the features of the next node; all values are finite.
    fn next_row(&mut self, row: &mut [f32]) -> Result<()>;

    /// Checks that nothing follows the last node.
    fn finish(&mut self) -> Result<()>;
}

impl StreamedGraph {
    /// Memory that the nodes take.
    pub(crate) fn held_bytes(&self) -> u64 {
        let RawGraph { labels, splits, ids, .. } = &self.nodes;
        let labels = match labels {
            Some(RawLabels::Classes { classes, .. }) => size_of_val(&classes[..]),
            Some(RawLabels::Bits { words, .. }) => size_of_val(&words[..]),
            None => 0,
        };
        let splits: usize = splits.iter().map(|split| split.parts.len()).sum();
        let ids: usize = ids.iter().map(|id| size_of::<String>() + id.capacity().next_multiple_of(16)).sum();
        (labels + splits + ids) as u64
    }
}

/// Writes the features of all nodes, each after `change`.
pub(crate) fn write_rows(
    builder: &mut StoreBuilder<'_>,
    rows: &mut dyn FeatureSource,
    dtype: Dtype,
    change: impl Fn(&mut [f32]),
) -> Result<()> {
    let mut node = 0u64;
    builder.dense_rows_in_order(rows.dim().into(), dtype, |row| {
        rows.next_row(row)?;
        change(row);
        node += 1;
        check_fits(node - 1, row, dtype)
    })?;
    rows.finish()
}

/// Narrow types hold smaller numbers only.
fn check_fits(node: u64, row: &[f32], dtype: Dtype) -> Result<()> {
    let largest = row.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    let fits = match dtype {
        Dtype::F16 => f16::from_f32(largest).is_finite(),
        Dtype::Bf16 => bf16::from_f32(largest).is_finite(),
        _ => true,
    };
    match fits {
        true => Ok(()),
        false => Err(PartitionError::Option(format!(
            "--dtype {0}: node {node} has the feature {largest}, which does not fit in {0}: --dtype f32 keeps it",
            dtype.name()
        ))),
    }
}
