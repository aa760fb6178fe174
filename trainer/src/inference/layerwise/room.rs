//! Memory limits of inference.

use std::path::PathBuf;

use kith_run::{config::ModelConfig, memory_plan::least_evaluation_bytes};
use kith_store::memory::{available_bytes, private_bytes};

use super::block_size::{N_BYTES, N_BYTES_OF_ROWS, N_EDGES};
use crate::{
    distributed::world::World,
    error::TrainError,
    model::{OutDegrees, spec_of},
};

/// Memory limits.
#[derive(Clone, Debug)]
pub struct Room {
    /// Private memory of this process, in bytes; `None`: what it holds, and half of what is free. Outputs of a layer that need more than
    /// their share go to a file.
    pub memory: Option<u64>,
    /// Bytes that the rest of the process may come to hold while inference runs; it holds some of them already.
    pub others: u64,
    /// Folder of such files. The system's temporary folder if this one does not exist here.
    pub scratch: Option<PathBuf>,
    /// Nodes that are taken at a time.
    pub n_together: u64,
    /// Neighbors of one node that are taken at a time; a longer neighbor list comes in pieces of about this length.
    pub n_neighbors: u64,
}

impl Default for Room {
    fn default() -> Room {
        Room { memory: None, others: 0, scratch: None, n_together: 1 << 17, n_neighbors: 1 << 20 }
    }
}

/// Memory that an error about too little of it names: more than was needed, because the same program holds more at one start than
/// at another.
pub(crate) fn with_slack(needed: u64) -> u64 {
    needed + needed / SLACK + START_BYTES
}

const SLACK: u64 = 32;

/// Bytes by which starts differ: threads begin in any order, and each has memory of its own.
const START_BYTES: u64 = 16 << 20;

impl Room {
    /// Shares of the memory that is there for inference now.
    pub(super) fn shares(&self, world: &World) -> Shares {
        match self.memory {
            Some(limit) => {
                let held = private_bytes().unwrap_or(0).max(self.others);
                Shares { bytes: limit.saturating_sub(held), is_limited: true }
            }
            None => {
                let free = available_bytes().map_or(u64::MAX, |free| free / 2 / world.n_ranks_on_host() as u64);
                Shares { bytes: free, is_limited: false }
            }
        }
    }

    /// Frees memory that is kept for later, if memory is limited: training keeps some for its next step.
    pub(crate) fn trim(&self) {
        if self.memory.is_some() {
            kith_kernels::trim();
        }
    }

    /// The same only if a block would not fit otherwise.
    pub(super) fn trim_for_block(&self, shares: Shares) {
        if let (Some(limit), Some(held)) = (self.memory, self.memory.and_then(|_| private_bytes()))
            && held + N_SPARE_BLOCKS * (shares.bytes / BLOCK_SHARE) > limit
        {
            kith_kernels::trim();
        }
    }

    /// Refuses an inference that needs `bytes`, if they are not there.
    pub(crate) fn check(&self, bytes: u64, what: &'static str, remedy: &'static str) -> Result<(), TrainError> {
        let needed = private_bytes().unwrap_or(0).max(self.others) + bytes;
        match self.memory {
            Some(limit) if needed > limit => {
                Err(TrainError::Memory { limit, needed: with_slack(needed), what, remedy })
            }
            _ => Ok(()),
        }
    }

    /// Bytes that a rank may pin for a GPU: half of its share of what is free on its machine, before anybody pins any, or of what its
    /// limit leaves.
    pub(crate) fn most_pinned(&self, world: &mut World) -> Result<u64, TrainError> {
        let free = available_bytes().unwrap_or(0) / world.n_ranks_on_host() as u64;
        let limited = self.memory.map_or(u64::MAX, |limit| limit.saturating_sub(private_bytes().unwrap_or(0)));
        let shared = world.collective().share(&(free.min(limited) / 2).to_le_bytes())?;
        let shares = shared.iter().filter_map(|bytes| Some(u64::from_le_bytes(bytes[..].try_into().ok()?)));
        Ok(shares.min().unwrap_or(0))
    }
}

/// Bytes that the outputs of `n_wanted` nodes need at least, `width` numbers each, on a graph of `n_nodes`.
pub(crate) fn least_bytes(model: &ModelConfig, n_nodes: u64, (n_wanted, width): (u64, u64)) -> u64 {
    // Numbers of one set of nodes are copied when it is evaluated.
    let outputs = n_wanted * (8 + 4 + 2 * 4 * width);
    least_evaluation_bytes(n_nodes) + kept_bytes(model, n_nodes) + outputs
}

/// Bytes of the nodes of a window: marks, and the nodes of the window and of the next, a bit for each node with a count for 64 of them.
pub(super) fn window_set_bytes(n_nodes: u64) -> u64 {
    n_nodes / 8 + 2 * (n_nodes / 4)
}

/// Bytes that evaluations keep for the next: the nodes that each layer computes (a bit for each node, and a count for 64 of them), and
/// out-degrees.
pub(crate) fn kept_bytes(model: &ModelConfig, n_nodes: u64) -> u64 {
    let has_degrees = spec_of(model.kind).needs_out_degrees();
    let degrees = if has_degrees { OutDegrees::bytes_each(model.has_edge_weights()) as u64 * n_nodes } else { 0 };
    n_nodes / 4 * (model.n_layers as u64 + 1) + degrees
}

