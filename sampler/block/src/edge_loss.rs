//! Pairs of nodes for the edge loss of a layer: edges, and negative samples.
//!
//! Positives are all edges of the block, self-loops included; negatives are floor(p_n · positives) pairs. Pair q is
//! edge q, or negative q − n_edges. The k-th negative is (source u, destination v) with u uniform over the block's
//! sources and v uniform over its **destinations**. It is drawn again (attempts 1 to 15, then left out and counted)
//! while u = v or u→v is an edge *of the whole graph*, not just of the block; optionally also while v→u is. Of all
//! pairs, floor(p_e · pairs) are kept, and the loss of a layer is the mean over those.
//!
//! Names of the draws: (seed, step, layer; a = slice, b = index, attempt). A full batch is slice 0.

use kith_draw::{Name, Purpose, Stream, Vectorized, vectorized};
use rayon::prelude::*;

use crate::{block::Block, pair_subset::PairSubset};

/// Negatives that are drawn side by side.
const N_LANES: usize = 16;

/// Negatives that are drawn and looked up as one piece of work.
const N_PART: usize = 8192;

/// Draws for one negative before it is left out.
const MAX_ATTEMPTS: u16 = 16;

/// Numbers of pairs, and rules for drawing and keeping them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairConfig {
    /// Negatives per positive: p_n.
    pub negatives: f64,
    /// Share of the pairs that is kept: p_e.
    pub kept: f64,
    /// Pairs that the kept share is taken of.
    pub subset: Subset,
    /// True if the reverse of an edge is not drawn as a negative either.
    pub excludes_reverse: bool,
}

/// Pairs that the kept share is taken of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Subset {
    /// The union of positives and negatives.
    #[default]
    Union,
    /// Positives and negatives each, before negatives are drawn: cheaper, with the same mean.
    Each,
}

/// Numbers of pairs of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairCounts {
    /// Negatives to draw; of a union only some of them are kept.
    pub n_negatives: usize,
    /// Pairs that a share is taken of, edges first: all of them, or edges alone.
    pub n_in_subset: usize,
    /// Pairs of those that are kept.
    pub n_kept: usize,
    /// True if the share is taken of negatives too.
    pub is_union: bool,
    /// Pairs of the loss, if none has to be left out.
    pub n_pairs: usize,
}

impl PairCounts {
    /// Numbers for a block with these edges, sources and destinations.
    pub fn of(config: PairConfig, n_edges: usize, n_sources: usize, n_destinations: usize) -> PairCounts {
        let n_candidates = n_sources as u64 * n_destinations as u64;
        let most = usize::try_from(n_candidates).unwrap_or(usize::MAX).saturating_sub(n_edges);
        let share = |share: f64, n: usize| (share * n as f64) as usize;
        let is_union = config.subset == Subset::Union;
        let n_negatives = share(if is_union { config.negatives } else { config.negatives * config.kept }, n_edges);
        let n_negatives = n_negatives.min(most);
        let n_in_subset = if is_union { n_edges + n_negatives } else { n_edges };
        let n_kept = share(config.kept, n_in_subset).min(n_in_subset);
        let n_pairs = if is_union { n_kept } else { n_kept + n_negatives };
        PairCounts { n_negatives, n_in_subset, n_kept, is_union, n_pairs }
    }
}

/// Names the pairs of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairsName {
    /// Names all randomness of the run.
    pub run_key: u64,
    /// Weight updates so far.
    pub step: u64,
    /// Layer of the model; 0 reads the input rows.
    pub layer: u32,
    /// Slice of the step.
    pub slice: u64,
}

/// The pairs of one layer in one step.
#[derive(Debug)]
pub struct Pairs {
    positives: Option<PairSubset>,
    negatives: Negatives,
    n_pairs: usize,
}

/// Pairs without an edge, in positions; all of them are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Negatives {
    /// Source of each pair.
    pub sources: Vec<u32>,
    /// Destination of each pair.
    pub destinations: Vec<u32>,
    /// Pairs that met an edge in every attempt.
    pub n_left_out: usize,
}

impl Pairs {
    /// The pairs that a run draws for a layer in a step, in one slice. `is_edge(source, destination)` knows the whole
    /// graph.
    pub fn draw(
        run_key: u64,
        step: u64,
        layer: u32,
        block: &Block,
        config: PairConfig,
        is_edge: impl Fn(u32, u32) -> bool + Sync,
    ) -> Pairs {
        let name = PairsName { run_key, step, layer, slice: 0 };
        let has_edge = |(source, destination): (u32, u32)| {
            is_edge(source, destination) || config.excludes_reverse && is_edge(destination, source)
        };
        let look_up = |pairs: &[(u32, u32)], found: &mut [bool]| {
            let look_up = |(pairs, found): (&[(u32, u32)], &mut [bool])| {
                pairs.iter().zip(found).for_each(|(pair, found)| *found = has_edge(*pair));
            };
            pairs.par_chunks(N_PART).zip(found.par_chunks_mut(N_PART)).for_each(look_up);
            Ok::<_, std::convert::Infallible>(())
        };
        Pairs::draw_with(name, block, config, look_up).unwrap_or_else(|never| match never {})
    }

