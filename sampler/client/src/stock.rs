//! Pool of memory from finished mini-batches, reused by the next ones. Memory that is not returned is allocated anew.

use std::sync::{Arc, Mutex};

use kith_block::{Block, BlockMemory};

use crate::rows::FetchedRows;

/// A bounded store of used memory, shared by the threads that make batches and the one that uses them.
#[derive(Clone, Debug)]
pub struct Stock {
    kept: Arc<Mutex<KeptParts>>,
    /// Batches whose memory is kept at most.
    most: usize,
}

#[derive(Debug, Default)]
struct KeptParts {
    rows: Vec<FetchedRows>,
    blocks: Vec<BlockMemory>,
    nodes: Vec<Vec<u64>>,
}

/// Blocks of a batch whose memory is kept at most.
const MAX_LAYERS: usize = 16;

impl Stock {
    /// Keeps the memory of at most `most` mini-batches.
    pub fn new(most: usize) -> Stock {
        Stock { kept: Arc::default(), most }
    }

    /// Takes the memory of rows.
    pub fn take_rows(&self, rows: FetchedRows) {
        if rows.values.capacity() > 0 {
            self.keep(|kept| keep(&mut kept.rows, rows, self.most));
        }
    }

    /// Takes the memory of blocks and lists of ids that nobody else still holds.
    pub(crate) fn take_blocks(&self, blocks: Vec<Arc<Block>>, nodes: Arc<Vec<u64>>) {
        // The output layer's is the last in and the first out: the next batch asks for it first, too.
        let memory: Vec<BlockMemory> = blocks.into_iter().filter_map(Arc::into_inner).map(Block::into_memory).collect();
        self.keep(|kept| {
            memory.into_iter().for_each(|memory| keep(&mut kept.blocks, memory, self.most * MAX_LAYERS));
            if let Some(nodes) = Arc::into_inner(nodes) {
                keep(&mut kept.nodes, nodes, self.most);
            }
        });
    }

    /// Rows that were given back, or none that were ever used.
    pub(crate) fn rows(&self) -> FetchedRows {
        self.keep(|kept| kept.rows.pop().unwrap_or_default())
    }

    /// Blocks that were given back, or none that were ever used.
    pub(crate) fn block(&self) -> BlockMemory {
        self.keep(|kept| kept.blocks.pop().unwrap_or_default())
    }

    /// A list of ids that was given back, or one that was never used.
    pub(crate) fn nodes(&self) -> Vec<u64> {
        self.keep(|kept| kept.nodes.pop().unwrap_or_default())
    }

    fn keep<T>(&self, act: impl FnOnce(&mut KeptParts) -> T) -> T {
        act(&mut self.kept.lock().expect("nobody panics while holding it"))
    }
}

fn keep<T>(kept: &mut Vec<T>, item: T, most: usize) {
    if kept.len() < most {
        kept.push(item);
    }
}
