//! Receptive sets: the nodes that each layer must compute to evaluate some nodes exactly, and the nodes whose features are
//! read. They are counted backwards from the nodes that are wanted.

use std::ops::Range;

use kith_run::report::EvaluatedNodes;

use crate::error::TrainError;

/// Nodes of an evaluation, from the features to the last layer.
#[derive(Clone, Debug)]
pub(crate) struct ReceptiveSets {
    /// Nodes of the graph.
    n_nodes: u64,
    /// First the nodes whose features are read, then the nodes that each layer computes.
    sets: Vec<NodeSet>,
}

impl ReceptiveSets {
    /// All nodes, in every layer.
    pub(crate) fn all(n_nodes: u64, n_layers: usize) -> ReceptiveSets {
        ReceptiveSets { n_nodes, sets: vec![NodeSet::All(n_nodes); n_layers + 1] }
    }

    /// Finds the nodes that an exact evaluation of the `wanted` nodes needs. `add_sources` adds the sources of all edges into some
    /// nodes.
    pub(crate) fn find(
        n_nodes: u64,
        wanted: impl IntoIterator<Item = u64>,
        n_layers: usize,
        mut add_sources: impl FnMut(&NodeSet, &mut NodeMarks) -> Result<(), TrainError>,
    ) -> Result<ReceptiveSets, TrainError> {
        let mut marks = NodeMarks::new(n_nodes);
        marks.add(wanted);
        let mut sets = vec![marks.to_set()];
        for _ in 0..n_layers {
            let last = &sets[sets.len() - 1];
            if let NodeSet::Some(_) = last {
                add_sources(last, &mut marks)?; // A layer also reads what it computes: marks stay.
            }
            sets.push(marks.to_set());
        }
        sets.reverse();
        Ok(ReceptiveSets { n_nodes, sets })
    }

    /// Layers that compute.
    pub(crate) fn n_layers(&self) -> usize {
        self.sets.len() - 1
    }

    /// Nodes whose features are read, and nodes that each layer computes.
    pub(crate) fn each(&self) -> impl Iterator<Item = &NodeSet> {
        self.sets.iter()
    }

    /// Nodes whose features are read.
    pub(crate) fn first(&self) -> &NodeSet {
        &self.sets[0]
    }

    /// Nodes that a layer reads.
    pub(crate) fn read_by(&self, layer: usize) -> &NodeSet {
        &self.sets[layer]
    }

    /// Nodes that a layer computes.
    pub(crate) fn computed_by(&self, layer: usize) -> &NodeSet {
        &self.sets[layer + 1]
    }

    /// Its numbers of nodes, for users.
    pub(crate) fn report(&self) -> EvaluatedNodes {
        let counts = self.counts();
        EvaluatedNodes { graph: self.n_nodes, features: counts[0], layers: counts[1..].to_vec() }
    }

    /// Numbers of the nodes whose features are read, and that each layer computes.
    pub(crate) fn counts(&self) -> Vec<u64> {
        self.sets.iter().map(NodeSet::len).collect()
    }
}

/// Above this share of all nodes, in eighths, all are taken: to find places would cost more than it saves.
const MOST_EIGHTHS: u64 = 7;

/// Nodes of a graph, numbered in the order of their ids: the place of a node is its number.
#[derive(Clone, Debug)]
pub(crate) enum NodeSet {
    All(u64),
    Some(SomeNodes),
}

impl NodeSet {
    pub(crate) fn len(&self) -> u64 {
        match self {
            NodeSet::All(n_nodes) => *n_nodes,
            NodeSet::Some(nodes) => nodes.n_nodes,
        }
    }

    /// Ids of the nodes at some places.
    pub(crate) fn ids(&self, places: Range<u64>) -> Vec<u64> {
        match self {
            NodeSet::All(_) => places.collect(),
            NodeSet::Some(nodes) => nodes.ids(places),
        }
    }

    /// Place of a node of the set.
    pub(crate) fn place(&self, id: u64) -> u64 {
        match self {
            NodeSet::All(_) => id,
            NodeSet::Some(nodes) => nodes.place(id),
        }
    }

    /// Id of the node at a place.
    pub(crate) fn id(&self, place: u64) -> u64 {
        match self {
            NodeSet::All(_) => place,
            NodeSet::Some(nodes) => nodes.id(place),
        }
    }
}

/// Some nodes: a bit for each, and the number of nodes before each word of bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct SomeNodes {
    words: Vec<(u64, u64)>,
    n_nodes: u64,
}

impl SomeNodes {
    pub(crate) fn len(&self) -> u64 {
        self.n_nodes
    }

    #[inline]
    pub(crate) fn place(&self, id: u64) -> u64 {
        let (bits, n_before) = self.words[(id / 64) as usize];
        debug_assert!(bits >> (id % 64) & 1 == 1, "node {id} is in the set");
        n_before + u64::from((bits & ((1 << (id % 64)) - 1)).count_ones())
    }

