//! Assigns every node of a store to a shard, its owner.
//!
//! | method | looks at | memory |
//! |---|---|---|
//! | `metis` | the whole graph, several times coarser | about 76 bytes per neighbor |
//! | `stream` | nodes of high degree, in memory; then one node and its neighbors at a time | 28 to 42 bytes per node |
//! | `range` | lengths of neighbor lists | 2 bytes per node |
//! | `hash` | ids | 2 bytes per node |
//!
//! All methods are pure functions of the store, the number of shards and the seed; threads and clocks have no
//! influence.

mod adjacency;
mod balance;
mod cheapest;
mod connections;
mod core;
mod group;
mod load;
mod members;
mod metis;
mod needs;
mod price;
mod report;
mod restream;
mod simple;
mod stream;
mod subgraph;
#[cfg(test)]
mod tests;

use std::{fmt, str::FromStr, time::Instant};

use kith_store::Graph;
use serde::Serialize;

use self::{
    adjacency::Adjacency,
    core::CoreLimits,
    load::{Load, Weights, limits},
    restream::{Pass, Restream, Strength},
};
pub use self::{
    balance::Balance,
    needs::{check_memory, choose_method, needed_bytes},
    report::{BalanceReport, CutReport, count_cut, measure},
};
use crate::{
    error::{PartitionError, Result},
    progress::{Piece, Progress, Unit},
};

/// Owners are 16 bits.
pub const MAX_SHARDS: u32 = 1 << 16;

/// Partitioning method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// METIS's k-way partitioner.
    Metis,
    /// At most 5 passes over the lists, in bounded memory.
    Stream,
    /// By a draw named by the node's id.
    Hash,
    /// Contiguous ids.
    Range,
}

impl Method {
    const ALL: [(Method, &'static str); 4] =
        [(Method::Metis, "metis"), (Method::Stream, "stream"), (Method::Hash, "hash"), (Method::Range, "range")];
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Method::ALL.iter().find(|(method, _)| method == self).map_or(Ok(()), |(_, name)| f.write_str(name))
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Method, String> {
        let found = Method::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(method, _)| *method).ok_or_else(|| "expected metis, stream, hash or range".to_owned())
    }
}

/// Options of an assignment.
#[derive(Clone, Copy, Debug)]
pub struct AssignOptions {
    /// Shards, 1 to [`MAX_SHARDS`]. More than there are nodes leaves some empty.
    pub n_shards: u32,
    /// Partitioning method.
    pub method: Method,
    /// Quantities to balance. `hash` and `range` ignore it.
    pub balance: Balance,
    /// Names what is drawn.
    pub run_key: u64,
}

/// Owner of every node, and the quality of the partition.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The shard of every node.
    pub owner: Vec<u16>,
    /// Cut, balance, time, memory.
    pub report: CutReport,
}

/// Finds an owner for every node. Ask [`check_memory`] first.
pub fn assign(graph: &Graph, options: &AssignOptions, progress: &dyn Progress) -> Result<Assignment> {
    let started = Instant::now();
    let AssignOptions { n_shards, method, balance, run_key } = *options;
    if !(1..=MAX_SHARDS).contains(&n_shards) {
        return Err(PartitionError::Option(format!("{n_shards} shards: ask for 1 to {MAX_SHARDS}")));
    }
    let mut notes = Vec::new();
    let core_limits = CoreLimits::of(&graph.manifest().contents);
    let stream = |graph| stream::stream(graph, n_shards, balance, core_limits, progress);
    let (owner, n_passes) = match method {
        Method::Hash => (simple::hash(graph.n_nodes(), n_shards, run_key), 0),
        Method::Range => (simple::range(graph, n_shards)?, 0),
        Method::Stream => stream(graph)?,
        Method::Metis => match balanced_metis(graph, n_shards, balance, run_key, progress)? {
            Some(owner) => (owner, 0),
            None => {
                notes.push("too few nodes or edges for METIS: assigned by streaming".to_owned());
                stream(graph)?
            }
        },
    };
    let (n_cut, found, is_balanced) = measure(graph, &owner, n_shards, balance)?;
    if !is_balanced && matches!(method, Method::Metis | Method::Stream) {
        notes.push(format!(
            "the heaviest shard is {:.3} of the mean by nodes, {:.3} by edges, {:.3} by training seeds: nodes are too few \
             or too unlike each other for 5%",
            found.nodes, found.edges, found.train
        ));
    }
    let report = CutReport {
        method,
        n_shards,
        n_cut,
        n_edges: graph.n_edges(),
        cut_percent: 100.0 * n_cut as f64 / graph.n_edges().max(1) as f64,
        balance: found,
        is_balanced,
        n_passes,
        seconds: started.elapsed().as_secs_f64(),
        peak_bytes: kith_store::memory::peak_bytes(),
        notes,
    };
    Ok(Assignment { owner, report })
}

/// Passes that even out what METIS left uneven: no stronger than needed, each is followed by a look at the limits.
const EVENING_STRENGTHS: [Strength; 4] = [4, 8, 16, 32];

/// METIS balances on nodes, which it does best, and nodes are moved until the other weights are even too. Where that
/// costs more than a tenth of the cut, METIS is asked for all weights at once, and the better of both is taken.
fn balanced_metis(
    graph: &Graph,
    n_shards: u32,
    balance: Balance,
    run_key: u64,
    progress: &dyn Progress,
) -> Result<Option<Vec<u16>>> {
    let total = Weights::new(graph).total()?;
    let all = limits(total, n_shards, balance.n_weights());
    let ask = |limits: Load| {
        let _work = Piece::begin(progress, "METIS", None, Unit::Nodes);
        metis::metis(graph, n_shards, (total, limits), run_key)
    };
    let Some(owner) = ask(limits(total, n_shards, Balance::Nodes.n_weights()))? else { return Ok(None) };
    if balance == Balance::Nodes {
        return evened(graph, owner, (total, all), n_shards, progress).map(|(owner, _)| Some(owner));
    }
    let n_cut_first = count_cut(graph, &owner)?;
    let by_nodes = evened(graph, owner, (total, all), n_shards, progress)?;
    let n_cut = count_cut(graph, &by_nodes.0)?;
    if by_nodes.1 && n_cut <= n_cut_first + n_cut_first / 10 {
        return Ok(Some(by_nodes.0));
    }
    let Some(owner) = ask(all)? else { return Ok(Some(by_nodes.0)) };
    let by_all = evened(graph, owner, (total, all), n_shards, progress)?;
    let is_better =
        (by_all.1, std::cmp::Reverse(count_cut(graph, &by_all.0)?)) > (by_nodes.1, std::cmp::Reverse(n_cut));
    Ok(Some(if is_better { by_all.0 } else { by_nodes.0 }))
}

/// Moves nodes until all shards are within their limits, if they can be; says whether they are.
fn evened(
    graph: &Graph,
    owner: Vec<u16>,
    (total, limits): (Load, Load),
    n_shards: u32,
    progress: &dyn Progress,
) -> Result<(Vec<u16>, bool)> {
    let mut restream = Restream::new(Weights::new(graph), owner, total, limits, n_shards)?;
    for strength in EVENING_STRENGTHS {
        if restream.loads.are_within_limits() {
            break;
        }
        let work = Piece::begin(progress, "evening out", Some(graph.n_nodes()), Unit::Nodes);
        restream.pass(Pass::new(Adjacency::Store(graph), strength), &|n| work.advance(n))?;
    }
    let is_balanced = restream.repair(Adjacency::Store(graph))?;
    Ok((restream.owner, is_balanced))
}