    /// The same with lookups in bulk: `look_up` says for each pair (source, destination) whether the whole graph has
    /// that edge, in either direction if the config excludes reverses. It is asked once per attempt.
    fn draw_with<E>(
        name: PairsName,
        block: &Block,
        config: PairConfig,
        mut look_up: impl FnMut(&[(u32, u32)], &mut [bool]) -> Result<(), E>,
    ) -> Result<Pairs, E> {
        let mut draw = PairsDraw::new(name, block, config);
        let mut is_edge = Vec::new();
        while let Some(pairs) = draw.attempt() {
            is_edge.resize(pairs.len(), false);
            look_up(pairs, &mut is_edge)?;
            draw.refuse(&is_edge);
        }
        Ok(draw.finish())
    }

    /// All edges and the given negatives.
    pub fn all(block: &Block, negatives: Negatives) -> Pairs {
        Pairs { positives: None, n_pairs: block.n_edges() + negatives.len(), negatives }
    }

    /// True if an edge is kept.
    #[inline]
    pub fn keeps(&self, edge: usize) -> bool {
        self.positives.as_ref().is_none_or(|subset| subset.holds(edge))
    }

    /// Kept edges among 16, the first in the lowest bit; bits beyond the last edge are undefined.
    #[inline]
    pub fn kept_of_16(&self, first_edge: usize) -> u32 {
        self.positives.as_ref().map_or(0xffff, |subset| subset.holds_of_16(first_edge))
    }

    /// Bitmap of kept edges; empty if all are kept.
    pub fn kept_words(&self) -> impl Iterator<Item = u64> + '_ {
        self.positives.iter().flat_map(PairSubset::words)
    }

    /// The negatives.
    pub fn negatives(&self) -> &Negatives {
        &self.negatives
    }

    /// Pairs that the loss is the mean of.
    pub fn n_pairs(&self) -> usize {
        self.n_pairs
    }
}

impl Negatives {
    /// Pairs drawn.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// True if there are no negatives.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }
}

/// Draws the pairs of one layer, attempt by attempt, so that those of several layers can be looked up together:
/// [`attempt`](PairsDraw::attempt) and [`refuse`](PairsDraw::refuse) in turn, then [`finish`](PairsDraw::finish).
#[derive(Debug)]
pub struct PairsDraw {
    stream: Stream,
    slice: u64,
    /// Sources and destinations of the block.
    sizes: (u64, u64),
    n_edges: usize,
    n_kept: usize,
    is_union: bool,
    subset: PairSubset,
    attempt: u16,
    /// Numbers of the negatives that are still to be drawn, and their places among all pairs.
    waiting: Vec<u64>,
    places: Vec<usize>,
    /// The last attempt at each of them.
    drawn: Vec<(u32, u32)>,
    pairs: Vec<(u32, u32)>,
}

impl PairsDraw {
    /// For a layer with this block. Negatives are uniform over its sources and destinations, and are drawn again while they are
    /// refused. Names (slice, index, attempt).
    pub fn new(name: PairsName, block: &Block, config: PairConfig) -> PairsDraw {
        let PairsName { run_key, step, layer, slice } = name;
        let name = |purpose| Name { run_key, purpose, step, layer }.stream();
        let n_edges = block.n_edges();
        let PairCounts { n_negatives: n, n_in_subset, n_kept, is_union, .. } =
            PairCounts::of(config, n_edges, block.n_sources(), block.n_destinations());
        let subset = PairSubset::draw(name(Purpose::PairSubset), slice, n_in_subset, n_kept);
        let is_kept = |index: usize| !is_union || subset.holds(n_edges + index);
        let parts = (0..n.div_ceil(N_PART)).into_par_iter().map(|part| {
            let all = part * N_PART..((part + 1) * N_PART).min(n);
            all.filter(|index| is_kept(*index)).map(|index| index as u64).collect::<Vec<u64>>()
        });
        let waiting = parts.collect::<Vec<_>>().concat();
        PairsDraw {
            stream: name(Purpose::Negative),
            slice,
            sizes: (block.n_sources() as u64, block.n_destinations() as u64),
            n_edges,
            n_kept,
            is_union,
            attempt: 0,
            places: (0..waiting.len()).collect(),
            drawn: Vec::new(),
            pairs: vec![(0, 0); waiting.len()],
            waiting,
            subset,
        }
    }

