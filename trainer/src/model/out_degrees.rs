//! Out-degrees of all nodes.

/// Out-degree of each node of a graph, self-loops included, by id.
#[derive(Clone, Debug)]
pub struct OutDegrees(Vec<u32>);

impl OutDegrees {
    /// No edge yet, not even loops.
    pub fn new(n_nodes: u64) -> OutDegrees {
        OutDegrees(vec![0; n_nodes as usize])
    }

    /// Counts edges by their sources; loops are edges.
    pub fn add(&mut self, sources: impl Iterator<Item = u64>) {
        sources.for_each(|source| self.0[source as usize] += 1);
    }

    /// The counts as bytes, for other ranks.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        bytemuck::cast_slice(&self.0).to_vec()
    }

    /// Adds the counts of another rank.
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        let (counts, _) = bytes.as_chunks::<4>();
        self.0.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u32::from_le_bytes(*count));
    }

    /// Those of some nodes, by place.
    pub(crate) fn of_nodes(&self, nodes: &[u64]) -> OutDegrees {
        OutDegrees(nodes.iter().map(|node| self.of(*node)).collect())
    }

    /// That of a node.
    pub fn of(&self, node: u64) -> u32 {
        self.0[node as usize]
    }
}
