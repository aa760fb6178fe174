//! Nodes of OGB's datasets: their number, labels, split and own ids, and the facts that differ between the datasets.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use crate::{
    PartitionError, Result,
    raw::{RawGraph, RawLabels, RawSplit, SplitPart, lines::Lines},
};

/// Note of a dataset without features.
pub(super) const NO_FEATURES: &str = "raw/node-feat.csv.gz is missing: the nodes have no features";
/// Streamed files may have any length: what is kept of them is limited by the number of nodes.
pub(super) const ANY_LENGTH: u64 = u64::MAX;

/// Memory of a node: its class and its part, and room while they are read.
const NODE_BYTES: u64 = 8;
/// The longest id of a node, in bytes.
const MAX_ID_BYTES: usize = 32;
/// Memory of a node's own id while it is compared with all others: two strings, and a slot of the map.
const ID_BYTES: u64 = 2 * (24 + MAX_ID_BYTES as u64 + 16) + 16;

/// Facts that differ between the datasets.
#[derive(Debug)]
pub(super) struct Facts {
    /// Number of classes.
    pub(super) n_classes: u32,
    /// Folder of the split, in `split`.
    split: &'static str,
    pub(super) ids: IdFile,
}

/// File of the nodes' own ids.
#[derive(Debug)]
pub(super) struct IdFile {
    /// Its name in `mapping`, without the ending.
    file: &'static str,
    /// An id, in messages and in the header.
    what: &'static str,
}

const PAPER_IDS: IdFile = IdFile { file: "nodeidx2paperid", what: "paper id" };
pub(super) const ARXIV: Facts = Facts { n_classes: 40, split: "time", ids: PAPER_IDS };
pub(super) const PRODUCTS: Facts =
    Facts { n_classes: 47, split: "sales_ranking", ids: IdFile { file: "nodeidx2asin", what: "asin" } };
pub(super) const PAPERS: Facts = Facts { n_classes: 172, split: "time", ids: PAPER_IDS };
/// Authors have neither classes nor a split: that of ogbl-collab is one of edges.
pub(super) const COLLAB_IDS: IdFile = IdFile { file: "nodeidx2authorid", what: "author id" };

/// Checks a number of edges against `raw/num-edge-list.csv`.
pub(super) fn check_n_edges(dir: &Path, limit_bytes: u64, n_edges: u64) -> Result<()> {
    let path = csv(dir, "raw/num-edge-list");
    let declared = read_one_number(&path, limit_bytes)?;
    match u64::try_from(declared) == Ok(n_edges) {
        true => Ok(()),
        false => Err(PartitionError::input(&path, "line 1", format!("says {declared} edges, but {n_edges} were read"))),
    }
}

/// A csv file by its path without the end: as OGB packs it, or plain where only that is there.
pub(super) fn csv(dir: &Path, file: &str) -> PathBuf {
    let packed = dir.join(format!("{file}.csv.gz"));
    let plain = dir.join(format!("{file}.csv"));
    if !packed.exists() && plain.exists() { plain } else { packed }
}

pub(super) fn read_n_nodes(dir: &Path, limit_bytes: u64) -> Result<u32> {
    let path = csv(dir, "raw/num-node-list");
    let n_nodes = read_one_number(&path, limit_bytes)?;
    possible_n_nodes(n_nodes).map_err(|problem| PartitionError::input(&path, "line 1", problem))
}

/// A number of nodes that a dataset may have.
pub(super) fn possible_n_nodes(n_nodes: i64) -> Result<u32, String> {
    match u32::try_from(n_nodes) {
        Ok(n_nodes) if n_nodes > 0 && n_nodes < u32::MAX => Ok(n_nodes),
        _ => Err(format!("expected 1 to 4294967294 nodes, found {n_nodes}")),
    }
}

fn read_one_number(path: &Path, limit_bytes: u64) -> Result<i64> {
    let mut lines = Lines::open(path, limit_bytes)?;
    let Some(line) = lines.next_line()? else {
        return Err(lines.error_at_end("expected one number, found nothing"));
    };
    let [number] = line.ints()?;
    match lines.next_line()? {
        None => Ok(number),
        Some(line) => Err(line.error("expected one number, found another: is this a set of several graphs?")),
    }
}

pub(super) fn read_labels(dir: &Path, facts: &Facts, n_nodes: u32, limit_bytes: u64) -> Result<RawLabels> {
    let mut lines = Lines::open(&csv(dir, "raw/node-label"), limit_bytes)?;
    let mut classes = Vec::new();
    while let Some(line) = lines.next_line()? {
        if classes.len() == n_nodes as usize {
            return Err(line.error(format!("a label more than there are nodes ({n_nodes})")));
        }
        let [class] = line.ints()?;
        classes.push(line.below("label", class, facts.n_classes)?);
    }
    match classes.len() == n_nodes as usize {
        true => Ok(RawLabels::Classes { n_classes: facts.n_classes, classes }),
        false => Err(lines.error_at_end(format!("{} labels for {n_nodes} nodes", classes.len()))),
    }
}

