//! Edges packed into keys, so that sorting keys sorts neighbor lists.

use kith_store::Item;

use crate::csr::radix::Key;

/// The widest graph: names of draws leave 48 bits to a node, keys of a sort 40.
pub(crate) const MAX_NODES: u64 = 1 << 40;

/// A key that can be taken apart into the two ends of an edge.
pub(super) trait EdgeKey: Key {
    fn destination(self, id_bits: u32) -> u64;
    fn source(self, id_bits: u32) -> u64;
}

impl EdgeKey for u64 {
    #[inline]
    fn destination(self, id_bits: u32) -> u64 {
        self >> id_bits
    }

    #[inline]
    fn source(self, id_bits: u32) -> u64 {
        self & ((1 << id_bits) - 1)
    }
}

impl EdgeKey for u128 {
    #[inline]
    fn destination(self, id_bits: u32) -> u64 {
        (self >> id_bits) as u64
    }

    #[inline]
    fn source(self, id_bits: u32) -> u64 {
        (self & ((1 << id_bits) - 1)) as u64
    }
}

/// An edge on its way to the lists by source: source, destination, and its place in the lists by destination. Fed in the
/// order of places, so sorting by source alone leaves each list in order.
pub(super) trait OutEdge: Key {
    const SOURCE_START: u32;
    fn new(source: u64, destination: u64, place: u64) -> Self;
    fn source(self) -> u64;
    fn destination(self) -> u64;
    fn place(self) -> u64;
}

impl OutEdge for [u32; 3] {
    const SOURCE_START: u32 = 0;

    #[inline]
    fn new(source: u64, destination: u64, place: u64) -> [u32; 3] {
        [source as u32, destination as u32, place as u32]
    }

    #[inline]
    fn source(self) -> u64 {
        self[0].into()
    }

    #[inline]
    fn destination(self) -> u64 {
        self[1].into()
    }

    #[inline]
    fn place(self) -> u64 {
        self[2].into()
    }
}

/// 40 bits for each end, 48 for the place.
impl OutEdge for u128 {
    const SOURCE_START: u32 = 88;

    #[inline]
    fn new(source: u64, destination: u64, place: u64) -> u128 {
        u128::from(source) << 88 | u128::from(destination) << 48 | u128::from(place)
    }

    #[inline]
    fn source(self) -> u64 {
        (self >> 88) as u64
    }

    #[inline]
    fn destination(self) -> u64 {
        (self >> 48) as u64 & (MAX_NODES - 1)
    }

    #[inline]
    fn place(self) -> u64 {
        self as u64 & ((1 << 48) - 1)
    }
}

/// An id or a place as a column holds it.
pub(super) trait IdItem: Item {
    fn from_id(id: u64) -> Self;
}

impl IdItem for u32 {
    #[inline]
    fn from_id(id: u64) -> u32 {
        id as u32
    }
}

impl IdItem for u64 {
    #[inline]
    fn from_id(id: u64) -> u64 {
        id
    }
}
