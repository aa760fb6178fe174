//! Verifies every byte of a store: first the checksums of all blocks, then, if those hold, the invariants of the
//! values.

use std::path::Path;

use rayon::prelude::*;

use crate::{
    blocks::{BLOCK_BYTES, Verify, checksum_of_sums},
    cluster::Cluster,
    edge_weights::EdgeWeights,
    error::{Result, StoreError},
    features::Features,
    graph::Graph,
    lists::Lists,
    manifest::{CHECKSUMS, CutEntry, Manifest},
    mapped::Mapped,
    node_columns::{Labels, Split},
    opening::open_checked,
    shard::Shard,
};

/// Result of verifying a store.
#[derive(Debug)]
pub struct Verified {
    /// Bytes that were read.
    pub n_bytes: u64,
    /// Everything that is wrong; nothing if the store is whole.
    pub findings: Vec<Finding>,
}

/// One thing that is wrong with a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The column.
    pub column: String,
    /// Place in the column: a block, or a row.
    pub place: String,
    /// Problem at this place.
    pub problem: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}: {}", self.column, self.place, self.problem)
    }
}

/// Reads every byte of the store in `dir`; `on_bytes` receives the length of every piece read. Fails only if there is
/// no manifest to compare the columns with, or if the system cannot read a file that is there: that is no damage.
pub fn verify(dir: &Path, on_bytes: &(dyn Fn(u64) + Sync)) -> Result<Verified> {
    let manifest = Manifest::read(dir)?;
    let mut findings = Vec::new();
    let sums = read_checksums(dir, &manifest, &mut findings)?;
    let mut n_bytes = 0;
    let mut first_block = 0;
    for entry in manifest.columns.iter().filter(|entry| entry.name != CHECKSUMS) {
        let n_blocks = entry.n_bytes().unwrap_or(u64::MAX).div_ceil(BLOCK_BYTES as u64) as usize;
        let column_sums = sums.get(first_block..).and_then(|rest| rest.get(..n_blocks));
        first_block = first_block.saturating_add(n_blocks);
        match open_checked(dir, entry) {
            Err(error) => findings.push(finding(&entry.name, "file", damage(error)?)),
            Ok(mapped) => {
                n_bytes += mapped.bytes().len() as u64;
                let Some(column_sums) = column_sums else { continue };
                if checksum_of_sums(column_sums) != entry.checksum {
                    let place = format!("blocks of {}", entry.name);
                    findings.push(finding(CHECKSUMS, &place, "do not match the manifest"));
                }
                findings.extend(damaged_blocks(&entry.name, &mapped, column_sums, on_bytes));
            }
        }
    }
    if findings.is_empty() {
        findings = match &manifest.contents.cut {
            None => check_values(dir)?,
            Some(CutEntry::Cluster(_)) => check_owners(dir)?,
            Some(CutEntry::Shard(_)) => check_shard(dir)?,
        };
    }
    Ok(Verified { n_bytes, findings })
}

/// The error of a damaged file; an error of the system that cannot read it is passed on.
fn damage(error: StoreError) -> Result<StoreError> {
    if error.is_of_system() { Err(error) } else { Ok(error) }
}

fn read_checksums(dir: &Path, manifest: &Manifest, findings: &mut Vec<Finding>) -> Result<Vec<u32>> {
    let Some(entry) = manifest.column(CHECKSUMS) else {
        findings.push(finding(CHECKSUMS, "file", "missing from the manifest"));
        return Ok(Vec::new());
    };
    Ok(match open_checked(dir, entry) {
        Err(error) => {
            findings.push(finding(CHECKSUMS, "file", damage(error)?));
            Vec::new()
        }
        Ok(mapped) => {
            let block_sums: Vec<u32> = mapped.bytes().chunks(BLOCK_BYTES).map(crc32fast::hash).collect();
            if checksum_of_sums(&block_sums) != entry.checksum {
                findings.push(finding(CHECKSUMS, "block 0", "the checksum differs from the manifest's"));
            }
            bytemuck::cast_slice(mapped.bytes()).to_vec()
        }
    })
}

fn damaged_blocks(column: &str, mapped: &Mapped, sums: &[u32], on_bytes: &(dyn Fn(u64) + Sync)) -> Vec<Finding> {
    let check = |(block, bytes): (usize, &[u8])| {
        on_bytes(bytes.len() as u64);
        let start = block * BLOCK_BYTES;
        (crc32fast::hash(bytes) != sums[block]).then(|| {
            let place = format!("block {block} (bytes {start}..{})", start + bytes.len());
            finding(column, &place, "the checksum differs")
        })
    };
    mapped.bytes().par_chunks(BLOCK_BYTES).enumerate().filter_map(check).collect()
}

