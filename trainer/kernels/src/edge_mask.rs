//! Edges that a layer leaves out of its sums: self-loops, and edges dropped in a step.

use kith_block::{Block, WeightSum};
use kith_draw::Stream;
use rayon::prelude::*;

use crate::dropout::Dropout;

/// Destinations that a thread takes at once.
const N_TOGETHER: usize = 1024;

/// Edges of a block that a layer leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeMask {
    /// A bit for each edge: 1 if it is left out.
    bits: Vec<u64>,
}

impl EdgeMask {
    /// Leaves out self-loops, unless the layer has them, and the other edges that `dropout` drops: names (destination, source). `None`
    /// if nothing is left out.
    pub fn new(block: &Block, has_loops: bool, dropout: Option<(Dropout, Stream)>) -> Option<EdgeMask> {
        if has_loops && dropout.is_none() {
            return None;
        }
        let is_left_out = |destination: usize, source: u32| match (source as usize == destination, dropout) {
            (true, _) => !has_loops,
            (false, None) => false,
            (false, Some((dropout, stream))) => {
                let words = stream.words(block.id(destination), block.id(source as usize), 0, 0);
                !dropout.keeps(words[0] & 0xffff)
            }
        };
        // Words of the edges of some destinations, from the word of the first edge on.
        let words = |first: usize| -> (usize, Vec<u64>) {
            let end = (first + N_TOGETHER).min(block.n_destinations());
            let first_word = block.indptr()[first] / 64;
            let mut words = vec![0; block.indptr()[end].div_ceil(64) - first_word];
            for node in first..end {
                for edge in block.edges_into(node).filter(|edge| is_left_out(node, block.sources()[*edge])) {
                    words[edge / 64 - first_word] |= 1 << (edge % 64);
                }
            }
            (first_word, words)
        };
        let firsts: Vec<usize> = (0..block.n_destinations()).step_by(N_TOGETHER).collect();
        let mut bits = vec![0; block.n_edges().div_ceil(64)];
        for (first_word, words) in firsts.par_iter().map(|first| words(*first)).collect::<Vec<_>>() {
            bits[first_word..].iter_mut().zip(words).for_each(|(bits, word)| *bits |= word);
        }
        Some(EdgeMask { bits })
    }

    /// True if an edge is left out.
    #[inline(always)]
    pub fn leaves_out(&self, edge: usize) -> bool {
        self.bits[edge / 64] >> (edge % 64) & 1 == 1
    }

    /// Edges into a destination that are not left out.
    pub fn n_into(mask: Option<&EdgeMask>, block: &Block, destination: usize) -> usize {
        let edges = block.edges_into(destination);
        mask.map_or(edges.len(), |mask| edges.filter(|edge| !mask.leaves_out(*edge)).count())
    }

    /// Edges from a source that are not left out.
    pub fn n_from(mask: Option<&EdgeMask>, block: &Block, source: usize) -> usize {
        let edges = &block.out_edges()[block.out_indptr()[source]..block.out_indptr()[source + 1]];
        mask.map_or(edges.len(), |mask| edges.iter().filter(|edge| !mask.leaves_out(**edge as usize)).count())
    }
}

/// Degree of a source: the number of its edges that are not left out, or the sum of their weights.
pub(crate) fn degree_from(mask: Option<&EdgeMask>, block: &Block, source: usize, is_weighted: bool) -> f32 {
    let edges = &block.out_edges()[block.out_indptr()[source]..block.out_indptr()[source + 1]];
    match is_weighted {
        false => EdgeMask::n_from(mask, block, source) as f32,
        true => sum_of_weights(mask, block, edges.iter().map(|edge| *edge as usize)).degree(),
    }
}

/// Sum of the weights of edges that are not left out.
pub fn sum_of_weights(mask: Option<&EdgeMask>, block: &Block, edges: impl Iterator<Item = usize>) -> WeightSum {
    let weights = block.known_weights();
    let mut sum = WeightSum::default();
    edges
        .filter(|edge| mask.is_none_or(|mask| !mask.leaves_out(*edge)))
        .for_each(|edge| sum.add(weights.map_or(1.0, |weights| weights[edge])));
    sum
}

#[cfg(test)]
mod tests {
    use kith_block::BlockError;
    use kith_draw::{Name, Purpose};

    use super::*;

    fn block() -> Block {
        let list = |node: u64| Ok::<_, BlockError>((0..node % 50).map(move |k| (node + k + 1) % 3000));
        let n_edges = (0..3000).map(|node| node % 50).sum();
        let lists: Vec<Vec<u64>> = (0..3000)
            .map(|node| {
                let mut list: Vec<u64> = list(node).unwrap().collect();
                list.sort_unstable();
                list
            })
            .collect();
        Block::full(3000, n_edges, |node| Ok::<_, BlockError>(lists[node as usize].iter().copied())).unwrap()
    }

    #[test]
    fn loops_stay_or_go_and_the_share_of_others_is_dropped() {
        let block = block();
        let stream = Name { run_key: 1, purpose: Purpose::EdgeDropout, step: 0, layer: 0 }.stream();
        assert_eq!(EdgeMask::new(&block, true, None), None);
        for (has_loops, p) in [(true, 0.3), (false, 0.3), (false, 0.0)] {
            let mask = EdgeMask::new(&block, has_loops, Some((Dropout::new(p), stream))).unwrap();
            let is_loop = |edge: &usize| block.edges_into(block.sources()[*edge] as usize).contains(edge);
            let (loops, others): (Vec<usize>, Vec<usize>) = (0..block.n_edges()).partition(is_loop);
            assert_eq!(loops.len(), 3000);
            assert!(loops.iter().all(|edge| mask.leaves_out(*edge) != has_loops));
            let share = others.iter().filter(|edge| mask.leaves_out(**edge)).count() as f64 / others.len() as f64;
            assert!((share - p).abs() < 0.01, "{share}");
            let kept = |n: fn(Option<&EdgeMask>, &Block, usize) -> usize| -> usize {
                (0..3000).map(|node| n(Some(&mask), &block, node)).sum()
            };
            assert_eq!(kept(EdgeMask::n_into), kept(EdgeMask::n_from));
        }
    }
}
