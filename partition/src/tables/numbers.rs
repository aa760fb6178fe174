//! Out-of-core mapping of numeric ids.
//!
//! All ids are sorted once, which makes node k the k-th smallest. Then edges are sorted by the id of one end and merged
//! with the sorted ids, which replaces that end by its node. A second pass does the same for the other end.

use crate::{
    PartitionError, Result,
    csr::{Budget, Digits, EdgeValue, Feeder, Key, ListsBuilder, Sorter},
    progress::Progress,
    tables::{
        edges::EdgeFiles,
        files::Trouble,
        scratch::{Cursor, Scratch, ScratchWriter},
        sinks::NumberSink,
    },
};

/// A node takes at most this many bits of a key.
const NODE_BITS: u32 = 40;

/// The ids that were seen, where they are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) n_edges: u64,
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Span {
    /// Reads all edges.
    pub(super) fn scan(edges: &EdgeFiles, progress: &dyn Progress) -> Result<Span> {
        let nothing = || Span { n_edges: 0, min: u64::MAX, max: 0 };
        let spans = edges.each_number("finding ids", progress, nothing)?;
        Ok(spans.into_iter().fold(nothing(), |all, one| Span {
            n_edges: all.n_edges + one.n_edges,
            min: all.min.min(one.min),
            max: all.max.max(one.max),
        }))
    }

    /// Takes one more id into account.
    pub(super) fn include(&mut self, id: u64) {
        self.min = self.min.min(id);
        self.max = self.max.max(id);
    }

    /// True if the ids fill their range well enough to be used as nodes directly.
    pub(super) fn is_dense(&self) -> bool {
        self.max < self.n_edges.saturating_mul(4).saturating_add(1000)
    }

    /// True if an id lies within the range of ids.
    pub(super) fn contains(&self, id: u64) -> bool {
        (self.min..=self.max).contains(&id)
    }

    /// Offset of an id from the smallest.
    fn above(&self, id: u64) -> Result<u64, Trouble> {
        match self.contains(id) {
            true => Ok(id - self.min),
            false => Err("the ids changed while they were read".into()),
        }
    }

    /// Bits of an id less the smallest.
    pub(super) fn bits(&self) -> u32 {
        u64::BITS - self.max.saturating_sub(self.min).leading_zeros()
    }
}

impl NumberSink for Span {
    #[inline]
    fn edge(&mut self, source: u64, destination: u64, _: EdgeValue) -> Result<(), Trouble> {
        self.n_edges += 1;
        self.include(source);
        self.include(destination);
        Ok(())
    }
}

/// The ids of all nodes as numbers, ascending: node k is the k-th.
#[derive(Debug)]
pub(super) struct NumberIds {
    span: Span,
    sorted: Scratch<u64>,
}

impl NumberIds {
    /// Sorts all ids that `feed` hands over, each as far as it lies above the smallest.
    pub(super) fn sort(
        span: Span,
        budget: &Budget,
        feed: impl FnOnce(&Sorter<'_, u64>) -> Result<()>,
    ) -> Result<NumberIds> {
        let sorter = Sorter::new(budget, Digits::new(0, span.bits()));
        feed(&sorter)?;
        let mut sorted = ScratchWriter::create(budget)?;
        let mut last = None;
        sorter.finish(&mut |keys: &[u64]| {
            for key in keys {
                if last.replace(*key) != Some(*key) {
                    sorted.push(span.min + key)?;
                }
            }
            Ok(())
        })?;
        Ok(NumberIds { span, sorted: sorted.finish()? })
    }

    /// Number of ids.
    pub(super) fn n_ids(&self) -> u64 {
        self.sorted.n_items()
    }

    /// The smallest and the largest.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// The ids of the nodes from `first` on.
    pub(super) fn read(&self, first: u64, ids: &mut [u64]) -> Result<()> {
        self.sorted.read(first, ids)
    }

    /// Feeds all edges to the lists: sorted by the id of one end, that end is replaced; then the same for the other.
    pub(super) fn feed_edges(
        &self,
        edges: &EdgeFiles,
        lists: &ListsBuilder<'_>,
        progress: &dyn Progress,
    ) -> Result<()> {
        match edges.are_weighted() || edges.have_rows() {
            true => self.feed_pairs::<[u128; 2]>(edges, lists, progress),
            false => self.feed_pairs::<u128>(edges, lists, progress),
        }
    }

    fn feed_pairs<P: Pair>(&self, edges: &EdgeFiles, lists: &ListsBuilder<'_>, progress: &dyn Progress) -> Result<()> {
        let budget = lists.budget();
        let bits = self.span.bits();
        let digits = |start| Digits::new(start, start + bits);
        let lost = || PartitionError::Option("the edges changed while they were read".into());

        let by_source: Sorter<'_, P> = Sorter::new(budget, digits(u64::BITS));
        let feed = || PairFeed { feeder: by_source.feeder(), span: self.span };
        let feeds = edges.each_number("reading edges", progress, feed)?;
        feeds.into_iter().try_for_each(|feed| feed.feeder.finish())?;

        let by_destination: Sorter<'_, P> = Sorter::new(budget, digits(NODE_BITS));
        let mut feeder = by_destination.feeder();
        let mut walk = Walk::new(self);
        by_source.finish(&mut |pairs: &[P]| {
            pairs.iter().try_for_each(|pair| {
                let source = walk.node_of((pair.ends() >> u64::BITS) as u64)?.ok_or_else(lost)?;
                let ends = (pair.ends() & u128::from(u64::MAX)) << NODE_BITS | u128::from(source);
                feeder.push(P::new(ends, pair.value()))
            })
        })?;
        feeder.finish()?;

        let mut feeder = lists.feeder();
        let mut walk = Walk::new(self);
        by_destination.finish(&mut |pairs: &[P]| {
            pairs.iter().try_for_each(|pair| {
                let destination = walk.node_of((pair.ends() >> NODE_BITS) as u64)?.ok_or_else(lost)?;
                let source = (pair.ends() & ((1 << NODE_BITS) - 1)) as u64;
                feeder.push_with(source, destination, pair.value())
            })
        })?;
        feeder.finish()
    }
}

/// Walks along sorted ids, together with keys that ascend as well.
pub(super) struct Walk<'a> {
    ids: Cursor<'a, u64>,
    min: u64,
    node: u64,
}