/// Reads the split, whose nodes must have labels.
pub(super) fn read_split(
    dir: &Path,
    facts: &Facts,
    n_nodes: u32,
    labels: &RawLabels,
    limit_bytes: u64,
) -> Result<RawSplit> {
    let mut parts = vec![SplitPart::None; n_nodes as usize];
    for (file, part) in [("train", SplitPart::Train), ("valid", SplitPart::Valid), ("test", SplitPart::Test)] {
        let mut lines = Lines::open(&csv(dir, &format!("split/{}/{file}", facts.split)), limit_bytes)?;
        while let Some(line) = lines.next_line()? {
            let [node] = line.ints()?;
            let node = line.below("node", node, n_nodes)?;
            let slot = &mut parts[node as usize];
            if *slot != SplitPart::None {
                return Err(line.error(format!("node {node} appears twice: it is already in {}", file_of(*slot))));
            }
            if !labels.is_labeled(node) {
                return Err(line.error(format!("node {node} is in {file}, but has no label")));
            }
            *slot = part;
        }
    }
    Ok(RawSplit { name: "official".into(), parts })
}

fn file_of(part: SplitPart) -> &'static str {
    match part {
        SplitPart::None => "none",
        SplitPart::Train => "train",
        SplitPart::Valid => "valid",
        SplitPart::Test => "test",
    }
}

/// The nodes' own ids; empty if their file is missing.
pub(super) fn read_ids(dir: &Path, file: &IdFile, n_nodes: u32, limit_bytes: u64) -> Result<Vec<String>> {
    let path = csv(dir, &format!("mapping/{}", file.file));
    if !path.exists() {
        return Ok(Vec::new());
    }
    let mut lines = Lines::open(&path, limit_bytes)?;
    let what = file.what;
    lines.header(&format!("node idx,{what}"))?;
    let mut ids = vec![String::new(); n_nodes as usize];
    let mut node_of_id = HashMap::new();
    while let Some(line) = lines.next_line()? {
        let [node, id] = line.fields()?;
        let node = line.below("node", line.int(node)?, n_nodes)?;
        let slot = &mut ids[node as usize];
        if id.is_empty() {
            return Err(line.error(format!("node {node} has an empty {what}")));
        }
        if id.len() > MAX_ID_BYTES {
            let n = id.len();
            let problem = format!("expected at most {MAX_ID_BYTES} bytes in the {what} of node {node}, found {n}");
            return Err(line.error(problem));
        }
        if !slot.is_empty() {
            return Err(line.error(format!("node {node} appears twice")));
        }
        if let Some(other) = node_of_id.insert(id.to_owned(), node) {
            return Err(line.error(format!("node {node} has the {what} of node {other}")));
        }
        id.clone_into(slot);
    }
    match ids.iter().position(String::is_empty) {
        Some(node) => Err(lines.error_at_end(format!("node {node} has no {what}"))),
        None => Ok(ids),
    }
}

/// Refuses a number of nodes whose labels and split take more than half of the memory.
pub(super) fn check_memory(n_nodes: u32, memory_bytes: u64) -> Result<()> {
    let needed = u64::from(n_nodes) * NODE_BYTES;
    match needed <= memory_bytes / 2 {
        true => Ok(()),
        false => Err(PartitionError::Option(format!(
            "expected --memory {} or more for the labels and splits of {n_nodes} nodes, found {memory_bytes}",
            size(2 * needed)
        ))),
    }
}

/// A size as `--memory` takes it, rounded up to MiB from 1 MiB on.
fn size(n_bytes: u64) -> String {
    if n_bytes < 1 << 20 { n_bytes.to_string() } else { format!("{}MiB", n_bytes.div_ceil(1 << 20)) }
}

/// Reads the nodes' own ids if they take at most a quarter of the memory.
pub(super) fn add_ids(nodes: &mut RawGraph, dir: &Path, file: &IdFile, memory_bytes: u64) -> Result<()> {
    let needed = u64::from(nodes.n_nodes) * ID_BYTES;
    if needed <= memory_bytes / 4 {
        nodes.ids = read_ids(dir, file, nodes.n_nodes, ANY_LENGTH)?;
    } else if csv(dir, &format!("mapping/{}", file.file)).exists() {
        nodes.notes.push(format!(
            "mapping/{}.csv.gz is not read: the store has no {}s; reading them needs --memory {}",
            file.file,
            file.what,
            size(4 * needed)
        ));
    }
    Ok(())
}
