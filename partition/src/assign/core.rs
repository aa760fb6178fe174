//! The core of a graph: its nodes of highest degree, as many as leave the edges between them within a limit.
//!
//! In a graph with hubs, a tenth of the nodes has as many edges per node between themselves as the whole graph has, and
//! its shards show where all other nodes belong. The core follows from degrees, ids and neighbor lists; threads have no
//! influence.

use std::ops::Range;

use kith_store::{Contents, Graph, Neighbors, Result, StoreError};
use rayon::prelude::*;

use super::members::Members;

/// Entries between core nodes per node of the graph.
const ENTRIES_PER_NODE: u64 = 4;
/// A graph with no more entries is its own core.
const MIN_ENTRIES: u64 = 1 << 16;
/// A graph without hubs is its own core if it has no more entries per node, or no more entries.
const WHOLE_ENTRIES_PER_NODE: u64 = 8;
const MIN_WHOLE_ENTRIES: u64 = 1 << 24;

/// Higher degrees are not told apart.
const MAX_DEGREE: usize = 1 << 16;
/// Shares are counted in parts of this.
const WHOLE: u64 = 1 << 16;
/// Core nodes whose neighbors are looked at for an estimate.
const N_LOOKED_AT: u64 = 1 << 15;
/// Most cores that are tried.
const N_ATTEMPTS: u32 = 12;
/// A core is large enough with this share of its limit, in parts of [`WHOLE`].
const MIN_SHARE: u64 = WHOLE / 4 * 3;
/// Degree from which a node is a hub.
const HUB_DEGREE: u64 = 1 << 10;
/// Nodes per piece of a count.
const PIECE_LEN: u64 = 1 << 14;

/// Entries of all neighbor lists that passes read: those of both sides, unless the lists are the same.
pub(super) fn n_entries(contents: &Contents) -> u64 {
    if contents.is_symmetric { contents.n_edges } else { contents.n_edges.saturating_mul(2) }
}

/// Limits of a core.
#[derive(Clone, Copy)]
pub(super) struct CoreLimits {
    /// Most entries between core nodes, give or take a tenth.
    pub(super) max_entries: u64,
    /// Most entries of a graph without hubs that is its own core.
    pub(super) max_whole: u64,
}

impl CoreLimits {
    /// Limits for a graph.
    pub(super) fn of(contents: &Contents) -> CoreLimits {
        let per_node = |n: u64| contents.n_nodes.saturating_mul(n);
        CoreLimits {
            max_entries: per_node(ENTRIES_PER_NODE).max(MIN_ENTRIES),
            max_whole: per_node(WHOLE_ENTRIES_PER_NODE).max(MIN_WHOLE_ENTRIES),
        }
    }
}

/// Most core nodes, given their entries: an eighth more than where neighbors are drawn at random.
pub(super) fn max_nodes(contents: &Contents, max_entries: u64) -> u64 {
    let n_all = u128::from(n_entries(contents)).max(1);
    let n_nodes = u128::from(contents.n_nodes);
    (n_nodes * (n_all * u128::from(max_entries)).isqrt() * 9 / 8).div_ceil(n_all).min(n_nodes) as u64
}

/// Number of neighbors on both sides.
pub(super) fn degree(graph: &Graph, node: u64) -> Result<u64> {
    let out = if graph.is_symmetric() { 0 } else { graph.out_lists().degree(node)? };
    Ok(graph.lists().degree(node)? + out)
}

/// Rule of membership: nodes above a degree, and a share of those that have it.
#[derive(Clone, Copy)]
struct Rule {
    degree: u64,
    share: u64,
}

impl Rule {
    /// Picks nodes until their degrees sum up to about `n_ends`.
    fn new(ends_by_degree: &[u64], n_ends: u64) -> Rule {
        let mut n_left = n_ends;
        for (degree, ends) in ends_by_degree.iter().enumerate().rev() {
            if *ends > n_left {
                let share = u128::from(n_left) * u128::from(WHOLE) / u128::from(*ends);
                return Rule { degree: degree as u64, share: share as u64 };
            }
            n_left -= ends;
        }
        Rule { degree: 0, share: 0 }
    }

    fn includes(self, node: u64, degree: u64) -> bool {
        let degree = degree.min(MAX_DEGREE as u64 - 1);
        degree > self.degree || (degree == self.degree && hash(node) % WHOLE < self.share)
    }
}