    /// The pairs of the next attempt; `None` if no negative waits for one.
    pub fn attempt(&mut self) -> Option<&[(u32, u32)]> {
        if self.waiting.is_empty() || self.attempt == MAX_ATTEMPTS {
            return None;
        }
        let PairsDraw { stream, slice, sizes, attempt, .. } = *self;
        self.drawn.resize(self.waiting.len(), (0, 0));
        self.waiting.par_chunks(N_PART).zip(self.drawn.par_chunks_mut(N_PART)).for_each(|(indices, pairs)| {
            vectorized(Attempts { stream, slice, attempt, sizes, indices, pairs });
        });
        Some(&self.drawn)
    }

    /// Takes the pairs of the last attempt, but for those that are edges and those of one node: they wait for another attempt.
    pub fn refuse(&mut self, is_edge: &[bool]) {
        assert_eq!(is_edge.len(), self.drawn.len(), "every pair of the attempt was looked up");
        let mut n_waiting = 0;
        for (k, (pair, is_edge)) in self.drawn.iter().zip(is_edge).enumerate() {
            self.pairs[self.places[k]] = *pair;
            if *is_edge || pair.0 == pair.1 {
                (self.waiting[n_waiting], self.places[n_waiting]) = (self.waiting[k], self.places[k]);
                n_waiting += 1;
            }
        }
        self.waiting.truncate(n_waiting);
        self.places.truncate(n_waiting);
        self.attempt += 1;
    }

    /// The pairs. Negatives that met an edge in every attempt are left out.
    pub fn finish(self) -> Pairs {
        let PairsDraw { n_edges, n_kept, is_union, subset, places, pairs, .. } = self;
        let mut left_out = places.iter().copied().peekable();
        let mut negatives = Negatives { n_left_out: places.len(), ..Negatives::default() };
        negatives.sources.reserve_exact(pairs.len() - places.len());
        negatives.destinations.reserve_exact(pairs.len() - places.len());
        for (place, (source, destination)) in pairs.into_iter().enumerate() {
            if left_out.next_if_eq(&place).is_none() {
                negatives.sources.push(source);
                negatives.destinations.push(destination);
            }
        }
        let n_kept_negatives = if is_union { negatives.len() + negatives.n_left_out } else { 0 };
        let n_positives = n_kept - n_kept_negatives;
        let n_pairs = n_positives + negatives.len();
        Pairs { positives: (n_positives < n_edges).then_some(subset), negatives, n_pairs }
    }
}

/// One attempt at a negative.
fn draw_pair(
    stream: Stream,
    slice: u64,
    index: u64,
    attempt: u16,
    (n_sources, n_destinations): (u64, u64),
) -> (u32, u32) {
    let mut draws = stream.draws(slice, index, attempt);
    let source = draws.below(n_sources) as u32;
    (source, draws.below(n_destinations) as u32)
}

/// One attempt at each of many negatives.
struct Attempts<'a> {
    stream: Stream,
    slice: u64,
    attempt: u16,
    sizes: (u64, u64),
    indices: &'a [u64],
    pairs: &'a mut [(u32, u32)],
}

