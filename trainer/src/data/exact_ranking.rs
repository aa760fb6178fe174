//! Ranks of held-out edges among all nodes of a graph.

use std::collections::{HashMap, HashSet};

use kith_run::measured::Metric;
use rayon::prelude::*;

use crate::data::matrix::{Matrix, dot};

/// Ranks each node of a held-out edge among the nodes that have no edge to the other: by either node, so every edge has two ranks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExactRanking {
    /// Nodes with an edge to each node of held-out edges, ascending: they have no rank.
    neighbors: HashMap<u32, Vec<u32>>,
}

/// Place of a node among others by its score.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rank {
    /// 1 plus the nodes above, and half of those with the same score.
    rank: f64,
    /// Nodes that it is ranked among, itself left out.
    n_others: usize,
}

impl ExactRanking {
    /// For held-out edges of a graph with these edges, held-out ones included.
    pub(crate) fn new(edges: &[(u32, u32)], held_out: impl Iterator<Item = (u32, u32)> + Clone) -> ExactRanking {
        let ends: HashSet<u32> = held_out.clone().flat_map(|(a, b)| [a, b]).collect();
        let mut neighbors: HashMap<u32, Vec<u32>> = HashMap::new();
        for (a, b) in edges.iter().copied().chain(held_out) {
            for (node, other) in [(a, b), (b, a)] {
                if ends.contains(&node) {
                    neighbors.entry(node).or_default().push(other);
                }
            }
        }
        neighbors.values_mut().for_each(|list| {
            list.sort_unstable();
            list.dedup();
        });
        ExactRanking { neighbors }
    }

    /// A metric of edges, given by their two nodes, by the outputs of all nodes.
    pub(crate) fn metric(&self, edges: (&[u32], &[u32]), outputs: &Matrix, metric: Metric) -> f64 {
        let ends = edges.0.par_iter().zip(edges.1);
        let value = |Rank { rank, n_others }| match metric {
            Metric::Mrr => 1.0 / rank,
            Metric::HitsAt10 => f64::from(u8::from(rank <= 10.0)),
            Metric::HitsAt50 => f64::from(u8::from(rank <= 50.0)),
            Metric::HitsAt100 => f64::from(u8::from(rank <= 100.0)),
            _ => 1.0 - (rank - 1.0) / n_others.max(1) as f64,
        };
        let both = |(a, b): (&u32, &u32)| value(self.rank(outputs, *a, *b)) + value(self.rank(outputs, *b, *a));
        let values: Vec<f64> = ends.map(both).collect();
        values.iter().sum::<f64>() / (2 * values.len()).max(1) as f64
    }

    /// The rank of `other` among the nodes without an edge to `node`.
    fn rank(&self, outputs: &Matrix, node: u32, other: u32) -> Rank {
        let own = outputs.row(node as usize);
        let score = dot(own, outputs.row(other as usize));
        let mut neighbors = self.neighbors.get(&node).map_or(&[][..], |list| list).iter().copied().peekable();
        let (mut n_above, mut n_equal, mut n_others) = (0, 0, 0);
        for candidate in 0..(outputs.values.len() / outputs.width.max(1)) as u32 {
            if neighbors.next_if_eq(&candidate).is_some() || candidate == node {
                continue;
            }
            let found = dot(own, outputs.row(candidate as usize));
            n_above += usize::from(found > score);
            n_equal += usize::from(found == score);
            n_others += 1;
        }
        Rank { rank: 1.0 + n_above as f64 + n_equal as f64 / 2.0, n_others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outputs on a line: the score of two nodes is the product of their numbers.
    #[test]
    fn edges_are_ranked_among_all_nodes_without_an_edge() {
        let outputs = Matrix { values: vec![1.0, 5.0, 3.0, 4.0, 3.0, -2.0], width: 1 };
        // Held out: 0-2. Node 0 also has an edge to 1; node 2 to none.
        let ranking = ExactRanking::new(&[(0, 1), (3, 4)], [(0, 2)].into_iter());
        let rank = |node, other| ranking.rank(&outputs, node, other);
        // Among 3, 4 and 5: 3 is above, 4 equal.
        assert_eq!(rank(0, 2), Rank { rank: 2.5, n_others: 3 });
        // Among 1, 3, 4 and 5: all but 5 are above.
        assert_eq!(rank(2, 0), Rank { rank: 4.0, n_others: 4 });
        let metric = |metric| ranking.metric((&[0], &[2]), &outputs, metric);
        assert_eq!(metric(Metric::Mrr), (1.0 / 2.5 + 1.0 / 4.0) / 2.0);
        assert_eq!(metric(Metric::HitsAt10), 1.0);
        assert_eq!(metric(Metric::Auc), (1.0 - 1.5 / 3.0 + 1.0 - 3.0 / 4.0) / 2.0);
        assert_eq!(ranking.metric((&[], &[]), &outputs, Metric::Mrr), 0.0, "of no edge");
    }
}
