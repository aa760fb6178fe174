//! Shards of a request, and how its nodes are divided among them.

use bytes::Bytes;
use tonic::Status;

/// Shards of the nodes of a request, ascending, with the number of each one's nodes. Kept packed as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardParts {
    packed: Bytes,
    /// Nodes of the first shard that were used.
    n_used: usize,
}

/// Bytes of a shard and its number of nodes.
const PART_BYTES: usize = 8;

impl ShardParts {
    /// Shards of `n_nodes` nodes. They ascend, each has a node, and the numbers of nodes add up.
    pub(crate) fn new(packed: Bytes, n_nodes: usize) -> Result<ShardParts, Status> {
        if !packed.len().is_multiple_of(PART_BYTES) {
            let problem = format!("parts: expected a multiple of {PART_BYTES} bytes, found {}", packed.len());
            return Err(Status::invalid_argument(problem));
        }
        let (mut n_all, mut previous) = (0, None);
        for part in packed.as_chunks::<PART_BYTES>().0 {
            let (shard, n) = unpack(part);
            if let Some(previous) = previous.replace(shard).filter(|previous| *previous >= shard) {
                let problem = format!("parts: shard {shard} follows shard {previous}, but shards ascend");
                return Err(Status::invalid_argument(problem));
            }
            if n == 0 {
                return Err(Status::invalid_argument(format!("parts: shard {shard} has no nodes")));
            }
            n_all += n as u64;
        }
        if n_all != n_nodes as u64 {
            let problem = format!("parts: the shards have {n_all} nodes, and the request has {n_nodes}");
            return Err(Status::invalid_argument(problem));
        }
        Ok(ShardParts { packed, n_used: 0 })
    }

    /// Shard of the next node, and the number of nodes from there on that it has; `None` if all nodes were used.
    pub(crate) fn next(&self) -> Option<(u32, usize)> {
        let (shard, n) = unpack(self.packed.first_chunk()?);
        Some((shard, n as usize - self.n_used))
    }

    /// Marks nodes as used: at most those of the next shard.
    pub(crate) fn advance(&mut self, n_nodes: usize) {
        let n_left = self.next().map_or(0, |(_, n)| n);
        assert!(n_nodes <= n_left, "nodes of one shard are used at a time");
        if n_nodes < n_left {
            self.n_used += n_nodes;
        } else if n_left > 0 {
            let _ = self.packed.split_to(PART_BYTES);
            self.n_used = 0;
        }
    }
}

fn unpack(part: &[u8; PART_BYTES]) -> (u32, u32) {
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    (number(&part[..4]), number(&part[4..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(parts: &[(u32, u32)]) -> Bytes {
        parts.iter().flat_map(|(shard, n)| [shard.to_le_bytes(), n.to_le_bytes()]).flatten().collect()
    }

    #[test]
    fn nodes_are_used_shard_by_shard() {
        let mut parts = ShardParts::new(packed(&[(2, 3), (7, 1), (9, 2)]), 6).unwrap();
        let mut used = Vec::new();
        while let Some((shard, n)) = parts.next() {
            let n = n.min(2);
            parts.advance(n);
            used.push((shard, n));
        }
        assert_eq!(used, [(2, 2), (2, 1), (7, 1), (9, 2)]);
        parts.advance(0);
    }

    #[test]
    fn parts_that_make_no_sense_are_refused() {
        let refused = |packed: Bytes, n_nodes| ShardParts::new(packed, n_nodes).unwrap_err().message().to_owned();
        assert_eq!(refused(Bytes::from_static(&[0; 12]), 0), "parts: expected a multiple of 8 bytes, found 12");
        assert_eq!(refused(packed(&[(1, 2), (3, 0)]), 2), "parts: shard 3 has no nodes");
        assert_eq!(refused(packed(&[(1, 2)]), 3), "parts: the shards have 2 nodes, and the request has 3");
        let descending = |second| refused(packed(&[(3, 1), (second, 1)]), 2);
        assert_eq!(descending(2), "parts: shard 2 follows shard 3, but shards ascend");
        assert_eq!(descending(3), "parts: shard 3 follows shard 3, but shards ascend");
        let most = packed(&[(1, u32::MAX), (2, u32::MAX)]);
        assert_eq!(refused(most, 3), "parts: the shards have 8589934590 nodes, and the request has 3");
        assert_eq!(refused(Bytes::new(), 1), "parts: the shards have 0 nodes, and the request has 1");
        assert!(ShardParts::new(Bytes::new(), 0).unwrap().next().is_none());
    }
}
