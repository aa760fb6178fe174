//! Result of one hop.

use std::ops::Range;

/// The neighbors drawn for a frontier, in its order. Meant to be used again: filling it drops what was there.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// Number of neighbors drawn for each node of the frontier.
    pub counts: Vec<u32>,
    /// All of them behind one another.
    pub neighbors: DrawnIds,
    /// Data of the edge from each that the hop wants: the weight, then the features, edge by edge.
    pub edge_data: Vec<f32>,
    /// Id of the edge from each, if the hop wants it.
    pub edge_ids: Vec<u64>,
}

/// Ids as the store holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrawnIds {
    /// 32-bit ids.
    Narrow(Vec<u32>),
    /// 64-bit ids.
    Wide(Vec<u64>),
}

/// An id of either width.
pub trait Id: Copy + Default + Ord + Send + Sync + 'static {
    /// The id as a number of 64 bits.
    fn wide(self) -> u64;
    /// This many bits of a node's id; the id must fit.
    fn narrow(node: u64) -> Self;
    /// The ids of a hop in this width, empty.
    fn ids_of(drawn: &mut DrawnIds) -> &mut Vec<Self>;
    /// The ids of a hop, if they have this width.
    fn slice_of(drawn: &DrawnIds) -> Option<&[Self]>;
}

impl Id for u32 {
    #[inline(always)]
    fn wide(self) -> u64 {
        self.into()
    }

    #[inline(always)]
    fn narrow(node: u64) -> u32 {
        node as u32
    }

    fn ids_of(drawn: &mut DrawnIds) -> &mut Vec<u32> {
        match drawn {
            DrawnIds::Narrow(ids) => ids.clear(),
            DrawnIds::Wide(_) => *drawn = DrawnIds::Narrow(Vec::new()),
        }
        let DrawnIds::Narrow(ids) = drawn else { unreachable!("just made so") };
        ids
    }

    fn slice_of(drawn: &DrawnIds) -> Option<&[u32]> {
        if let DrawnIds::Narrow(ids) = drawn { Some(ids) } else { None }
    }
}

impl Id for u64 {
    #[inline(always)]
    fn wide(self) -> u64 {
        self
    }

    #[inline(always)]
    fn narrow(node: u64) -> u64 {
        node
    }

    fn ids_of(drawn: &mut DrawnIds) -> &mut Vec<u64> {
        match drawn {
            DrawnIds::Wide(ids) => ids.clear(),
            DrawnIds::Narrow(_) => *drawn = DrawnIds::Wide(Vec::new()),
        }
        let DrawnIds::Wide(ids) = drawn else { unreachable!("just made so") };
        ids
    }

    fn slice_of(drawn: &DrawnIds) -> Option<&[u64]> {
        if let DrawnIds::Wide(ids) = drawn { Some(ids) } else { None }
    }
}

impl Default for Drawn {
    fn default() -> Drawn {
        Drawn {
            counts: Vec::new(),
            neighbors: DrawnIds::Narrow(Vec::new()),
            edge_data: Vec::new(),
            edge_ids: Vec::new(),
        }
    }
}

impl Drawn {
    /// The lists of some nodes of another frontier, and their ids; what was there goes.
    pub fn copy_part(&mut self, of: &Drawn, lists: Range<usize>, ids: Range<usize>) {
        self.clear();
        self.append_part(of, lists, ids);
    }

    /// Adds the lists of some nodes of another frontier, and their ids.
    pub fn append_part(&mut self, of: &Drawn, lists: Range<usize>, ids: Range<usize>) {
        self.counts.extend_from_slice(&of.counts[lists]);
        self.edge_data.extend_from_slice(of.edge_data_of(ids.clone()));
        if !of.edge_ids.is_empty() {
            self.edge_ids.extend_from_slice(&of.edge_ids[ids.clone()]);
        }
        match (&mut self.neighbors, &of.neighbors) {
            (DrawnIds::Narrow(own), DrawnIds::Narrow(all)) => own.extend_from_slice(&all[ids]),
            (DrawnIds::Wide(own), DrawnIds::Wide(all)) => own.extend_from_slice(&all[ids]),
            (own, DrawnIds::Narrow(all)) if own.is_empty() => *own = DrawnIds::Narrow(all[ids].to_vec()),
            (own, DrawnIds::Wide(all)) if own.is_empty() => *own = DrawnIds::Wide(all[ids].to_vec()),
            (own, all) => *own = DrawnIds::Wide(own.iter().chain(all.iter_part(ids)).collect()),
        }
    }

    /// Adds the lists of another frontier.
    pub fn append(&mut self, of: Drawn) {
        if self.counts.is_empty() {
            *self = of;
        } else {
            self.append_part(&of, 0..of.counts.len(), 0..of.neighbors.len());
        }
    }

