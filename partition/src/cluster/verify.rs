//! Reads every byte of a partitioned graph and compares its shards with each other and with the store.

use std::{collections::BTreeSet, path::Path};

use kith_store::{
    Cluster, Features, Finding, Graph, Labels, Manifest, Presence, Result as StoreResult, Shard, Split, SplitPart,
    StoreError, Verify, verify,
};
use rayon::prelude::*;

use crate::error::{PartitionError, Result};

/// Result of verifying a partitioned graph.
#[derive(Clone, Debug)]
pub struct ClusterVerified {
    /// Bytes that were read.
    pub n_bytes: u64,
    /// Everything that is wrong; nothing if the cluster is whole.
    pub findings: Vec<Finding>,
}

/// Nodes of the store that are compared side by side.
const PIECE_LEN: usize = 1 << 16;

/// Shards that are compared in one pass over the store.
const SHARDS_AT_ONCE: usize = 256;

/// Rows whose cut edges are counted together.
const ROWS_PER_COUNT: u64 = 4096;

/// Bytes of all columns of a cluster, as far as its folders are there; with `only`, of these shards.
pub fn n_bytes(dir: &Path, only: Option<&BTreeSet<u32>>) -> Result<u64> {
    let of = |manifest: &Manifest| manifest.columns.iter().filter_map(|column| column.n_bytes()).sum::<u64>();
    let cluster = Cluster::open_with(dir, Verify::Off)?;
    let shards = chosen(&cluster, only).filter_map(|shard| Manifest::read(&cluster.shard_dir(shard)).ok());
    Ok(of(cluster.manifest()) + shards.map(|manifest| of(&manifest)).sum::<u64>())
}

/// Reads every byte of a partitioned graph and checks checksums, that every node has one owner, and that counts,
/// balance and edge cut match the manifest. With the store, it also compares the contents of every shard with the
/// store's. With `only`, it reads these shards, and the others need not be there; the edge cut is then not compared.
pub fn verify_cluster(
    dir: &Path,
    store: Option<&Graph>,
    only: Option<&BTreeSet<u32>>,
    on_bytes: &(dyn Fn(u64) + Sync),
) -> Result<ClusterVerified> {
    let cluster = Cluster::open_with(dir, Verify::Off)?;
    let n_shards = cluster.n_shards();
    if let Some(shard) = only.into_iter().flatten().copied().find(|shard| *shard >= n_shards) {
        return Err(StoreError::NoShard { shard, n_shards }.into());
    }
    if let Some(store) = store.filter(|store| store.manifest().identity() != cluster.store_digest()) {
        return Err(PartitionError::Option(format!(
            "{} was cut from another store than {}: their digests differ",
            dir.display(),
            store.dir().display()
        )));
    }
    let own = verify(dir, on_bytes)?;
    let mut verified = ClusterVerified { n_bytes: own.n_bytes, findings: own.findings };
    // Problems of values, which count if all checksums match.
    let (mut n_cut, mut problems) = (0, Vec::new());
    for shard in chosen(&cluster, only) {
        match verify(&cluster.shard_dir(shard), on_bytes) {
            Ok(found) => {
                verified.n_bytes += found.n_bytes;
                verified.findings.extend(found.findings.into_iter().map(|finding| of_shard(shard, finding)));
                if verified.findings.is_empty() {
                    // While the shard is in the page cache.
                    n_cut += checked(&cluster, shard, &mut problems)?;
                }
            }
            Err(_) if cluster.presence(shard) == Presence::Absent => {
                verified.findings.push(finding(&format!("shard-{shard}"), "folder", "not in this folder"));
            }
            Err(error) if error.is_of_system() => return Err(error.into()),
            Err(error) => verified.findings.push(finding(&name(shard, "manifest.json"), "file", error)),
        }
    }
    if verified.findings.is_empty() {
        let promised = cluster.entry().n_cut_edges;
        if let Some(store) = store {
            compare(&cluster, store, only, &mut problems)?;
        }
        if problems.is_empty() && only.is_none() && n_cut != promised {
            let problem = format!("{n_cut} edges are cut, the manifest says {promised}");
            problems.push(finding("owner", "all rows", problem));
        }
        problems.extend(store.and_then(|store| names_problem(&cluster, store)));
        verified.findings = problems;
    }
    Ok(verified)
}

/// Numbers of the shards to verify.
fn chosen(cluster: &Cluster, only: Option<&BTreeSet<u32>>) -> impl Iterator<Item = u32> {
    (0..cluster.n_shards()).filter(move |shard| only.is_none_or(|only| only.contains(shard)))
}

/// Checks the values of a shard whose checksums match; counts the edges that come to it from others.
fn checked(cluster: &Cluster, shard: u32, problems: &mut Vec<Finding>) -> Result<u64> {
    match cluster.open_shard(shard).and_then(|opened| check_shard(cluster, &opened, problems)) {
        Ok(n_cut) => Ok(n_cut),
        Err(error) if error.is_of_system() => Err(error.into()),
        Err(error) => {
            problems.push(of_values(shard, error));
            Ok(0)
        }
    }
}