/// The rules that hold between values: a store whose checksums are right breaks them only if it was written wrong.
fn check_values(dir: &Path) -> Result<Vec<Finding>> {
    let graph = match Graph::open_with(dir, Verify::Off) {
        Ok(graph) => graph,
        Err(error) => return Ok(vec![finding("manifest.json", "columns", damage(error)?)]),
    };
    let n_nodes = graph.n_nodes();
    let mut findings = Vec::new();
    findings.extend(first_problem(n_nodes, "indices", |node| list_problem(n_nodes, graph.lists(), node)));
    if graph.is_symmetric() {
        findings.extend(first_problem(n_nodes, "indices", |node| symmetry_problem(&graph, node)));
    } else {
        findings.extend(first_problem(n_nodes, "out_indices", |node| list_problem(n_nodes, graph.out_lists(), node)));
        findings.extend(first_problem(n_nodes, "out_edges", |node| transpose_problem(&graph, node)));
    }
    let (features, labels, splits) = (graph.features(), graph.labels(), graph.splits());
    findings.extend(first_problem(n_nodes, "edge_weights", |node| {
        weights_problem(graph.lists(), graph.edge_weights(), node)
    }));
    findings.extend(first_problem(n_nodes, "edge_features", |node| {
        edge_features_problem(graph.lists(), graph.edge_features(), node)
    }));
    findings.extend(first_problem(n_nodes, "columns of nodes", |node| {
        if let Some(ids) = graph.ids() {
            ids.of(node)?;
        }
        if let Some(graphs) = graph.graphs() {
            graphs.of(node)?;
        }
        columns_problem(features, labels, splits, node)
    }));
    Ok(findings)
}

/// Checks the invariants within one shard. Comparing it with the store takes the store.
fn check_shard(dir: &Path) -> Result<Vec<Finding>> {
    let shard = match Shard::open_with(dir, Verify::Off) {
        Ok(shard) => shard,
        Err(error) => return Ok(vec![finding("manifest.json", "columns", damage(error)?)]),
    };
    let (n_owned, n_nodes) = (shard.n_owned(), shard.n_graph_nodes());
    let mut findings = Vec::new();
    let is_row = |(row, node): &(u64, u64)| shard.row_of(*node).ok() == Some(*row) && *node < n_nodes;
    let n_found = (0..).zip(shard.nodes()).take_while(is_row).count() as u64;
    if n_found != n_owned {
        findings.push(finding("owned", &format!("row {n_found}"), "the ranks do not match the bits"));
    }
    findings.extend(first_problem(n_owned, "indices", |row| list_problem(n_nodes, shard.lists(), row)));
    if !shard.is_symmetric() {
        findings.extend(first_problem(n_owned, "out_indices", |row| list_problem(n_nodes, shard.out_lists(), row)));
    }
    let (features, labels, splits) = (shard.features(), shard.labels(), shard.splits());
    findings.extend(first_problem(n_owned, "edge_weights", |row| {
        weights_problem(shard.lists(), shard.edge_weights(), row)
    }));
    findings.extend(first_problem(n_owned, "edge_features", |row| {
        edge_features_problem(shard.lists(), shard.edge_features(), row)
    }));
    findings.extend(first_problem(n_owned, "columns of nodes", |row| columns_problem(features, labels, splits, row)));
    Ok(findings)
}

/// Checks the owners of a partitioned graph; its shards are verified on their own.
fn check_owners(dir: &Path) -> Result<Vec<Finding>> {
    let cluster = match Cluster::open_with(dir, Verify::Off) {
        Ok(cluster) => cluster,
        Err(error) => return Ok(vec![finding("manifest.json", "columns", damage(error)?)]),
    };
    let mut findings = Vec::new();
    let n_shards = cluster.n_shards();
    let mut n_owned = vec![0; n_shards as usize];
    for node in 0..cluster.owners().len() as u64 {
        match cluster.owners().of(node).and_then(|owner| n_owned.get_mut(owner as usize)) {
            Some(n_owned) => *n_owned += 1,
            None => {
                findings.push(finding("owner", &format!("row {node}"), format!("there are {n_shards} shards")));
                break;
            }
        }
    }
    let summaries = cluster.entry().shards.iter();
    if findings.is_empty()
        && let Some(shard) = n_owned.iter().zip(summaries).position(|(n_owned, summary)| *n_owned != summary.n_nodes)
    {
        let problem = format!("owns {} nodes, not as many as the manifest says", n_owned[shard]);
        findings.push(finding("owner", &format!("shard {shard}"), problem));
    }
    let is_probability = |value: &f32| (0.0..=1.0).contains(value);
    let inclusion = cluster.inclusion().ok().flatten();
    if let Some(row) = inclusion.and_then(|values| values.iter().position(|value| !is_probability(value))) {
        findings.push(finding("inclusion", &format!("row {row}"), "no probability"));
    }
    Ok(findings)
}

/// The problem of the lowest row that has one.
fn first_problem(n_rows: u64, column: &str, problem: impl Fn(u64) -> Result<Option<String>> + Sync) -> Option<Finding> {
    let check = |node: u64| match problem(node) {
        Ok(problem) => problem.map(|problem| finding(column, &format!("row {node}"), problem)),
        Err(StoreError::Damaged { column, row }) => Some(finding(&column, &format!("row {row}"), "impossible value")),
        Err(error) => Some(finding(column, &format!("row {node}"), error)),
    };
    (0..n_rows).into_par_iter().find_map_first(check)
}

