//! Which nodes a shard owns, and the row of each: a bitmap with the count of all bits before.

use crate::column::Column;

/// Nodes under one word.
pub(crate) const NODES_PER_WORD: u64 = u64::BITS as u64;

/// The nodes of a shard. A word and its rank stand together: a lookup touches one line of memory.
#[derive(Debug)]
pub(crate) struct Owned {
    words: Column<u64>,
}

/// Items of the column for a graph of so many nodes.
pub(crate) fn n_items(n_graph_nodes: u64) -> u64 {
    2 * n_graph_nodes.div_ceil(NODES_PER_WORD)
}

impl Owned {
    pub(crate) fn new(words: Column<u64>) -> Owned {
        Owned { words }
    }

    /// The row of a node, if it is owned.
    #[inline]
    pub(crate) fn row_of(&self, node: u64) -> Option<u64> {
        let place = 2 * (node / NODES_PER_WORD) as usize;
        let &[word, rank] = self.words.items().get(place..)?.first_chunk::<2>()?;
        let bit = node % NODES_PER_WORD;
        (word >> bit & 1 == 1).then(|| rank + u64::from((word & ((1 << bit) - 1)).count_ones()))
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

/// Makes the column, node by node.
#[derive(Debug, Default)]
pub(crate) struct OwnedWords {
    words: Vec<u64>,
    n_owned: u64,
}

impl OwnedWords {
    pub(crate) fn new(n_graph_nodes: u64) -> OwnedWords {
        OwnedWords { words: Vec::with_capacity(n_items(n_graph_nodes) as usize), n_owned: 0 }
    }

    /// Adds the next word: 64 nodes, or the rest of them.
    pub(crate) fn push(&mut self, word: u64) {
        self.words.extend([word, self.n_owned]);
        self.n_owned += u64::from(word.count_ones());
    }

    pub(crate) fn n_owned(&self) -> u64 {
        self.n_owned
    }

    pub(crate) fn items(&self) -> &[u64] {
        &self.words
    }
}