/// Compares the shards with the store: all of a group in one pass over it.
fn compare(cluster: &Cluster, store: &Graph, only: Option<&BTreeSet<u32>>, problems: &mut Vec<Finding>) -> Result<()> {
    let shards: Vec<u32> = chosen(cluster, only).collect();
    for group in shards.chunks(SHARDS_AT_ONCE) {
        let mut opened = Vec::new();
        for shard in group {
            match cluster.open_shard(*shard) {
                Ok(shard) => opened.push(shard),
                Err(error) if error.is_of_system() => return Err(error.into()),
                Err(error) => {
                    let finding = of_values(*shard, error);
                    if !problems.contains(&finding) {
                        problems.push(finding);
                    }
                }
            }
        }
        problems.extend(compare_with_store(&opened, store));
    }
    Ok(())
}

/// Holds one shard against the cluster; counts the edges that come to it from others.
fn check_shard(cluster: &Cluster, shard: &Shard, findings: &mut Vec<Finding>) -> StoreResult<u64> {
    let number = shard.shard();
    let owners = cluster.owners();
    if let Some(node) = shard.nodes().find(|node| owners.of(*node) != Some(number)) {
        let problem = format!("node {node} is another shard's by the owner column");
        findings.push(finding(&name(number, "owned"), &format!("row {node}"), problem));
        return Ok(0);
    }
    let mut n_train = 0;
    if let Some(split) = shard.splits().first() {
        for row in 0..shard.n_owned() {
            n_train += u64::from(split.part(row)? == SplitPart::Train);
        }
    }
    let summary = &cluster.entry().shards[number as usize];
    // That no node is owned twice or by nobody follows: the owner column gives each node one shard, and the counts agree.
    let counts = [
        ("nodes", shard.n_owned(), summary.n_nodes),
        ("edges", shard.manifest().contents.n_edges, summary.n_edges),
        ("training seeds", n_train, summary.n_train),
    ];
    for (what, found, promised) in counts {
        if found != promised {
            let problem = format!("{found} {what}, the manifest says {promised}");
            findings.push(finding(&name(number, "manifest.json"), "counts", problem));
        }
    }
    let n_cut_of = |piece: u64| -> StoreResult<u64> {
        let mut n_cut = 0;
        for row in piece * ROWS_PER_COUNT..shard.n_owned().min((piece + 1) * ROWS_PER_COUNT) {
            let is_cut = |neighbor: &u64| owners.of(*neighbor) != Some(number);
            n_cut += shard.lists().of(row)?.iter().filter(is_cut).count() as u64;
        }
        Ok(n_cut)
    };
    let n_pieces = shard.n_owned().div_ceil(ROWS_PER_COUNT);
    let n_cut: StoreResult<Vec<u64>> = (0..n_pieces).into_par_iter().map(n_cut_of).collect();
    Ok(n_cut?.into_iter().sum())
}

