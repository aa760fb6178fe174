//! Set of owned nodes with the row of each: a bitmap with prefix counts.

use crate::{column::Column, error::Result};

/// Nodes under one word.
pub(crate) const NODES_PER_WORD: u64 = u64::BITS as u64;

/// The nodes of a shard.
#[derive(Debug)]
pub(crate) struct Owned {
    words: Column<u64>,
}

/// Items of the column for a graph of `n_graph_nodes` nodes.
pub(crate) fn n_items(n_graph_nodes: u64) -> u64 {
    2 * n_graph_nodes.div_ceil(NODES_PER_WORD)
}

/// The row of a node, if it is among them. A word and its rank stand together: a lookup touches one line of memory.
#[inline]
fn row_of(words: &[u64], node: u64) -> Option<u64> {
    let place = 2 * (node / NODES_PER_WORD) as usize;
    let &[word, rank] = words.get(place..)?.first_chunk::<2>()?;
    let bit = node % NODES_PER_WORD;
    (word >> bit & 1 == 1).then(|| rank + u64::from((word & ((1 << bit) - 1)).count_ones()))
}

impl Owned {
    /// Checks all of the column: lookups read it without checking.
    pub(crate) fn new(words: Column<u64>) -> Result<Owned> {
        words.all()?;
        Ok(Owned { words })
    }

    /// The row of a node, if it is owned.
    #[inline]
    pub(crate) fn row_of(&self, node: u64) -> Option<u64> {
        row_of(self.words.items(), node)
    }

    /// Memory that a lookup will read.
    #[inline]
    pub(crate) fn word(&self, node: u64) -> Option<&u64> {
        self.words.items().get(2 * (node / NODES_PER_WORD) as usize)
    }

    /// All owned nodes, ascending.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.items().chunks_exact(2).zip((0..).step_by(NODES_PER_WORD as usize)).flat_map(|(pair, first)| {
            let mut rest = pair[0];
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                rest &= rest.wrapping_sub(1);
                (u64::from(bit) < NODES_PER_WORD).then(|| first + u64::from(bit))
            })
        })
    }

    /// The nodes that the last rank and its word add up to.
    pub(crate) fn n_owned(&self) -> u64 {
        self.words.items().last_chunk::<2>().map_or(0, |[word, rank]| rank.saturating_add(word.count_ones().into()))
    }
}

/// Some nodes in memory.
#[derive(Debug, Default)]
pub struct NodeRows {
    words: Vec<u64>,
    n_rows: u64,
}

impl NodeRows {
    /// Those of the nodes `0..n_nodes` that `is_in` says; it is asked for each, in order.
    pub fn new(n_nodes: u64, mut is_in: impl FnMut(u64) -> bool) -> NodeRows {
        let mut rows = NodeRows { words: Vec::with_capacity(n_items(n_nodes) as usize), n_rows: 0 };
        for first in (0..n_nodes).step_by(NODES_PER_WORD as usize) {
            let nodes = first..n_nodes.min(first + NODES_PER_WORD);
            let word = nodes.fold(0, |word, node| word | u64::from(is_in(node)) << (node - first));
            rows.words.extend([word, rows.n_rows]);
            rows.n_rows += u64::from(word.count_ones());
        }
        rows
    }

    /// The row of a node: its place among those that are in.
    #[inline]
    pub fn row_of(&self, node: u64) -> Option<u64> {
        row_of(&self.words, node)
    }

    /// Number of owned nodes.
    pub fn n_rows(&self) -> u64 {
        self.n_rows
    }

    /// The bitmap of all nodes, each word followed by the number of nodes before it. Equal sets have equal words.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}