    /// Bytes of its memory.
    pub fn memory_bytes(&self) -> u64 {
        let neighbors = match &self.neighbors {
            DrawnIds::Narrow(ids) => 4 * ids.capacity(),
            DrawnIds::Wide(ids) => 8 * ids.capacity(),
        };
        (4 * (self.counts.capacity() + self.edge_data.capacity()) + 8 * self.edge_ids.capacity() + neighbors) as u64
    }

    /// Removes all lists; their memory is used again.
    pub fn clear(&mut self) {
        self.counts.clear();
        match &mut self.neighbors {
            DrawnIds::Narrow(ids) => ids.clear(),
            DrawnIds::Wide(ids) => ids.clear(),
        }
        self.edge_data.clear();
        self.edge_ids.clear();
    }
}

impl Drawn {
    /// Keeps the neighbors for which `keep(place, id)` is true, with the data of their edges. `place` is that of their node in the
    /// frontier.
    pub fn retain(&mut self, mut keep: impl FnMut(usize, u64) -> bool) {
        let width = self.edge_data_width();
        let Drawn { counts, neighbors, edge_data, edge_ids } = self;
        match neighbors {
            DrawnIds::Narrow(ids) => retain(counts, ids, (edge_data, width), edge_ids, &mut keep),
            DrawnIds::Wide(ids) => retain(counts, ids, (edge_data, width), edge_ids, &mut keep),
        }
    }
}

fn retain<I: Id>(
    counts: &mut [u32],
    ids: &mut Vec<I>,
    (edge_data, width): (&mut Vec<f32>, usize),
    edge_ids: &mut Vec<u64>,
    keep: &mut impl FnMut(usize, u64) -> bool,
) {
    let (mut n_read, mut n_kept) = (0, 0);
    for (place, count) in counts.iter_mut().enumerate() {
        let (first, end) = (n_kept, n_read + *count as usize);
        for at in n_read..end {
            if keep(place, ids[at].wide()) {
                ids[n_kept] = ids[at];
                edge_data.copy_within(at * width..(at + 1) * width, n_kept * width);
                if let Some(id) = edge_ids.get(at).copied() {
                    edge_ids[n_kept] = id;
                }
                n_kept += 1;
            }
        }
        n_read = end;
        *count = (n_kept - first) as u32;
    }
    ids.truncate(n_kept);
    edge_data.truncate(n_kept * width);
    edge_ids.truncate(n_kept);
}

impl Drawn {
    /// Numbers of one edge in `edge_data`.
    pub fn edge_data_width(&self) -> usize {
        self.edge_data.len() / self.neighbors.len().max(1)
    }

    /// Data of the edges from some neighbors; empty if there are none.
    pub fn edge_data_of(&self, ids: Range<usize>) -> &[f32] {
        let width = self.edge_data_width();
        &self.edge_data[ids.start * width..ids.end * width]
    }
}

impl DrawnIds {
    /// Number of ids.
    pub fn len(&self) -> usize {
        match self {
            DrawnIds::Narrow(ids) => ids.len(),
            DrawnIds::Wide(ids) => ids.len(),
        }
    }

    /// True if there are no ids.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All ids, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.iter_part(0..self.len())
    }

    /// Some of the ids, in order.
    pub fn iter_part(&self, part: Range<usize>) -> impl Iterator<Item = u64> + '_ {
        let (narrow, wide) = match self {
            DrawnIds::Narrow(ids) => (&ids[part], &[][..]),
            DrawnIds::Wide(ids) => (&[][..], &ids[part]),
        };
        narrow.iter().map(|id| u64::from(*id)).chain(wide.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_keeps_its_data() {
        for neighbors in [DrawnIds::Narrow(vec![5, 6, 7, 8]), DrawnIds::Wide(vec![5, 6, 7, 8])] {
            let edge_data = vec![0.5, 0.0, 0.6, 0.1, 0.7, 0.2, 0.8, 0.3];
            let mut drawn = Drawn { counts: vec![2, 0, 1, 1], neighbors, edge_data, edge_ids: vec![4, 5, 6, 7] };
            let mut seen = Vec::new();
            drawn.retain(|place, id| {
                seen.push((place, id));
                id != 5 && id != 8
            });
            assert_eq!(seen, [(0, 5), (0, 6), (2, 7), (3, 8)]);
            assert_eq!((drawn.counts, drawn.edge_data), (vec![1, 0, 1, 0], vec![0.6, 0.1, 0.7, 0.2]));
            assert_eq!(drawn.edge_ids, [5, 6]);
            assert_eq!(drawn.neighbors.iter().collect::<Vec<_>>(), [6, 7]);
        }
    }
}
