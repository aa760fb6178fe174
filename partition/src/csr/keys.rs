//! Edges packed into keys, so that sorting keys sorts neighbor lists.

use kith_store::Item;

use crate::csr::radix::Key;

/// The widest graph: names of draws leave 48 bits to a node, keys of a sort 40.
pub(crate) const MAX_NODES: u64 = 1 << 40;

/// Values of an edge beside its ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EdgeValue {
    /// Its weight.
    pub weight: f32,
    /// Its row in the tables of edge features: its place among all edges in the order of the tables.
    pub row: u64,
}

impl EdgeValue {
    /// Of an edge without a weight or features.
    pub(crate) const PLAIN: EdgeValue = EdgeValue { weight: 1.0, row: 0 };
}

/// A key that can be taken apart into the two ends of an edge.
pub(super) trait EdgeKey: Key {
    /// True if keys have weights.
    const IS_WEIGHTED: bool = false;
    /// True if keys have rows of features.
    const HAS_ROWS: bool = false;
    fn destination(self, id_bits: u32) -> u64;
    fn source(self, id_bits: u32) -> u64;

    fn weight(self) -> f32 {
        1.0
    }

    fn with_weight(self, _: f32) -> Self {
        self
    }

    fn row(self) -> u64 {
        0
    }
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

/// An edge with its weight: parallel edges are sorted by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(super) struct WeightedEdge(u128);

impl WeightedEdge {
    /// Bits of the weight, which are the lowest: those of numbers that are not negative ascend with them.
    pub(super) const WEIGHT_BITS: u32 = 32;

    #[inline]
    pub(super) fn new(source: u64, destination: u64, weight: f32, id_bits: u32) -> WeightedEdge {
        let ends = u128::from(destination) << id_bits | u128::from(source);
        // 0.0 and -0.0 are one weight.
        WeightedEdge(ends << Self::WEIGHT_BITS | u128::from((weight + 0.0).to_bits()))
    }
}

impl Key for WeightedEdge {
    #[inline]
    fn bits(self, shift: u32) -> usize {
        self.0.bits(shift)
    }

    #[inline]
    fn compare(self, other: WeightedEdge, start: u32) -> std::cmp::Ordering {
        self.0.compare(other.0, start)
    }
}

impl EdgeKey for WeightedEdge {
    const IS_WEIGHTED: bool = true;

    #[inline]
    fn destination(self, id_bits: u32) -> u64 {
        EdgeKey::destination(self.0 >> Self::WEIGHT_BITS, id_bits)
    }

    #[inline]
    fn source(self, id_bits: u32) -> u64 {
        EdgeKey::source(self.0 >> Self::WEIGHT_BITS, id_bits)
    }

    #[inline]
    fn weight(self) -> f32 {
        f32::from_bits(self.0 as u32)
    }

    #[inline]
    fn with_weight(self, weight: f32) -> WeightedEdge {
        WeightedEdge(self.0 >> Self::WEIGHT_BITS << Self::WEIGHT_BITS | u128::from(weight.to_bits()))
    }
}

/// An edge with its row of features, by which parallel edges are sorted, and its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub(super) struct RowEdge([u128; 2]);

impl RowEdge {
    /// Bits of the row, which are the lowest.
    pub(super) const ROW_BITS: u32 = 48;

    #[inline]
    pub(super) fn new(source: u64, destination: u64, value: EdgeValue, id_bits: u32) -> RowEdge {
        let ends = u128::from(destination) << id_bits | u128::from(source);
        RowEdge([ends << Self::ROW_BITS | u128::from(value.row), (value.weight + 0.0).to_bits().into()])
    }
}

impl Key for RowEdge {
    #[inline]
    fn bits(self, shift: u32) -> usize {
        self.0.bits(shift)
    }

    #[inline]
    fn compare(self, other: RowEdge, start: u32) -> std::cmp::Ordering {
        self.0.compare(other.0, start)
    }
}

impl EdgeKey for RowEdge {
    const IS_WEIGHTED: bool = true;
    const HAS_ROWS: bool = true;

    #[inline]
    fn destination(self, id_bits: u32) -> u64 {
        EdgeKey::destination(self.0[0] >> Self::ROW_BITS, id_bits)
    }

    #[inline]
    fn source(self, id_bits: u32) -> u64 {
        EdgeKey::source(self.0[0] >> Self::ROW_BITS, id_bits)
    }

    #[inline]
    fn weight(self) -> f32 {
        f32::from_bits(self.0[1] as u32)
    }

    #[inline]
    fn row(self) -> u64 {
        self.0[0] as u64 & ((1 << Self::ROW_BITS) - 1)
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
    fn to_id(self) -> u64;
}

impl IdItem for u32 {
    #[inline]
    fn from_id(id: u64) -> u32 {
        id as u32
    }

    #[inline]
    fn to_id(self) -> u64 {
        self.into()
    }
}

impl IdItem for u64 {
    #[inline]
    fn from_id(id: u64) -> u64 {
        id
    }

    #[inline]
    fn to_id(self) -> u64 {
        self
    }
}