fn list_problem(n_nodes: u64, lists: &Lists, row: u64) -> Result<Option<String>> {
    let mut last = 0;
    for neighbor in lists.of(row)?.iter() {
        if neighbor >= n_nodes {
            return Ok(Some(format!("neighbor {neighbor} is outside the graph")));
        }
        if neighbor < last {
            return Ok(Some(format!("neighbor {neighbor} stands after {last}")));
        }
        last = neighbor;
    }
    Ok(None)
}

fn symmetry_problem(graph: &Graph, node: u64) -> Result<Option<String>> {
    let list = graph.lists().of(node)?;
    let mut slot = 0;
    while let Some(neighbor) = list.get(slot) {
        let n_same = list.iter().skip(slot).take_while(|other| *other == neighbor).count();
        let back = graph.lists().of(neighbor)?;
        let n_back = match back {
            crate::lists::Neighbors::Narrow(ids) => n_equal(ids, |id| u64::from(*id).cmp(&node)),
            crate::lists::Neighbors::Wide(ids) => n_equal(ids, |id| id.cmp(&node)),
        };
        if n_same != n_back {
            return Ok(Some(format!("{n_same} edges from {neighbor}, but {n_back} to it, in a symmetric store")));
        }
        if graph.edge_weights().is_some() || graph.edge_features().is_some() {
            let (start, back_start) = (graph.lists().bounds(node)?.0 + slot, graph.lists().bounds(neighbor)?.0);
            let first_back = back_start
                + match back {
                    crate::lists::Neighbors::Narrow(ids) => ids.partition_point(|id| u64::from(*id) < node),
                    crate::lists::Neighbors::Wide(ids) => ids.partition_point(|id| *id < node),
                };
            if let Some(what) = difference_of_edges(graph, start, first_back, n_same)? {
                return Ok(Some(format!("the edges from {neighbor} and to it differ in {what}, in a symmetric store")));
            }
        }
        slot += n_same;
    }
    Ok(None)
}

fn n_equal<T>(sorted: &[T], compare: impl Fn(&T) -> std::cmp::Ordering) -> usize {
    let start = sorted.partition_point(|item| compare(item).is_lt());
    sorted[start..].partition_point(|item| compare(item).is_eq())
}

fn transpose_problem(graph: &Graph, source: u64) -> Result<Option<String>> {
    let (start, _) = graph.out_lists().bounds(source)?;
    let mut last = None;
    for (slot, destination) in graph.out_lists().of(source)?.iter().enumerate() {
        let edge = graph.edge_of_out_edge((start + slot) as u64)?.expect("this store has a transpose");
        let (first, end) = graph.lists().bounds(destination)?;
        if !(first as u64..end as u64).contains(&edge) || graph.lists().indices().get(edge as usize) != Some(source) {
            return Ok(Some(format!("its edge to {destination} is said to be edge {edge}, which is another one")));
        }
        if last.is_some_and(|last| edge <= last) {
            return Ok(Some(format!("edge {edge} comes twice or out of order")));
        }
        last = Some(edge);
    }
    Ok(None)
}

/// Name of the first difference between two runs of `n` edges.
fn difference_of_edges(graph: &Graph, start: usize, other: usize, n: usize) -> Result<Option<&'static str>> {
    if let Some(weights) = graph.edge_weights()
        && weights.get(start, start + n)? != weights.get(other, other + n)?
    {
        return Ok(Some("weight"));
    }
    if let Some(features) = graph.edge_features() {
        for edge in 0..n {
            if features.dense_bytes((start + edge) as u64)? != features.dense_bytes((other + edge) as u64)? {
                return Ok(Some("features"));
            }
        }
    }
    Ok(None)
}

fn edge_features_problem(lists: &Lists, features: Option<&Features>, row: u64) -> Result<Option<String>> {
    if let Some(features) = features {
        let (start, end) = lists.bounds(row)?;
        let mut vector = vec![0.0; features.dim()];
        for edge in start..end {
            features.read(edge as u64, &mut vector)?;
        }
    }
    Ok(None)
}

/// Weights are finite and not negative.
fn weights_problem(lists: &Lists, weights: Option<&EdgeWeights>, row: u64) -> Result<Option<String>> {
    if let Some(weights) = weights {
        let (start, end) = lists.bounds(row)?;
        weights.get(start, end)?;
    }
    Ok(None)
}

/// Reading the values of a row finds what is wrong with them.
fn columns_problem(
    features: Option<&Features>,
    labels: Option<&Labels>,
    splits: &[Split],
    row: u64,
) -> Result<Option<String>> {
    if let Some(features) = features
        && features.sparse(row)?.is_none()
    {
        features.read(row, &mut vec![0.0; features.dim()])?;
    }
    if let Some(labels) = labels {
        labels.class(row)?;
        labels.bits(row)?;
        labels.numbers(row)?;
    }
    for split in splits {
        split.part(row)?;
    }
    Ok(None)
}

fn finding(column: &str, place: &str, problem: impl ToString) -> Finding {
    Finding { column: column.to_owned(), place: place.to_owned(), problem: problem.to_string() }
}
