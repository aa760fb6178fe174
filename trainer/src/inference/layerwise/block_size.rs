//! Edges per block, limited so that a layer's input for the block's sources is small enough.

/// Edges of one block at most, unless a single list has more.
pub(super) const N_EDGES: u64 = 1 << 20;

/// Bytes of what a layer reads of the sources of one block, more or less.
pub(super) const N_BYTES: u64 = 256 << 20;

/// Bytes of the rows that are multiplied together, and of their products.
pub(super) const N_BYTES_OF_ROWS: u64 = 64 << 20;

/// Edges of one block at most, where each has `width` numbers of its own.
pub(super) fn n_edges_with(width: usize) -> u64 {
    N_EDGES.min(N_BYTES / (4 * width.max(1) as u64))
}

/// Limit of edges for the next block of a layer, by the sources per edge of the last block.
#[derive(Debug)]
pub(super) struct BlockSize {
    /// Sources of a block.
    n_sources: u64,
    n_edges: u64,
    most: u64,
}

impl BlockSize {
    /// For a layer that reads `n_numbers` for each of `n_nodes`: `n_bytes` of them for a block, which has `most` edges at most.
    pub(super) fn new(n_nodes: u64, n_numbers: usize, (n_bytes, most): (u64, u64)) -> BlockSize {
        let n_sources = (n_bytes / (4 * n_numbers as u64)).max(1);
        // At first as if every edge had a source of its own, unless all nodes fit.
        BlockSize { n_sources, n_edges: if n_nodes <= n_sources { u64::MAX } else { n_sources }, most }
    }

    /// Edges of the next block at most.
    pub(super) fn n_edges(&self) -> u64 {
        self.n_edges.min(self.most)
    }

    /// Adjusts the limit to the last block.
    pub(super) fn hear(&mut self, n_sources: usize, n_edges: usize) {
        if self.n_edges < u64::MAX {
            self.n_edges =
                (self.n_sources.saturating_mul(n_edges as u64) / n_sources.max(1) as u64).max(self.n_sources);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: (u64, u64) = (N_BYTES, N_EDGES);

    #[test]
    fn blocks_have_as_many_edges_as_their_sources_allow() {
        let mut all = BlockSize::new(100_000, 256, MOST);
        all.hear(10, 10);
        assert_eq!(all.n_edges(), N_EDGES, "all nodes fit");
        let mut some = BlockSize::new(10_000_000, 256, MOST);
        assert_eq!(some.n_edges(), 1 << 18, "every source may be another");
        some.hear(125_000, 250_000);
        assert_eq!(some.n_edges(), 1 << 19, "every source came twice");
        some.hear(1000, 1_000_000);
        assert_eq!(some.n_edges(), N_EDGES);
        some.hear(1000, 500);
        assert_eq!(some.n_edges(), 1 << 18);
        assert_eq!(BlockSize::new(10, 1 << 40, MOST).n_edges(), 1);
        assert_eq!(BlockSize::new(100, 256, (N_BYTES, 5000)).n_edges(), 5000);
    }
}
