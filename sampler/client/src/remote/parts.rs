//! Shards of a question to one server, and how its nodes are divided among them.

use std::{collections::BTreeSet, ops::Range};

use bytes::{BufMut, Bytes, BytesMut};

/// Shards of the nodes of a question, in the order of the nodes.
#[derive(Clone, Copy, Debug)]
pub enum OfShards<'a> {
    /// All nodes are of one shard.
    One(u32),
    /// Shards, with the number of each one's nodes. For pairs: of pairs, by their destinations.
    Several(&'a [(u32, usize)]),
}

impl From<u32> for OfShards<'_> {
    fn from(shard: u32) -> Self {
        OfShards::One(shard)
    }
}

impl OfShards<'_> {
    /// Numbers of the shards.
    pub(crate) fn numbers(self) -> BTreeSet<u32> {
        match self {
            OfShards::One(shard) => BTreeSet::from([shard]),
            OfShards::Several(shards) => shards.iter().map(|(shard, _)| *shard).collect(),
        }
    }

    /// Shards of some of the nodes, each with its part of these.
    fn of(self, nodes: Range<usize>) -> Vec<(u32, Range<usize>)> {
        match self {
            OfShards::One(shard) => vec![(shard, nodes)],
            OfShards::Several(shards) => {
                let mut start = 0;
                let own = shards.iter().map(|(shard, n)| {
                    start += n;
                    (*shard, nodes.start.max(start - n)..nodes.end.min(start))
                });
                own.filter(|(_, own)| own.start < own.end).collect()
            }
        }
    }

    /// Nodes from the first one on that are of its shard.
    pub(crate) fn first_of(self, nodes: Range<usize>) -> Range<usize> {
        self.of(nodes.clone()).into_iter().next().map_or(nodes, |(_, own)| own)
    }

    /// Shards of some of the nodes, packed for a request. `count` is the number that the request has of some of them.
    pub(crate) fn pack(self, nodes: Range<usize>, count: impl Fn(Range<usize>) -> usize) -> Bytes {
        let mut packed = BytesMut::new();
        for (shard, own) in self.of(nodes) {
            packed.put_u32_le(shard);
            packed.put_u32_le(u32::try_from(count(own)).expect("requests have fewer nodes"));
        }
        packed.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_nodes_have_their_shards() {
        let several = OfShards::Several(&[(4, 3), (9, 1), (2, 5)]);
        assert_eq!(several.of(0..9), [(4, 0..3), (9, 3..4), (2, 4..9)]);
        assert_eq!(several.of(2..6), [(4, 2..3), (9, 3..4), (2, 4..6)]);
        assert_eq!(several.of(4..5), [(2, 4..5)]);
        assert_eq!([several.first_of(1..9), several.first_of(3..9), several.first_of(5..7)], [1..3, 3..4, 5..7]);
        assert_eq!(OfShards::One(3).of(7..9), [(3, 7..9)]);
        assert_eq!((several.numbers(), OfShards::One(3).numbers()), ([2, 4, 9].into(), [3].into()));
        assert_eq!(
            several.pack(2..6, |nodes| 10 * nodes.len())[..],
            [4, 0, 0, 0, 10, 0, 0, 0, 9, 0, 0, 0, 10, 0, 0, 0, 2, 0, 0, 0, 20, 0, 0, 0]
        );
    }
}
