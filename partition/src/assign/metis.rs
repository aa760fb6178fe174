//! `metis`: METIS's k-way partitioner, and the conversions and checks around it.

use std::sync::{Mutex, PoisonError};

use kith_store::{Graph, Neighbors, Result as StoreResult, StoreError};
use metis::option::Seed;

use super::load::{Load, N_WEIGHTS, Weights};
use crate::error::{PartitionError, Result};

/// METIS counts with 32 bits.
pub(super) const MAX_ENTRIES: u64 = i32::MAX as u64;

/// METIS draws from the C library's one generator: two calls at a time would disturb each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The graph as METIS sees it: every pair of different nodes with an edge, in both lists, once.
struct Undirected {
    indptr: Vec<i32>,
    indices: Vec<i32>,
}

impl Undirected {
    fn of(graph: &Graph) -> Result<Undirected> {
        let n_nodes = graph.n_nodes();
        let most = if graph.is_symmetric() { graph.n_edges() } else { graph.n_edges().saturating_mul(2) };
        let mut indptr = Vec::with_capacity(n_nodes as usize + 1);
        let mut indices = Vec::with_capacity(most.min(MAX_ENTRIES) as usize);
        indptr.push(0);
        for node in 0..n_nodes {
            let into = graph.lists().of(node)?;
            let out = if graph.is_symmetric() { Neighbors::Narrow(&[]) } else { graph.out_lists().of(node)? };
            add_union(node, n_nodes, into, out, &mut indices)?;
            let end = i32::try_from(indices.len()).map_err(|_| too_many())?;
            indptr.push(end);
        }
        Ok(Undirected { indptr, indices })
    }
}

fn too_many() -> PartitionError {
    PartitionError::Option(format!(
        "METIS counts with 32 bits and cannot hold more than {MAX_ENTRIES} neighbors: use --method stream"
    ))
}

/// Adds all neighbors of two ascending lists, each once and the node itself not at all.
fn add_union(
    node: u64,
    n_nodes: u64,
    left: Neighbors<'_>,
    right: Neighbors<'_>,
    indices: &mut Vec<i32>,
) -> StoreResult<()> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    let mut last = None;
    loop {
        let next = match (left.peek(), right.peek()) {
            (Some(l), Some(r)) if l <= r => left.next(),
            (Some(_), None) => left.next(),
            _ => right.next(),
        };
        let Some(next) = next else { return Ok(()) };
        if next >= n_nodes {
            return Err(StoreError::damaged("indices", node));
        }
        if next != node && last != Some(next) {
            indices.push(next as i32); // below n_nodes, which is below 2^31
            last = Some(next);
        }
    }
}

/// An assignment by METIS alone; `None` if it has nothing to go by: no edges, or hardly more nodes than shards.
pub(super) fn metis(
    graph: &Graph,
    n_shards: u32,
    (total, limits): (Load, Load),
    run_key: u64,
) -> Result<Option<Vec<u16>>> {
    if n_shards < 2 {
        return Ok(Some(vec![0; graph.n_nodes() as usize]));
    }
    if graph.n_nodes() > MAX_ENTRIES {
        return Err(too_many());
    }
    let undirected = Undirected::of(graph)?;
    if undirected.indices.is_empty() || graph.n_nodes() < LEAST_NODES_PER_SHARD * u64::from(n_shards) {
        return Ok(None);
    }
    let balanced: Vec<usize> =
        (0..N_WEIGHTS).filter(|weight| limits.0[*weight] != u64::MAX && total.0[*weight] > 0).collect();
    let weights = if balanced.len() > 1 { Some(node_weights(graph, &balanced)?) } else { None };
    let mut shard_of = vec![0i32; graph.n_nodes() as usize];
    let failed =
        |error: &dyn std::fmt::Display| PartitionError::Option(format!("METIS gave up ({error}): use --method stream"));
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut call = metis::Graph::new(balanced.len() as i32, n_shards as i32, &undirected.indptr, &undirected.indices)
        .map_err(|error| failed(&error))?
        .set_option(Seed((run_key % MAX_ENTRIES) as i32));
    if let Some(weights) = &weights {
        call = call.set_vwgt(weights);
    }
    call.part_kway(&mut shard_of).map_err(|error| failed(&error))?;
    Ok(Some(shard_of.into_iter().map(|shard| shard as u16).collect()))
}

/// With fewer, METIS has nothing to coarsen, and says on stdout what it thinks of that.
const LEAST_NODES_PER_SHARD: u64 = 16;

fn node_weights(graph: &Graph, balanced: &[usize]) -> Result<Vec<i32>> {
    let weights = Weights::new(graph);
    let mut all = Vec::with_capacity(graph.n_nodes() as usize * balanced.len());
    for node in 0..graph.n_nodes() {
        let load = weights.of(node)?;
        for weight in balanced {
            all.push(i32::try_from(load.0[*weight]).map_err(|_| too_many())?);
        }
    }
    Ok(all)
}
