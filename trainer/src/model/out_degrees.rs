//! Out-degrees of all nodes.

use std::ops::Range;

use kith_block::WeightSum;

/// Out-degree of each node of a graph, self-loops included, by id.
#[derive(Clone, Debug)]
pub enum OutDegrees {
    /// Numbers of edges.
    Counts(Vec<u32>),
    /// Sums of the weights of edges; a self-loop weighs 1.
    Weights(Vec<WeightSum>),
}

impl OutDegrees {
    /// No edge yet, not even loops.
    pub fn new(n_nodes: u64, are_weighted: bool) -> OutDegrees {
        match are_weighted {
            false => OutDegrees::Counts(vec![0; n_nodes as usize]),
            true => OutDegrees::Weights(vec![WeightSum::default(); n_nodes as usize]),
        }
    }

    /// Adds edges by their sources, with their weights if they count; loops are edges.
    pub fn add(&mut self, sources: impl Iterator<Item = u64>, mut weights: impl Iterator<Item = f32>) {
        match self {
            OutDegrees::Counts(counts) => sources.for_each(|source| counts[source as usize] += 1),
            OutDegrees::Weights(sums) => {
                sources.for_each(|source| sums[source as usize].add(weights.next().unwrap_or(1.0)));
            }
        }
    }

    /// Nodes.
    pub(crate) fn len(&self) -> usize {
        match self {
            OutDegrees::Counts(counts) => counts.len(),
            OutDegrees::Weights(sums) => sums.len(),
        }
    }

    /// Bytes of a node's degree.
    pub(crate) fn bytes_each(are_weighted: bool) -> usize {
        if are_weighted { size_of::<WeightSum>() } else { size_of::<u32>() }
    }

    /// The degrees of some nodes as bytes, for other ranks.
    pub(crate) fn bytes(&self, nodes: Range<usize>) -> Vec<u8> {
        match self {
            OutDegrees::Counts(counts) => bytemuck::cast_slice(&counts[nodes]).to_vec(),
            OutDegrees::Weights(sums) => sums[nodes].iter().flat_map(|sum| sum.to_bytes()).collect(),
        }
    }

    /// Adds another rank's degrees of the nodes from `first` on.
    pub(crate) fn add_bytes(&mut self, first: usize, bytes: &[u8]) {
        match self {
            OutDegrees::Counts(sums) => {
                let (counts, _) = bytes.as_chunks::<4>();
                sums[first..].iter_mut().zip(counts).for_each(|(sum, count)| *sum += u32::from_le_bytes(*count));
            }
            OutDegrees::Weights(sums) => {
                let (others, _) = bytes.as_chunks::<16>();
                sums[first..].iter_mut().zip(others).for_each(|(sum, other)| *sum += WeightSum::from_bytes(*other));
            }
        }
    }

    /// Those of some nodes, by place.
    pub(crate) fn of_nodes(&self, nodes: &[u64]) -> OutDegrees {
        let places = nodes.iter().map(|node| *node as usize);
        match self {
            OutDegrees::Counts(counts) => OutDegrees::Counts(places.map(|place| counts[place]).collect()),
            OutDegrees::Weights(sums) => OutDegrees::Weights(places.map(|place| sums[place]).collect()),
        }
    }

    /// That of a node, with its self-loop or without.
    pub fn of(&self, node: u64, has_self_loops: bool) -> f32 {
        let place = node as usize;
        match self {
            OutDegrees::Counts(counts) => (counts[place] - u32::from(!has_self_loops)) as f32,
            OutDegrees::Weights(sums) if has_self_loops => sums[place].degree(),
            OutDegrees::Weights(sums) => sums[place].minus_one().degree(),
        }
    }
}