/// Memory of an inference, in shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    bytes: u64,
    /// True if the memory has a limit. Without one, only windows depend on it.
    is_limited: bool,
}

/// Share of the memory for the outputs of a layer. Two layers have outputs at the same time: those that are read, and those that are
/// written.
const HELD_SHARE: u64 = 8;

/// Share for the rows that are read together, with their products; they are copied a few times.
const ROWS_SHARE: u64 = 32;
const N_ROW_COPIES: u64 = 4;

/// Share for a block: its edges, and what they read.
const BLOCK_SHARE: u64 = 8;

/// Blocks that must fit before the next is made, or memory that is kept is freed.
const N_SPARE_BLOCKS: u64 = 3;

/// Share for a block's table, and bytes of it for each node that a layer reads.
const TABLE_SHARE: u64 = 16;
const TABLE_BYTES: u64 = 8;

/// Bytes of an edge of a block, with the numbers that are computed for it, and its part of those of its destination.
const EDGE_BYTES: u64 = 512;

/// Least share for records and neighbor lists, however much the rest takes.
const LEAST_WINDOW_SHARE: u64 = 8;

/// Edges of a block, and bytes of rows, whatever the limit.
const LEAST_EDGES: u64 = 1 << 14;
const LEAST_ROW_BYTES: u64 = 1 << 20;

impl Shares {
    /// Bytes of the records and the neighbor lists that are in memory together: what `held_bytes` of outputs leave.
    pub(super) fn window_bytes(&self, held_bytes: u64) -> u64 {
        let others =
            N_ROW_COPIES * (self.bytes / ROWS_SHARE) + 2 * (self.bytes / BLOCK_SHARE) + self.bytes / TABLE_SHARE;
        self.bytes.saturating_sub(others + held_bytes).max(self.bytes / LEAST_WINDOW_SHARE)
    }

    /// Bytes of the outputs of a layer that stay in memory.
    pub(super) fn held_bytes(&self) -> u64 {
        self.bytes / HELD_SHARE
    }

    /// Bytes of the rows that are multiplied together, and of their products.
    pub(super) fn row_bytes(&self) -> u64 {
        self.at_most(N_BYTES_OF_ROWS, ROWS_SHARE, 1).max(LEAST_ROW_BYTES)
    }

    /// Edges of a block, for each of which `n_numbers` are computed beside its attention.
    pub(super) fn block_edges(&self, n_numbers: usize) -> u64 {
        self.at_most(N_EDGES, BLOCK_SHARE, EDGE_BYTES + 16 * n_numbers as u64).max(LEAST_EDGES)
    }

    /// Bytes of what a layer reads of the sources of a block.
    pub(super) fn block_bytes(&self) -> u64 {
        self.at_most(N_BYTES, BLOCK_SHARE, 1).max(LEAST_ROW_BYTES)
    }

    /// True if a block's table of `n_nodes` fits.
    pub(super) fn has_table(&self, n_nodes: u64) -> bool {
        !self.is_limited || n_nodes <= self.bytes / TABLE_SHARE / TABLE_BYTES
    }

    fn at_most(&self, most: u64, share: u64, bytes_each: u64) -> u64 {
        if self.is_limited { most.min(self.bytes / share / bytes_each) } else { most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_memory() {
        for bytes in [1 << 26, 1 << 28, 1 << 30, 1 << 34] {
            let shares = Shares { bytes, is_limited: true };
            let window = shares.window_bytes(2 * shares.held_bytes());
            let blocks = EDGE_BYTES * shares.block_edges(0) + shares.block_bytes();
            let sum = 2 * shares.held_bytes() + window + blocks + N_ROW_COPIES * shares.row_bytes();
            assert!(window >= bytes / 4 && sum <= bytes, "{bytes}: {sum}");
            assert!(shares.block_edges(8) <= shares.block_edges(0));
            assert!(shares.has_table(bytes / 128) && !shares.has_table(bytes / 64));
        }
        let least = Shares { bytes: 0, is_limited: true };
        assert_eq!((least.window_bytes(0), least.block_edges(0), least.row_bytes()), (0, LEAST_EDGES, LEAST_ROW_BYTES));
        let free = Shares { bytes: 1, is_limited: false };
        assert_eq!((free.block_edges(99), free.row_bytes()), (N_EDGES, N_BYTES_OF_ROWS));
    }

    #[test]
    fn a_limit_counts_the_whole_process() {
        let world = World::alone();
        let held = private_bytes().unwrap();
        let limited = |memory, others| Room { memory: Some(memory), others, ..Room::default() };
        let free = limited(held + (1 << 30), 0).shares(&world).bytes;
        assert!((1 << 29..(1 << 30) + (1 << 26)).contains(&free), "{free}");
        assert_eq!(limited(5 << 40, 2 << 40).shares(&world).bytes, 3 << 40, "others have not taken all of theirs yet");
        assert_eq!(limited(1, 0).shares(&world).bytes, 0);
        let error = limited(1 << 20, 0).check(5 << 40, "an evaluation", "raise --memory").unwrap_err().to_string();
        assert!(
            error.starts_with(
                "expected at most 1.0 MiB of private memory (--memory), an evaluation needs about 5.2 TiB: "
            ),
            "{error}"
        );
        assert!(limited(5 << 40, 0).check(1 << 20, "an evaluation", "raise --memory").is_ok());
    }
}