/// Nodes of the core; `None` if it is the whole graph.
pub(super) fn core(graph: &Graph, limits: CoreLimits) -> Result<Option<Members>> {
    let n_all = n_entries(&graph.manifest().contents);
    if n_all <= limits.max_entries {
        return Ok(None);
    }
    let members = largest(graph, limits.max_entries)?;
    // Hubs leave room for few other nodes. Without hubs, a core falls to pieces.
    let max_nodes = max_nodes(&graph.manifest().contents, limits.max_entries);
    let has_hubs = members.len() < max_nodes / 3 * 2;
    Ok((n_all > limits.max_whole || has_hubs).then_some(members))
}

/// The largest core with about `max_entries` entries.
fn largest(graph: &Graph, max_entries: u64) -> Result<Members> {
    let n_all = n_entries(&graph.manifest().contents);
    let max_nodes = max_nodes(&graph.manifest().contents, max_entries);
    let ends_by_degree = ends_by_degree(graph)?;
    // Where neighbors are drawn at random, a share of all ends has its square of all edges.
    let mut n_ends = (u128::from(n_all) * u128::from(max_entries)).isqrt() as u64;
    let (mut low, mut high) = (0, n_all);
    for _ in 0..N_ATTEMPTS {
        let members = members(graph, Rule::new(&ends_by_degree, n_ends))?;
        let n_found = estimate(graph, &members)?;
        if n_found > max_entries + max_entries / 10 || members.len() > max_nodes {
            high = n_ends;
        } else if u128::from(n_found) * u128::from(WHOLE) >= u128::from(max_entries) * u128::from(MIN_SHARE) {
            return Ok(members);
        } else {
            low = n_ends;
        }
        n_ends = low + (high - low) / 2;
    }
    members(graph, Rule::new(&ends_by_degree, low))
}

fn pieces(n_nodes: u64) -> impl ParallelIterator<Item = Range<u64>> {
    let n_pieces = n_nodes.div_ceil(PIECE_LEN);
    (0..n_pieces).into_par_iter().map(move |piece| piece * PIECE_LEN..n_nodes.min((piece + 1) * PIECE_LEN))
}

/// Sum of degrees of the nodes of each degree.
fn ends_by_degree(graph: &Graph) -> Result<Vec<u64>> {
    let count = |mut ends: Vec<u64>, mut nodes: Range<u64>| {
        nodes.try_for_each(|node| -> Result<()> {
            let degree = degree(graph, node)?;
            ends[(degree as usize).min(MAX_DEGREE - 1)] += degree;
            Ok(())
        })?;
        Ok(ends)
    };
    let add = |mut left: Vec<u64>, right: Vec<u64>| {
        left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
        Ok(left)
    };
    let none = || vec![0; MAX_DEGREE];
    pieces(graph.n_nodes()).try_fold(none, count).try_reduce(none, add)
}

fn members(graph: &Graph, rule: Rule) -> Result<Members> {
    Members::new(graph.n_nodes(), |node| Ok(rule.includes(node, degree(graph, node)?)))
}

/// Number of entries between core nodes, judged by some of the nodes. Few of them are hubs, so the lists of hubs are
/// judged by the other ends of their edges.
fn estimate(graph: &Graph, members: &Members) -> Result<u64> {
    let step = members.len().div_ceil(N_LOOKED_AT).max(1);
    let nodes: Vec<u64> = members.iter_from(0).step_by(step as usize).collect();
    let is_hub = |node: u64| Ok::<bool, StoreError>(degree(graph, node)? >= HUB_DEGREE);
    let count = |node: &u64| -> Result<u64> {
        let is_own_hub = is_hub(*node)?;
        let mut n_found = 0;
        let out = if graph.is_symmetric() { None } else { Some(graph.out_lists().of(*node)?) };
        for id in [Some(graph.lists().of(*node)?), out].into_iter().flatten().flat_map(Neighbors::iter) {
            if members.contains(id) {
                n_found += match (is_own_hub, is_hub(id)?) {
                    (true, false) => 0,
                    (false, true) => 2,
                    _ => 1,
                };
            }
        }
        Ok(n_found)
    };
    let counts: Result<Vec<u64>> = nodes.par_iter().map(count).collect();
    Ok(counts?.into_iter().sum::<u64>().saturating_mul(step))
}

/// Bits that look random: the id, mixed as by splitmix64.
fn hash(node: u64) -> u64 {
    let mut bits = node.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
