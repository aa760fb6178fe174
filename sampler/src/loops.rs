//! Cache of nodes known to have, or not to have, a stored self-loop.

use std::sync::atomic::{AtomicU64, Ordering};

use kith_draw::prefetch;

/// Known self-loops by row, filled as nodes are sampled: searching a node in its own list costs more than drawing from
/// it, and nearly always finds nothing. Two bits per node; building it reads nothing from the store.
#[derive(Debug)]
pub struct KnownLoops {
    words: Vec<AtomicU64>,
}

const ROWS_PER_WORD: u64 = 32;
const UNKNOWN: u64 = 0;
const NONE: u64 = 1;
const SOME: u64 = 2;

impl KnownLoops {
    /// Nothing is known of the rows `0..n_rows`.
    pub fn new(n_rows: u64) -> KnownLoops {
        KnownLoops { words: (0..n_rows.div_ceil(ROWS_PER_WORD)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Asks for the memory of a node that will be looked up soon.
    #[inline]
    pub(crate) fn ask_for(&self, row: u64) {
        self.words.get((row / ROWS_PER_WORD) as usize).inspect(|word| prefetch(*word));
    }

    /// True if a node is known to have no self-loop.
    #[inline]
    pub(crate) fn has_none(&self, row: u64) -> bool {
        let word = self.words.get((row / ROWS_PER_WORD) as usize).map_or(UNKNOWN, |word| word.load(Ordering::Relaxed));
        word >> (2 * (row % ROWS_PER_WORD)) & 3 == NONE
    }

    /// Remembers what was found. Any thread finds the same, so it does not matter who comes first.
    #[inline]
    pub(crate) fn learn(&self, row: u64, has_loops: bool) {
        let found = if has_loops { SOME } else { NONE };
        if let Some(word) = self.words.get((row / ROWS_PER_WORD) as usize) {
            word.fetch_or(found << (2 * (row % ROWS_PER_WORD)), Ordering::Relaxed);
        }
    }
}