impl<'a> Walk<'a> {
    pub(super) fn new(ids: &'a NumberIds) -> Walk<'a> {
        Walk { ids: Cursor::new(&ids.sorted), min: ids.span.min, node: 0 }
    }

    /// The node whose id lies this far above the smallest.
    #[inline]
    pub(super) fn node_of(&mut self, place: u64) -> Result<Option<u64>> {
        loop {
            match self.ids.at(self.node)? {
                Some(id) if id - self.min < place => self.node += 1,
                Some(id) if id - self.min == place => return Ok(Some(self.node)),
                _ => return Ok(None),
            }
        }
    }
}

/// The two ends of an edge in one number, and its values.
trait Pair: Key {
    fn new(ends: u128, value: EdgeValue) -> Self;
    fn ends(self) -> u128;
    fn value(self) -> EdgeValue;
}

/// Edges without values.
impl Pair for u128 {
    #[inline]
    fn new(ends: u128, _: EdgeValue) -> u128 {
        ends
    }

    #[inline]
    fn ends(self) -> u128 {
        self
    }

    #[inline]
    fn value(self) -> EdgeValue {
        EdgeValue::PLAIN
    }
}

impl Pair for [u128; 2] {
    #[inline]
    fn new(ends: u128, value: EdgeValue) -> [u128; 2] {
        [ends, u128::from(value.row) << 32 | u128::from(value.weight.to_bits())]
    }

    #[inline]
    fn ends(self) -> u128 {
        self[0]
    }

    #[inline]
    fn value(self) -> EdgeValue {
        EdgeValue { weight: f32::from_bits(self[1] as u32), row: (self[1] >> 32) as u64 }
    }
}

struct PairFeed<'s, 'a, P> {
    feeder: Feeder<'s, 'a, P>,
    span: Span,
}

impl<P: Pair> NumberSink for PairFeed<'_, '_, P> {
    #[inline]
    fn edge(&mut self, source: u64, destination: u64, value: EdgeValue) -> Result<(), Trouble> {
        let (source, destination) = (self.span.above(source)?, self.span.above(destination)?);
        Ok(self.feeder.push(P::new(u128::from(source) << u64::BITS | u128::from(destination), value))?)
    }
}

/// Pushes both ends of every edge, for the sort of all ids.
pub(super) struct EndFeed<'s, 'a> {
    pub(super) feeder: Feeder<'s, 'a, u64>,
    pub(super) span: Span,
}

impl EndFeed<'_, '_> {
    /// Pushes one id.
    #[inline]
    pub(super) fn id(&mut self, id: u64) -> Result<(), Trouble> {
        Ok(self.feeder.push(self.span.above(id)?)?)
    }
}

impl NumberSink for EndFeed<'_, '_> {
    #[inline]
    fn edge(&mut self, source: u64, destination: u64, _: EdgeValue) -> Result<(), Trouble> {
        self.id(source)?;
        self.id(destination)
    }
}
