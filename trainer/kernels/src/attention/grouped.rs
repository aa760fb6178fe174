//! Negatives by destination, and again by source.

use kith_block::Negatives;

/// The same pairs in two orders: within a node they stay in the order of their index.
pub(crate) struct Grouped {
    /// By destination: where each one's pairs start, and their sources.
    pub(crate) indptr: Vec<usize>,
    pub(crate) sources: Vec<u32>,
    /// By source: where each one's pairs start, their destinations, and their places by destination.
    pub(crate) out_indptr: Vec<usize>,
    pub(crate) destinations: Vec<u32>,
    pub(crate) out_pairs: Vec<u32>,
}

impl Grouped {
    pub(crate) fn new(negatives: &Negatives, n_destinations: usize, n_sources: usize) -> Grouped {
        let ((indptr, by_destination), (out_indptr, by_source)) =
            rayon::join(|| sorted(&negatives.destinations, n_destinations), || sorted(&negatives.sources, n_sources));
        let mut places = vec![0; negatives.len()];
        for (place, index) in by_destination.iter().enumerate() {
            places[*index as usize] = place as u32;
        }
        let pick = |from: &[u32], order: &[u32]| order.iter().map(|index| from[*index as usize]).collect::<Vec<u32>>();
        let (sources, (destinations, out_pairs)) = rayon::join(
            || pick(&negatives.sources, &by_destination),
            || (pick(&negatives.destinations, &by_source), pick(&places, &by_source)),
        );
        Grouped { indptr, sources, out_indptr, destinations, out_pairs }
    }
}

/// Where the pairs of each node start, and the indices of all pairs by node.
fn sorted(nodes: &[u32], n_nodes: usize) -> (Vec<usize>, Vec<u32>) {
    let starts = starts(nodes, n_nodes);
    let mut next = starts.clone();
    let mut order = vec![0; nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        let place = &mut next[*node as usize];
        order[*place] = index as u32;
        *place += 1;
    }
    (starts, order)
}

/// Where the pairs of each node start, and the end.
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
        assert_eq!(grouped.out_pairs, [3, 1, 2, 0, 4]);
    }
}
