//! Negatives, grouped by destination and by source.

use kith_block::Negatives;

/// The same pairs in two orders: within a node they stay in the order of their index.
pub(crate) struct Grouped {
    /// By destination: where each one's pairs start, and their sources.
    pub(crate) indptr: Vec<usize>,
    pub(crate) sources: Vec<u32>,
    /// By source: where each one's pairs start, and their destinations.
    pub(crate) out_indptr: Vec<usize>,
    pub(crate) destinations: Vec<u32>,
}

impl Grouped {
    pub(crate) fn new(negatives: &Negatives, n_destinations: usize, n_sources: usize) -> Grouped {
        let Negatives { sources, destinations, .. } = negatives;
        let ((indptr, sources), (out_indptr, destinations)) =
            rayon::join(|| sorted(destinations, sources, n_destinations), || sorted(sources, destinations, n_sources));
        Grouped { indptr, sources, out_indptr, destinations }
    }
}

/// Pairs grouped by node: the start of each node's pairs, and the nodes at their other ends.
fn sorted(nodes: &[u32], others: &[u32], n_nodes: usize) -> (Vec<usize>, Vec<u32>) {
    let starts = starts(nodes, n_nodes);
    let mut next = starts.clone();
    let mut by_node = vec![0; nodes.len()];
    for (node, other) in nodes.iter().zip(others) {
        let place = &mut next[*node as usize];
        by_node[*place] = *other;
        *place += 1;
    }
    (starts, by_node)
}

/// Start of each node's pairs, and the end of the last.
fn starts(nodes: &[u32], n_nodes: usize) -> Vec<usize> {
    let mut starts = vec![0; n_nodes + 1];
    for node in nodes {
        starts[*node as usize + 1] += 1;
    }
    for node in 0..n_nodes {
        starts[node + 1] += starts[node];
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_hold_every_pair() {
        let negatives = Negatives { sources: vec![2, 0, 2, 1, 2], destinations: vec![1, 1, 0, 0, 1], n_left_out: 0 };
        let grouped = Grouped::new(&negatives, 2, 3);
        assert_eq!(grouped.indptr, [0, 2, 5]);
        assert_eq!(grouped.sources, [2, 1, 2, 0, 2]);
        assert_eq!(grouped.out_indptr, [0, 1, 2, 5]);
        assert_eq!(grouped.destinations, [1, 0, 1, 0, 1]);
    }
}