    /// Id of the node at a place.
    pub(crate) fn id(&self, place: u64) -> u64 {
        let word = self.words.partition_point(|(_, n_before)| *n_before <= place) - 1;
        let (mut bits, n_before) = self.words[word];
        for _ in n_before..place {
            bits &= bits - 1;
        }
        64 * word as u64 + u64::from(bits.trailing_zeros())
    }

    /// Ids of the nodes at some places.
    pub(crate) fn ids(&self, places: Range<u64>) -> Vec<u64> {
        let mut ids = Vec::with_capacity((places.end - places.start) as usize);
        if places.is_empty() {
            return ids;
        }
        let first = self.words.partition_point(|(_, n_before)| *n_before <= places.start) - 1;
        let mut place = self.words[first].1;
        for (word, (bits, _)) in self.words.iter().enumerate().skip(first) {
            let mut rest = *bits;
            while rest != 0 {
                if place == places.end {
                    return ids;
                }
                if place >= places.start {
                    ids.push(64 * word as u64 + u64::from(rest.trailing_zeros()));
                }
                place += 1;
                rest &= rest - 1;
            }
        }
        ids
    }
}

/// A mark for each node of a graph.
#[derive(Clone, Debug)]
pub(crate) struct NodeMarks {
    words: Vec<u64>,
    n_nodes: u64,
}

impl NodeMarks {
    /// Without marks.
    pub(crate) fn new(n_nodes: u64) -> NodeMarks {
        NodeMarks { words: vec![0; n_nodes.div_ceil(64) as usize], n_nodes }
    }

    /// Removes all marks.
    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Marks a node; true if it had no mark.
    #[inline]
    pub(crate) fn mark(&mut self, id: u64) -> bool {
        let (word, bit) = (&mut self.words[(id / 64) as usize], 1 << (id % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Marks nodes.
    pub(crate) fn add(&mut self, ids: impl IntoIterator<Item = u64>) {
        ids.into_iter().for_each(|id| self.words[(id / 64) as usize] |= 1 << (id % 64));
    }

    /// Words of 64 marks each.
    pub(crate) fn n_words(&self) -> usize {
        self.words.len()
    }

    /// Some words of marks, for other ranks.
    pub(crate) fn bytes(&self, words: Range<usize>) -> &[u8] {
        bytemuck::cast_slice(&self.words[words])
    }

    /// Adds another rank's words of marks from the word `first` on.
    pub(crate) fn add_bytes(&mut self, first: usize, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks();
        self.words[first..].iter_mut().zip(words).for_each(|(own, other)| *own |= u64::from_le_bytes(*other));
    }

    /// The nodes that are marked.
    pub(crate) fn to_nodes(&self) -> SomeNodes {
        let mut n_nodes = 0;
        let with_count = |bits: &u64| {
            let n_before = n_nodes;
            n_nodes += u64::from(bits.count_ones());
            (*bits, n_before)
        };
        let words = self.words.iter().map(with_count).collect();
        SomeNodes { words, n_nodes }
    }

    /// The nodes that are marked, or all nodes if nearly all are.
    fn to_set(&self) -> NodeSet {
        let nodes = self.to_nodes();
        match nodes.n_nodes > self.n_nodes / 8 * MOST_EIGHTHS {
            true => NodeSet::All(self.n_nodes),
            false => NodeSet::Some(nodes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_ids_are_inverse() {
        let n_nodes = 1000;
        let ids: Vec<u64> = (0..n_nodes).filter(|id| id * id % 7 == 2 || (320..420).contains(id)).collect();
        let mut marks = NodeMarks::new(n_nodes);
        marks.add(ids.iter().copied());
        let set = marks.to_set();
        assert_eq!(set.len(), ids.len() as u64);
        for first in [0, 1, 63, 64, 100, ids.len() - 1, ids.len()] {
            for end in first..=ids.len() {
                assert_eq!(set.ids(first as u64..end as u64), ids[first..end]);
            }
        }
        for (place, id) in ids.iter().enumerate() {
            assert_eq!((set.place(*id), set.id(place as u64)), (place as u64, *id));
        }
    }

    /// Node k has an edge from node k + 1.
    #[test]
    fn sets_grow_backwards_until_nearly_all_nodes_are_in() {
        let path = |n_nodes: u64, wanted: Range<u64>| {
            let mut n_asked = Vec::new();
            let sets = ReceptiveSets::find(n_nodes, wanted, 3, |set, marks| {
                n_asked.push(set.len());
                marks.add(set.ids(0..set.len()).iter().map(|id| (id + 1).min(n_nodes - 1)));
                Ok(())
            });
            (sets.unwrap().counts(), n_asked)
        };
        assert_eq!(path(80, 10..12), (vec![5, 4, 3, 2], vec![2, 3, 4]));
        assert_eq!(path(80, 0..69), (vec![80, 80, 70, 69], vec![69, 70]), "seven eighths are 70");
        assert_eq!(path(80, 0..80), (vec![80; 4], vec![]));
        assert_eq!(path(80, 0..0), (vec![0; 4], vec![0; 3]));
    }
}
