//! Edge cut and balance of an assignment.

use kith_store::{Graph, StoreError};
use rayon::prelude::*;
use serde::Serialize;

use super::{
    Balance, Method,
    load::{Load, Loads, Weights, limits},
};
use crate::error::Result;

/// Nodes per piece of a count.
const PIECE_LEN: usize = 4096;

/// Quality and cost of an assignment.
#[derive(Clone, Debug, Serialize)]
pub struct CutReport {
    /// Partitioning method.
    pub method: Method,
    /// Shards, empty ones too.
    pub n_shards: u32,
    /// Edges whose ends have different owners.
    pub n_cut: u64,
    /// All edges.
    pub n_edges: u64,
    /// Cut edges, in percent of all.
    pub cut_percent: f64,
    /// The heaviest shard over the mean.
    pub balance: BalanceReport,
    /// True if every balanced quantity is within 5% of the mean (or one node, where shards are that small).
    pub is_balanced: bool,
    /// Passes over all neighbor lists; 0 for methods that make none.
    pub n_passes: u32,
    /// Duration in seconds.
    pub seconds: f64,
    /// The most memory this process ever held, mapped columns included.
    pub peak_bytes: Option<u64>,
    /// Notes for users.
    pub notes: Vec<String>,
}

/// The heaviest shard over the mean, for each weight; 1 where there is nothing to balance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BalanceReport {
    /// Nodes.
    pub nodes: f64,
    /// Entries of neighbor lists.
    pub edges: f64,
    /// Training seeds of the first split.
    pub train: f64,
}

/// The cut and the balance of an assignment, and whether it is as even as asked.
pub fn measure(graph: &Graph, owner: &[u16], n_shards: u32, balance: Balance) -> Result<(u64, BalanceReport, bool)> {
    let weights = Weights::new(graph);
    let total = weights.total()?;
    let limits = limits(total, n_shards, balance.n_weights());
    let loads = Loads::of(weights, owner, n_shards, limits)?;
    Ok((count_cut(graph, owner)?, balance_of(&loads.of_shard, total), loads.are_within_limits()))
}

pub(super) fn balance_of(loads: &[Load], total: Load) -> BalanceReport {
    let over_mean = |weight: usize| {
        let most = loads.iter().map(|load| load.0[weight]).max().unwrap_or(0);
        if total.0[weight] == 0 { 1.0 } else { most as f64 * loads.len() as f64 / total.0[weight] as f64 }
    };
    BalanceReport { nodes: over_mean(0), edges: over_mean(1), train: over_mean(2) }
}

/// Edges whose ends have different owners.
pub fn count_cut(graph: &Graph, owner: &[u16]) -> Result<u64> {
    let count = |(piece, owners): (usize, &[u16])| -> Result<u64> {
        let mut n_cut = 0;
        for (node, own) in ((piece * PIECE_LEN) as u64..).zip(owners) {
            for neighbor in graph.lists().of(node)?.iter() {
                let other = owner.get(neighbor as usize).ok_or_else(|| StoreError::damaged("indices", node))?;
                n_cut += u64::from(other != own);
            }
        }
        Ok(n_cut)
    };
    let pieces: Result<Vec<u64>> = owner.par_chunks(PIECE_LEN).enumerate().map(count).collect();
    Ok(pieces?.into_iter().sum())
}
