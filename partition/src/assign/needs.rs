//! Memory that an assignment needs, known before it starts.

use kith_store::Contents;

use super::{
    Method,
    core::{CoreLimits, max_nodes, n_entries},
    metis::MAX_ENTRIES,
};
use crate::error::{PartitionError, Result};

/// METIS, measured on graphs of 2 and 120 million neighbors: 64 to 75 bytes each with all its coarser graphs.
const METIS_BYTES_PER_NEIGHBOR: u64 = 76;
const METIS_BYTES_PER_NODE: u64 = 64;
/// Its owner; two numbers while inclusion is worked out, and then one of them and the buffers of the shards that are written.
const BYTES_PER_NODE: u64 = 2 + 8;
/// Additional bytes per node for ids beyond 32 bits.
const BYTES_PER_WIDE_NODE: u64 = 4;
/// Loads, prices, counts of one node's edges.
const BYTES_PER_SHARD: u64 = 128;
/// Of every node while the core is in memory: its owner, and whether it is in the core.
const STREAM_BYTES_PER_NODE: u64 = 3;
/// Of a core node: its id, the end of its list, and its owner in three attempts.
const STREAM_BYTES_PER_CORE_NODE: u64 = 8 + 4 + 3 * 2;
/// Of every node, where all are in the core: the end of its list, and its owner in three attempts.
const STREAM_BYTES_PER_NODE_OF_WHOLE: u64 = 4 + 3 * 2;
/// Room of blocks of core nodes while they grow; at most twice all lists.
const STREAM_BUFFER_BYTES: u64 = 16 << 20;

/// Bytes that cutting a store by a method takes beside mapped files.
pub fn needed_bytes(contents: &Contents, method: Method, n_shards: u32) -> u64 {
    let is_wide = contents.n_nodes > u64::from(u32::MAX);
    let per_node = BYTES_PER_NODE + if is_wide { BYTES_PER_WIDE_NODE } else { 0 };
    let small = contents.n_nodes.saturating_mul(per_node).saturating_add(u64::from(n_shards) * BYTES_PER_SHARD);
    match method {
        Method::Metis => small
            .saturating_add(contents.n_nodes.saturating_mul(METIS_BYTES_PER_NODE))
            .saturating_add(n_entries(contents).saturating_mul(METIS_BYTES_PER_NEIGHBOR)),
        Method::Stream => small.max(core_bytes(contents)),
        Method::Hash | Method::Range => small,
    }
}

/// Bytes of `stream` while the core is in memory; it may have a tenth more entries than planned. A graph that may be its own core, depending on
/// its degrees, is given the larger of both amounts.
fn core_bytes(contents: &Contents) -> u64 {
    let (n_nodes, n_all) = (contents.n_nodes, n_entries(contents));
    let CoreLimits { max_entries, max_whole } = CoreLimits::of(contents);
    let bytes = |n_nodes: u64, per_node: u64, n_entries: u64| {
        let per_entry = if n_nodes > u64::from(u32::MAX) { 8 } else { 4 };
        n_nodes.saturating_mul(per_node).saturating_add(n_entries.saturating_mul(per_entry))
    };
    let of_whole = if n_all <= max_whole { bytes(n_nodes, STREAM_BYTES_PER_NODE_OF_WHOLE, n_all) } else { 0 };
    let of_core = bytes(max_nodes(contents, max_entries), STREAM_BYTES_PER_CORE_NODE, max_entries / 10 * 11)
        .saturating_add(n_nodes.saturating_mul(STREAM_BYTES_PER_NODE));
    let buffers = STREAM_BUFFER_BYTES.min(n_all.saturating_mul(8));
    of_whole.max(if n_all <= max_entries { 0 } else { of_core }).saturating_add(buffers)
}

/// Refuses what cannot fit, and names what can.
pub fn check_memory(contents: &Contents, method: Method, n_shards: u32, memory_bytes: u64) -> Result<()> {
    let needed = needed_bytes(contents, method, n_shards);
    if method == Method::Metis && n_entries(contents).max(contents.n_nodes) > MAX_ENTRIES {
        return Err(PartitionError::Option(format!(
            "METIS counts with 32 bits and cannot hold {} neighbors: use --method stream",
            n_entries(contents)
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