impl Vectorized for Attempts<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (n_sources, n_destinations) = self.sizes;
        for (indices, pairs) in self.indices.chunks(N_LANES).zip(self.pairs.chunks_mut(N_LANES)) {
            let mut names = [0; N_LANES];
            names[..indices.len()].copy_from_slice(indices);
            let words = self.stream.words_of([self.slice; N_LANES], names, self.attempt, 0);
            for (k, (index, pair)) in indices.iter().zip(pairs).enumerate() {
                let source = u64::from(words[0][k]) * n_sources;
                let destination = u64::from(words[1][k]) * n_destinations;
                // The few words that a bounded draw may have to skip are left to it.
                let is_plain = source as u32 >= n_sources as u32 && destination as u32 >= n_destinations as u32;
                *pair = match is_plain {
                    true => ((source >> 32) as u32, (destination >> 32) as u32),
                    false => draw_pair(self.stream, self.slice, *index, self.attempt, self.sizes),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::BlockError;

    fn ring(n: u64) -> Block {
        let of = |node| Ok::<_, BlockError>([(node + n - 1) % n].into_iter());
        Block::full(n, n, of).unwrap()
    }

    const CONFIG: PairConfig = PairConfig { negatives: 0.5, kept: 0.8, subset: Subset::Union, excludes_reverse: false };

    fn draw(block: &Block, step: u64, config: PairConfig) -> Pairs {
        Pairs::draw(42, step, 0, block, config, |source, destination| block.has_edge(source, destination))
    }

    #[test]
    fn counts_are_exact() {
        let block = ring(1000); // 2000 edges with loops, 1000 negatives
        for step in 0..20 {
            assert_eq!(draw(&block, step, CONFIG).n_pairs(), 2400);
            let each = draw(&block, step, PairConfig { subset: Subset::Each, ..CONFIG });
            assert_eq!((each.n_pairs(), each.negatives().len()), (2400, 800));
            let all = draw(&block, step, PairConfig { kept: 1.0, ..CONFIG });
            assert_eq!((all.n_pairs(), all.negatives().len()), (3000, 1000));
        }
    }

    #[test]
    fn many_attempts_at_once_are_the_attempts_of_each() {
        let stream = Name { run_key: 8, purpose: Purpose::Negative, step: 2, layer: 1 }.stream();
        let indices: Vec<u64> = (0..5000).filter(|index| index % 3 != 1).collect();
        // The larger the numbers, the more words are skipped.
        for sizes in [(10, 7), (1 << 31, 3 << 30), (u64::from(u32::MAX), 5)] {
            for attempt in [0, 3] {
                let mut pairs = vec![(0, 0); indices.len()];
                vectorized(Attempts { stream, slice: 0, attempt, sizes, indices: &indices, pairs: &mut pairs });
                for (index, pair) in indices.iter().zip(&pairs) {
                    assert_eq!(*pair, draw_pair(stream, 0, *index, attempt, sizes));
                }
            }
        }
    }

    #[test]
    fn no_negative_is_an_edge_or_the_reverse_where_asked() {
        let block = ring(7);
        let mut n_reverse = 0;
        for step in 0..200 {
            for excludes_reverse in [false, true] {
                let pairs = draw(&block, step, PairConfig { kept: 1.0, negatives: 2.0, excludes_reverse, ..CONFIG });
                let negatives = pairs.negatives();
                for (source, destination) in negatives.sources.iter().zip(&negatives.destinations) {
                    assert!(!block.has_edge(*source, *destination));
                    let is_reverse = block.has_edge(*destination, *source);
                    assert!(!(excludes_reverse && is_reverse));
                    n_reverse += usize::from(is_reverse);
                }
            }
        }
        assert!(n_reverse > 0, "without the option some reverses come out");
    }

    #[test]
    fn every_pair_without_an_edge_is_as_likely() {
        let block = ring(4); // 8 of 16 pairs have no edge
        let mut count = [[0f64; 4]; 4];
        for step in 0..20_000 {
            let pairs = draw(&block, step, PairConfig { kept: 1.0, ..CONFIG });
            for (source, destination) in pairs.negatives.sources.iter().zip(&pairs.negatives.destinations) {
                count[*source as usize][*destination as usize] += 1.0;
            }
        }
        for (source, row) in count.iter().enumerate() {
            for (destination, count) in row.iter().enumerate() {
                let expected = if block.has_edge(source as u32, destination as u32) { 0.0 } else { 10_000.0 };
                assert!((count - expected).abs() < 500.0, "{source} → {destination}: {count}");
            }
        }
    }

    /// Golden: a negative is the first of its attempts that is no edge, one after the other.
    #[test]
    fn refused_pairs_are_drawn_again_by_their_own_attempts() {
        let block = ring(5);
        let config = PairConfig { kept: 1.0, negatives: 1.5, ..CONFIG };
        for step in 0..100 {
            let negatives = draw(&block, step, config).negatives;
            let stream = Name { run_key: 42, purpose: Purpose::Negative, step, layer: 0 }.stream();
            let mut expected = Negatives::default();
            for index in 0..15 {
                let is_free = |(source, destination): &(u32, u32)| !block.has_edge(*source, *destination);
                let mut attempts = (0..MAX_ATTEMPTS).map(|attempt| draw_pair(stream, 0, index, attempt, (5, 5)));
                match attempts.find(is_free) {
                    Some((source, destination)) => {
                        expected.sources.push(source);
                        expected.destinations.push(destination);
                    }
                    None => expected.n_left_out += 1,
                }
            }
            assert_eq!(negatives, expected);
        }
    }

    #[test]
    fn slices_have_their_own() {
        let block = ring(100);
        let none = |_: &[(u32, u32)], found: &mut [bool]| {
            found.fill(false);
            Ok::<_, BlockError>(())
        };
        let draw = |slice| {
            let name = PairsName { run_key: 1, step: 0, layer: 0, slice };
            Pairs::draw_with(name, &block, CONFIG, none).unwrap().negatives
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(0), draw(1));
    }

    #[test]
    fn a_full_graph_has_no_negatives() {
        let all = |_| Ok::<_, BlockError>(0..5);
        let block = Block::full(5, 25, all).unwrap();
        assert!(draw(&block, 0, CONFIG).negatives().is_empty());
    }
}