/// Compares all columns of shards with the store, node by node; gives the first difference of each shard.
fn compare_with_store(shards: &[Shard], store: &Graph) -> Vec<Finding> {
    type Found = Option<StoreResult<(&'static str, u64)>>;
    let open = |shard| -> (&Shard, _, Found) { (shard, (0u64..).zip(Shard::nodes(shard)).peekable(), None) };
    let mut compared: Vec<_> = shards.iter().map(open).collect();
    let n_nodes = store.n_nodes();
    for start in (0..n_nodes.max(1)).step_by(PIECE_LEN) {
        let end = start + PIECE_LEN as u64;
        let is_last = end >= n_nodes;
        compared.par_iter_mut().filter(|(.., found)| found.is_none()).for_each(|(shard, nodes, found)| {
            let next = || nodes.next_if(|(_, node)| *node < end || is_last);
            let piece: Vec<(u64, u64)> = std::iter::from_fn(next).collect();
            let differing = |(row, node): &(u64, u64)| difference(shard, store, *row, *node).transpose();
            *found = piece.par_iter().find_map_first(differing);
        });
    }
    let finding = |shard: &Shard, found| match found {
        Ok((column, row)) => finding(&name(shard.shard(), column), &format!("row {row}"), "differs from the store"),
        Err(error) => of_values(shard.shard(), error),
    };
    compared.into_iter().filter_map(|(shard, _, found)| found.map(|found| finding(shard, found))).collect()
}

/// First difference of a node from the store.
fn difference(shard: &Shard, store: &Graph, row: u64, node: u64) -> StoreResult<Option<(&'static str, u64)>> {
    let column = if shard.lists().of(row)? != store.lists().of(node)? {
        "indices"
    } else if !are_same_weights(shard, store, row, node)? {
        "edge_weights"
    } else if !are_same_edge_features(shard, store, row, node)? {
        "edge_features"
    } else if shard.out_lists().of(row)? != store.out_lists().of(node)? {
        "out_indices"
    } else if !are_same_features(shard.features(), store.features(), row, node)? {
        "features"
    } else if !is_same_label(shard.labels(), store.labels(), row, node)? {
        "labels"
    } else if !are_same_parts(shard.splits(), store.splits(), row, node)? {
        "splits"
    } else {
        return Ok(None);
    };
    Ok(Some((column, row)))
}

fn are_same_weights(shard: &Shard, store: &Graph, row: u64, node: u64) -> StoreResult<bool> {
    let (Some(own), Some(stored)) = (shard.edge_weights(), store.edge_weights()) else {
        return Ok(shard.edge_weights().is_none() && store.edge_weights().is_none());
    };
    let ((start, end), (first, last)) = (shard.lists().bounds(row)?, store.lists().bounds(node)?);
    Ok(same_bits(own.get(start, end)?, stored.get(first, last)?))
}

fn are_same_edge_features(shard: &Shard, store: &Graph, row: u64, node: u64) -> StoreResult<bool> {
    let (own, stored) = (shard.edge_features(), store.edge_features());
    let ((start, end), (first, _)) = (shard.lists().bounds(row)?, store.lists().bounds(node)?);
    for edge in 0..(end - start) as u64 {
        if !are_same_features(own, stored, start as u64 + edge, first as u64 + edge)? {
            return Ok(false);
        }
    }
    Ok(own.is_some() == stored.is_some())
}

fn are_same_features(own: Option<&Features>, stored: Option<&Features>, row: u64, node: u64) -> StoreResult<bool> {
    let (Some(own), Some(stored)) = (own, stored) else { return Ok(own.is_none() && stored.is_none()) };
    if own.layout() != stored.layout() || own.dim() != stored.dim() {
        return Ok(false);
    }
    if let (Some(own), Some(stored)) = (own.sparse(row)?, stored.sparse(node)?) {
        return Ok(own.indices == stored.indices && same_bits(own.values, stored.values));
    }
    let (mut left, mut right) = (vec![0.0; own.dim()], vec![0.0; own.dim()]);
    own.read(row, &mut left)?;
    stored.read(node, &mut right)?;
    Ok(same_bits(&left, &right))
}

fn same_bits(left: &[f32], right: &[f32]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.to_bits() == right.to_bits())
}

fn is_same_label(own: Option<&Labels>, stored: Option<&Labels>, row: u64, node: u64) -> StoreResult<bool> {
    let (Some(own), Some(stored)) = (own, stored) else { return Ok(own.is_none() && stored.is_none()) };
    let are_same_classes = own.class(row)? == stored.class(node)? && own.bits(row)? == stored.bits(node)?;
    Ok(are_same_classes && same_bits(own.numbers(row)?, stored.numbers(node)?))
}

fn are_same_parts(own: &[Split], stored: &[Split], row: u64, node: u64) -> StoreResult<bool> {
    for (own, stored) in own.iter().zip(stored) {
        if own.name() != stored.name() || own.part(row)? != stored.part(node)? {
            return Ok(false);
        }
    }
    Ok(own.len() == stored.len())
}

/// Compares users' ids and the graph of each node with the store.
fn names_problem(cluster: &Cluster, store: &Graph) -> Option<Finding> {
    let differs = |node: u64| -> StoreResult<bool> {
        let ids = [cluster.ids(), store.ids()].map(|ids| ids.map(|ids| ids.of(node)).transpose());
        let graphs = [cluster.graphs(), store.graphs()].map(|graphs| graphs.map(|g| g.of(node)).transpose());
        let ([own_id, id], [own_graph, graph]) = (ids, graphs);
        Ok(own_id? != id? || own_graph? != graph?)
    };
    if cluster.ids().is_none() && store.ids().is_none() && cluster.graphs().is_none() && store.graphs().is_none() {
        return None;
    }
    let first = |node: u64| match differs(node) {
        Ok(false) => None,
        Ok(true) => Some(finding("ids", &format!("row {node}"), "differs from the store")),
        Err(error) => Some(finding("ids", &format!("row {node}"), error)),
    };
    (0..store.n_nodes()).into_par_iter().find_map_first(first)
}

fn name(shard: u32, column: &str) -> String {
    format!("shard-{shard}/{column}")
}

fn of_values(shard: u32, error: StoreError) -> Finding {
    finding(&name(shard, "columns"), "values", error)
}

fn of_shard(shard: u32, found: Finding) -> Finding {
    Finding { column: name(shard, &found.column), ..found }
}

fn finding(column: &str, place: &str, problem: impl ToString) -> Finding {
    Finding { column: column.to_owned(), place: place.to_owned(), problem: problem.to_string() }
}
