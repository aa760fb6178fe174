//! Memory that an assignment needs, known before it starts.

use kith_store::Contents;

use super::{Method, metis::MAX_ENTRIES};
use crate::error::{PartitionError, Result};

/// METIS, measured on graphs of 2 and 120 million neighbors: 64 to 75 bytes each with all its coarser graphs.
const METIS_BYTES_PER_NEIGHBOR: u64 = 76;
const METIS_BYTES_PER_NODE: u64 = 64;
/// Its owner; two numbers while inclusion is worked out, and then one of them and its id among those of its shard.
const BYTES_PER_NODE: u64 = 2 + 8;
/// Additional bytes per node for ids beyond 32 bits.
const BYTES_PER_WIDE_NODE: u64 = 4;
/// Loads, prices, counts of one node's edges.
const BYTES_PER_SHARD: u64 = 128;

/// Bytes that cutting a store by a method takes beside mapped files.
pub fn needed_bytes(contents: &Contents, method: Method, n_shards: u32) -> u64 {
    let is_wide = contents.n_nodes > u64::from(u32::MAX);
    let per_node = BYTES_PER_NODE + if is_wide { BYTES_PER_WIDE_NODE } else { 0 };
    let small = contents.n_nodes.saturating_mul(per_node).saturating_add(u64::from(n_shards) * BYTES_PER_SHARD);
    match method {
        Method::Metis => small
            .saturating_add(contents.n_nodes.saturating_mul(METIS_BYTES_PER_NODE))
            .saturating_add(n_neighbors(contents).saturating_mul(METIS_BYTES_PER_NEIGHBOR)),
        _ => small,
    }
}

/// Entries of both nodes' lists, at most.
fn n_neighbors(contents: &Contents) -> u64 {
    if contents.is_symmetric { contents.n_edges } else { contents.n_edges.saturating_mul(2) }
}

/// Refuses what cannot fit, and names what can.
pub fn check_memory(contents: &Contents, method: Method, n_shards: u32, memory_bytes: u64) -> Result<()> {
    let needed = needed_bytes(contents, method, n_shards);
    if method == Method::Metis && n_neighbors(contents).max(contents.n_nodes) > MAX_ENTRIES {
        return Err(PartitionError::Option(format!(
            "METIS counts with 32 bits and cannot hold {} neighbors: use --method stream",
            n_neighbors(contents)
        )));
    }
    if needed <= memory_bytes {
        return Ok(());
    }
    let instead = match method {
        Method::Metis => "use --method stream".to_owned(),
        _ => "no method needs less: use a machine with more".to_owned(),
    };
    Err(PartitionError::Option(format!(
        "{method} needs about {} of memory for this graph, and {} are there: {instead}",
        mib(needed),
        mib(memory_bytes)
    )))
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// METIS where it fits, else streaming; and why.
pub fn choose_method(contents: &Contents, n_shards: u32, memory_bytes: u64) -> (Method, String) {
    match check_memory(contents, Method::Metis, n_shards, memory_bytes) {
        Ok(()) => (Method::Metis, "it fits in memory".to_owned()),
        Err(error) => (Method::Stream, error.to_string().replace(": use --method stream", "")),
    }
}
