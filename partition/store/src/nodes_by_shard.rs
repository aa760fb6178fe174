//! Groups nodes by owner in one pass over the owners, for any number of shards.

use std::ops::Range;

/// The nodes of every shard, ascending.
#[derive(Debug)]
pub(crate) struct NodesByShard {
    nodes: Ids,
    /// Start of each shard's nodes, followed by the end of the last.
    starts: Vec<usize>,
}

/// Four bytes are enough for the nodes of most graphs.
#[derive(Debug)]
enum Ids {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl NodesByShard {
    /// Counts, then puts each node in its place. Owners must be below `n_shards`.
    pub(crate) fn new(owner: &[u16], n_shards: u32) -> NodesByShard {
        let mut starts = vec![0; n_shards as usize + 1];
        owner.iter().for_each(|owner| starts[usize::from(*owner) + 1] += 1);
        for shard in 0..n_shards as usize {
            starts[shard + 1] += starts[shard];
        }
        let nodes = match u32::try_from(owner.len()) {
            Ok(_) => Ids::Narrow(place(owner, &starts, |node| node as u32)),
            Err(_) => Ids::Wide(place(owner, &starts, |node| node as u64)),
        };
        NodesByShard { nodes, starts }
    }

    /// Number of nodes of a shard.
    pub(crate) fn n_nodes(&self, shard: u32) -> u64 {
        (self.starts[shard as usize + 1] - self.starts[shard as usize]) as u64
    }

    /// The nodes of a shard, ascending.
    pub(crate) fn of(&self, shard: u32) -> impl Iterator<Item = u64> + '_ {
        let places: Range<usize> = self.starts[shard as usize]..self.starts[shard as usize + 1];
        let (narrow, wide) = match &self.nodes {
            Ids::Narrow(nodes) => (&nodes[places], &[][..]),
            Ids::Wide(nodes) => (&[][..], &nodes[places]),
        };
        narrow.iter().map(|node| u64::from(*node)).chain(wide.iter().copied())
    }
}

fn place<T: Copy + Default>(owner: &[u16], starts: &[usize], id: impl Fn(usize) -> T) -> Vec<T> {
    let mut next = starts.to_vec();
    let mut nodes = vec![T::default(); owner.len()];
    for (node, owner) in owner.iter().enumerate() {
        let next = &mut next[usize::from(*owner)];
        nodes[*next] = id(node);
        *next += 1;
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_stands_once_with_its_shard() {
        let owner: Vec<u16> = (0..1000u32).map(|node| (node * node % 13 % 5) as u16).collect();
        let by_shard = NodesByShard::new(&owner, 7);
        let mut n_nodes = 0;
        for shard in 0..7 {
            let expected: Vec<u64> = (0..1000).filter(|node| u32::from(owner[*node as usize]) == shard).collect();
            assert_eq!(by_shard.of(shard).collect::<Vec<_>>(), expected, "{shard}");
            assert_eq!(by_shard.n_nodes(shard), expected.len() as u64);
            n_nodes += expected.len();
        }
        assert_eq!(n_nodes, 1000);
        let wide = NodesByShard { nodes: Ids::Wide(vec![5, 1 << 40, 2]), starts: vec![0, 2, 2, 3] };
        assert_eq!([0, 1, 2].map(|shard| wide.of(shard).collect::<Vec<_>>()), [vec![5, 1 << 40], vec![], vec![2]]);
        assert_eq!(NodesByShard::new(&[], 2).of(1).count(), 0);
    }
}
