//! Collects the edges of a store in any order, and sorts them: `list_columns` writes them.
//!
//! An edge is one key: destination in the high bits, source in the low bits. Sorted keys are the neighbor lists by
//! destination. Weighted edges have the weight in the lowest bits, so that parallel edges come in the order of their weights. Edges
//! with features have the row of their features there instead.
//!
//! A source that can be read several times may be read in passes: each collects the edges into one range of nodes, and is written before
//! the next begins. So keys that wait in scratch files are those of one pass.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use kith_store::{Column, StoreWriter};

use crate::{
    csr::{
        edge_options::{EdgeOptions, EdgeRows, Shape},
        keys::{EdgeValue, MAX_NODES, RowEdge, WeightedEdge},
        list_columns::{Job, Written},
        sort::{Budget, Digits, Feeder, Sorter},
    },
    error::{PartitionError, Result},
    progress::Progress,
};

/// Counts of edges read, dropped, added and stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListsSummary {
    /// Edges in the lists.
    pub n_edges: u64,
    /// True if every edge has its reverse, of the same weight.
    pub is_symmetric: bool,
    /// Edges that came in.
    pub n_read: u64,
    /// Loops left out.
    pub n_loops_dropped: u64,
    /// Edges added as the reverse of another.
    pub n_reversed: u64,
    /// Duplicates left out.
    pub n_merged: u64,
}

/// More passes would cost more than they save.
const MAX_PASSES: u64 = 64;

/// Collects edges from any number of threads, then writes the lists.
pub struct ListsBuilder<'a> {
    shape: Shape,
    options: EdgeOptions,
    budget: &'a Budget,
    keys: Keys<'a>,
    rows: Option<EdgeRows<'a>>,
    n_passes: u64,
    pass: AtomicU64,
    n_read: AtomicU64,
    n_loops_dropped: AtomicU64,
    n_reversed: AtomicU64,
}

enum Keys<'a> {
    Narrow(Sorter<'a, u64>),
    Wide(Sorter<'a, u128>),
    Weighted(Sorter<'a, WeightedEdge>),
    Rows(Sorter<'a, RowEdge>),
}

impl<'a> ListsBuilder<'a> {
    /// Starts lists of nodes `0..n_nodes`; ids take 64 bits beyond 2^32 nodes, 32 otherwise.
    pub(crate) fn new(n_nodes: u64, options: EdgeOptions, budget: &'a Budget) -> Result<ListsBuilder<'a>> {
        Self::with_width(n_nodes, options, budget, n_nodes > 1 << 32)
    }

    /// The same for edges with weights.
    pub(crate) fn weighted(n_nodes: u64, options: EdgeOptions, budget: &'a Budget) -> Result<ListsBuilder<'a>> {
        let lists = Self::new(n_nodes, options, budget)?;
        // Equal edges of different weights are merged when they are written.
        let digits = Digits::new(0, 2 * lists.shape.id_bits + WeightedEdge::WEIGHT_BITS);
        Ok(ListsBuilder { keys: Keys::Weighted(Sorter::new(budget, digits)), ..lists })
    }

    /// The same for edges with features, whose weights are written if `rows.have_weights`.
    pub(crate) fn with_rows(
        n_nodes: u64,
        options: EdgeOptions,
        budget: &'a Budget,
        rows: EdgeRows<'a>,
    ) -> Result<ListsBuilder<'a>> {
        assert!(!options.merge_duplicates, "each edge has its own features");
        let lists = Self::new(n_nodes, options, budget)?;
        let digits = Digits::new(0, 2 * lists.shape.id_bits + RowEdge::ROW_BITS);
        Ok(ListsBuilder { keys: Keys::Rows(Sorter::new(budget, digits)), rows: Some(rows), ..lists })
    }

    fn with_width(n_nodes: u64, options: EdgeOptions, budget: &'a Budget, is_wide: bool) -> Result<ListsBuilder<'a>> {
        if n_nodes > MAX_NODES {
            return Err(PartitionError::Option(format!("{n_nodes} nodes: a graph has at most 2^40")));
        }
        let id_bits = u64::BITS - n_nodes.saturating_sub(1).leading_zeros();
        let digits = Digits { start: 0, end: 2 * id_bits, is_merged: options.merge_duplicates };
        let keys =
            if is_wide { Keys::Wide(Sorter::new(budget, digits)) } else { Keys::Narrow(Sorter::new(budget, digits)) };
        Ok(ListsBuilder {
            shape: Shape { n_nodes, id_bits },
            options,
            budget,
            keys,
            rows: None,
            n_passes: 1,
            pass: AtomicU64::new(0),
            n_read: AtomicU64::new(0),
            n_loops_dropped: AtomicU64::new(0),
            n_reversed: AtomicU64::new(0),
        })
    }

    /// Collects the edges of a source with `n_edges` edges in as many passes as keep scratch files small. Lists in both directions that
    /// are sorted twice take one pass.
    pub(crate) fn in_passes(self, n_edges: u64) -> ListsBuilder<'a> {
        if !self.options.symmetrize {
            return self;
        }
        let key_bytes = match &self.keys {
            Keys::Narrow(_) => size_of::<u64>(),
            Keys::Wide(_) => size_of::<u128>(),
            Keys::Weighted(_) => size_of::<WeightedEdge>(),
            Keys::Rows(_) => size_of::<RowEdge>(),
        };
        let n_bytes = n_edges.saturating_mul(2 * key_bytes as u64);
        ListsBuilder { n_passes: n_bytes.div_ceil(self.budget.pass_bytes()).clamp(1, MAX_PASSES), ..self }
    }

    /// The current pass, from 1 up, and the number of passes.
    pub(crate) fn pass(&self) -> (u64, u64) {
        (self.pass.load(Relaxed) + 1, self.n_passes)
    }

    /// Nodes whose edges the current pass collects.
    fn destinations(&self) -> Range<u64> {
        let (pass, n_passes) = self.pass();
        let bound = |pass: u64| (u128::from(self.shape.n_nodes) * u128::from(pass) / u128::from(n_passes)) as u64;
        bound(pass - 1)..bound(pass)
    }

    /// Memory and scratch folder, which the source of the edges may also use for sorting.
    pub(crate) fn budget(&self) -> &'a Budget {
        self.budget
    }

    /// A way in for one thread.
    pub fn feeder(&self) -> EdgeFeeder<'_, 'a> {
        let keys = match &self.keys {
            Keys::Narrow(sorter) => KeyFeeder::Narrow(sorter.feeder()),
            Keys::Wide(sorter) => KeyFeeder::Wide(sorter.feeder()),
            Keys::Weighted(sorter) => KeyFeeder::Weighted(sorter.feeder()),
            Keys::Rows(sorter) => KeyFeeder::Rows(sorter.feeder()),
        };
        let destinations = self.destinations();
        EdgeFeeder { builder: self, keys, destinations, n_read: 0, n_loops_dropped: 0, n_reversed: 0 }
    }

    /// Writes the columns of both directions (one, if the graph is symmetric). `feed` pushes all edges again for each pass after the
    /// first. Also gives the row of each edge's features.
    pub(crate) fn finish(
        self,
        writer: &mut StoreWriter,
        progress: &dyn Progress,
        feed: impl Fn(&ListsBuilder<'_>) -> Result<()>,
    ) -> Result<(ListsSummary, Option<Column<u64>>)> {
        let [n_read, n_reversed, n_loops_dropped] =
            [&self.n_read, &self.n_reversed, &self.n_loops_dropped].map(|n| n.load(Relaxed));
        let feed_next = || {
            let is_there = self.pass.fetch_add(1, Relaxed) + 1 < self.n_passes;
            if is_there { feed(&self).map(|()| true) } else { Ok(false) }
        };
        let job = Job {
            shape: self.shape,
            n_fed: n_read - n_loops_dropped + n_reversed,
            feed_next: &feed_next,
            n_passes: self.n_passes,
            options: self.options,
            budget: self.budget,
            progress,
            rows: self.rows,
        };
        let Written { n_edges, is_symmetric, rows } = match &self.keys {
            Keys::Narrow(sorter) => job.write::<u64, u32>(sorter, writer)?,
            Keys::Wide(sorter) => job.write::<u128, u64>(sorter, writer)?,
            Keys::Weighted(sorter) if self.shape.n_nodes > 1 << 32 => job.write::<_, u64>(sorter, writer)?,
            Keys::Weighted(sorter) => job.write::<_, u32>(sorter, writer)?,
            Keys::Rows(sorter) if self.shape.n_nodes > 1 << 32 => job.write::<_, u64>(sorter, writer)?,
            Keys::Rows(sorter) => job.write::<_, u32>(sorter, writer)?,
        };
        let n_merged = job.n_fed - n_edges;
        Ok((ListsSummary { n_edges, is_symmetric, n_read, n_loops_dropped, n_reversed, n_merged }, rows))
    }
}

/// One thread's way into a [`ListsBuilder`]; `finish` hands over what it still holds back.
pub struct EdgeFeeder<'s, 'a> {
    builder: &'s ListsBuilder<'a>,
    keys: KeyFeeder<'s, 'a>,
    destinations: Range<u64>,
    n_read: u64,
    n_loops_dropped: u64,
    n_reversed: u64,
}

enum KeyFeeder<'s, 'a> {
    Narrow(Feeder<'s, 'a, u64>),
    Wide(Feeder<'s, 'a, u128>),
    Weighted(Feeder<'s, 'a, WeightedEdge>),
    Rows(Feeder<'s, 'a, RowEdge>),
}

impl EdgeFeeder<'_, '_> {
    /// Adds one edge of weight 1: see [`EdgeFeeder::push_with`].
    #[inline]
    pub fn push(&mut self, source: u64, destination: u64) -> Result<()> {
        self.push_with(source, destination, EdgeValue::PLAIN)
    }

    /// Adds one edge with a weight: see [`EdgeFeeder::push_with`].
    #[inline]
    pub fn push_weighted(&mut self, source: u64, destination: u64, weight: f32) -> Result<()> {
        self.push_with(source, destination, EdgeValue { weight, row: 0 })
    }

    /// Adds one edge. Both ends must be nodes, and the weight finite and not negative: the reader of the edge has checked
    /// that and can name its place. Builders without weights or features ignore them.
    #[inline]
    pub fn push_with(&mut self, source: u64, destination: u64, value: EdgeValue) -> Result<()> {
        let Shape { n_nodes, .. } = self.builder.shape;
        assert!(source < n_nodes && destination < n_nodes, "an edge outside the graph");
        self.n_read += 1;
        if source == destination && self.builder.options.drop_loops {
            self.n_loops_dropped += 1;
            return Ok(());
        }
        self.push_key(source, destination, value)?;
        if self.builder.options.symmetrize && source != destination {
            self.n_reversed += 1;
            self.push_key(destination, source, value)?;
        }
        Ok(())
    }

    /// Hands over what is held back.
    pub fn finish(self) -> Result<()> {
        // Every pass reads the same edges.
        if self.builder.pass.load(Relaxed) == 0 {
            self.builder.n_read.fetch_add(self.n_read, Relaxed);
            self.builder.n_loops_dropped.fetch_add(self.n_loops_dropped, Relaxed);
            self.builder.n_reversed.fetch_add(self.n_reversed, Relaxed);
        }
        match self.keys {
            KeyFeeder::Narrow(keys) => keys.finish(),
            KeyFeeder::Wide(keys) => keys.finish(),
            KeyFeeder::Weighted(keys) => keys.finish(),
            KeyFeeder::Rows(keys) => keys.finish(),
        }
    }

    #[inline]
    fn push_key(&mut self, source: u64, destination: u64, value: EdgeValue) -> Result<()> {
        if !self.destinations.contains(&destination) {
            return Ok(());
        }
        let id_bits = self.builder.shape.id_bits;
        match &mut self.keys {
            KeyFeeder::Narrow(keys) => keys.push(destination << id_bits | source),
            KeyFeeder::Wide(keys) => keys.push(u128::from(destination) << id_bits | u128::from(source)),
            KeyFeeder::Weighted(keys) => keys.push(WeightedEdge::new(source, destination, value.weight, id_bits)),
            KeyFeeder::Rows(keys) => keys.push(RowEdge::new(source, destination, value, id_bits)),
        }
    }
}

#[cfg(test)]
mod tests {
    use kith_draw::{Name, Purpose};
    use kith_store::{Contents, Graph, Provenance, verify};
    use proptest::prelude::*;

    use super::*;
    use crate::progress::Quiet;

    /// Pushes edges with two feeders.
    fn feed_halves(builder: &ListsBuilder<'_>, edges: &[[u64; 2]]) {
        std::thread::scope(|scope| {
            for half in edges.chunks(edges.len().div_ceil(2).max(1)) {
                scope.spawn(|| {
                    let mut feeder = builder.feeder();
                    half.iter().for_each(|[source, destination]| feeder.push(*source, *destination).unwrap());
                    feeder.finish().unwrap();
                });
            }
        });
    }

    /// Builds a store of the edges with two feeders and very little memory, and reads it back as (source, destination).
    fn build(
        edges: &[[u64; 2]],
        n_nodes: u64,
        options: EdgeOptions,
        limit_bytes: u64,
        is_wide: bool,
    ) -> (ListsSummary, Vec<[u64; 2]>) {
        let temp = tempfile::tempdir().unwrap();
        let out = temp.path().join("store");
        let mut writer = StoreWriter::create(&out).unwrap();
        let budget = Budget::new(limit_bytes, &writer.scratch());
        let builder = ListsBuilder::with_width(n_nodes, options, &budget, is_wide).unwrap();
        feed_halves(&builder, edges);
        let (summary, _) = builder.finish(&mut writer, &Quiet, |_| Ok(())).unwrap();
        assert_eq!(budget.held(), 0, "every byte that was held was let go");
        let ListsSummary { n_edges, is_symmetric, .. } = summary;
        let contents = Contents { n_nodes, n_edges, is_symmetric, ..Contents::default() };
        writer.finish(contents, Provenance::default()).unwrap();
        assert_eq!(verify(&out, &|_| ()).unwrap().findings, []);
        let graph = Graph::open(&out).unwrap();
        let mut found = Vec::new();
        for destination in 0..n_nodes {
            found.extend(graph.lists().of(destination).unwrap().iter().map(|source| [source, destination]));
        }
        (summary, found)
    }

    fn expected(edges: &[[u64; 2]], options: EdgeOptions) -> Vec<[u64; 2]> {
        let mut expected = Vec::new();
        for &[source, destination] in edges {
            if source == destination && options.drop_loops {
                continue;
            }
            expected.push([source, destination]);
            if options.symmetrize && source != destination {
                expected.push([destination, source]);
            }
        }
        expected.sort_by_key(|[source, destination]| (*destination, *source));
        if options.merge_duplicates {
            expected.dedup();
        }
        expected
    }

    fn is_symmetric(edges: &[[u64; 2]]) -> bool {
        let mut reversed: Vec<[u64; 2]> = edges.iter().map(|[source, destination]| [*destination, *source]).collect();
        reversed.sort_by_key(|[source, destination]| (*destination, *source));
        reversed == edges
    }

    fn options() -> impl Strategy<Value = EdgeOptions> {
        any::<[bool; 3]>().prop_map(|[symmetrize, drop_loops, merge_duplicates]| EdgeOptions {
            symmetrize,
            drop_loops,
            merge_duplicates,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn lists_are_the_edges_sorted(
            edges in prop::collection::vec([0u64..40, 0u64..40], 0..400),
            options in options(),
            is_wide: bool,
        ) {
            let (summary, found) = build(&edges, 40, options, 1 << 20, is_wide);
            let expected = expected(&edges, options);
            prop_assert_eq!(summary.n_edges, expected.len() as u64);
            prop_assert_eq!(summary.is_symmetric, is_symmetric(&expected));
            prop_assert_eq!(summary.n_read, edges.len() as u64);
            prop_assert_eq!(found, expected);
        }
    }

    /// Weighted edges as (destination, source, weight), by definition.
    fn weighted(edges: &[([u64; 2], u8)], options: EdgeOptions) -> Vec<(u64, u64, f32)> {
        let mut all = Vec::new();
        for ([source, destination], weight) in edges {
            let weight = f32::from(*weight) / 8.0;
            if source == destination && options.drop_loops {
                continue;
            }
            all.push((*destination, *source, weight));
            if options.symmetrize && source != destination {
                all.push((*source, *destination, weight));
            }
        }
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        if options.merge_duplicates {
            all = all
                .chunk_by(|a, b| (a.0, a.1) == (b.0, b.1))
                .map(|same| (same[0].0, same[0].1, same.iter().map(|edge| edge.2).sum()))
                .collect();
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn weights_go_with_their_edges(
            edges in prop::collection::vec(([0u64..20, 0u64..20], 0u8..4), 0..200),
            symmetric in any::<bool>(),
            options in options(),
        ) {
            // With all reverses, lists may be symmetric by themselves; weights decide.
            let mut edges = edges;
            if symmetric {
                edges.extend(edges.clone().into_iter().map(|([source, destination], weight)| ([destination, source], weight)));
            }
            let temp = tempfile::tempdir().unwrap();
            let out = temp.path().join("store");
            let mut writer = StoreWriter::create(&out).unwrap();
            let budget = Budget::new(1 << 20, &writer.scratch());
            let builder = ListsBuilder::weighted(20, options, &budget).unwrap();
            std::thread::scope(|scope| {
                for half in edges.chunks(edges.len().div_ceil(2).max(1)) {
                    let builder = &builder;
                    scope.spawn(move || {
                        let mut feeder = builder.feeder();
                        half.iter().for_each(|([source, destination], weight)| {
                            feeder.push_weighted(*source, *destination, f32::from(*weight) / 8.0).unwrap();
                        });
                        feeder.finish().unwrap();
                    });
                }
            });
            let (summary, _) = builder.finish(&mut writer, &Quiet, |_| Ok(())).unwrap();
            let ListsSummary { n_edges, is_symmetric, .. } = summary;
            let contents = Contents { n_nodes: 20, n_edges, is_symmetric, edge_weights: true, ..Contents::default() };
            writer.finish(contents, Provenance::default()).unwrap();
            prop_assert_eq!(verify(&out, &|_| ()).unwrap().findings, []);
            let graph = Graph::open(&out).unwrap();
            let mut found = Vec::new();
            for destination in 0..20 {
                let (start, end) = graph.lists().bounds(destination).unwrap();
                let weights = graph.edge_weights().unwrap().get(start, end).unwrap();
                let sources = graph.lists().of(destination).unwrap();
                found.extend(sources.iter().zip(weights).map(|(source, weight)| (destination, source, *weight)));
            }
            let expected = weighted(&edges, options);
            let mut reversed: Vec<_> = expected.iter().map(|(a, b, weight)| (*b, *a, *weight)).collect();
            reversed.sort_by(|a, b| a.partial_cmp(b).unwrap());
            prop_assert_eq!(is_symmetric, reversed == expected);
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn sums_that_no_number_holds_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let mut writer = StoreWriter::create(&temp.path().join("store")).unwrap();
        let budget = Budget::new(1 << 20, &writer.scratch());
        let options = EdgeOptions { merge_duplicates: true, ..EdgeOptions::default() };
        let builder = ListsBuilder::weighted(5, options, &budget).unwrap();
        let mut feeder = builder.feeder();
        (0..2).for_each(|_| feeder.push_weighted(3, 4, 9e11).unwrap());
        feeder.finish().unwrap();
        let error = builder.finish(&mut writer, &Quiet, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("the edges from node 3 to 4 add up to 1.8e12, more than 1e12"), "{error}");
    }

    /// 40,000 edges, a third of them between the same two nodes and a third into one hub, in 64 KiB: buckets spill, and
    /// the large ones are cut again until nothing is left to cut by.
    #[test]
    fn hubs_and_duplicates_fit_in_little_memory() {
        let stream = Name { run_key: 1, purpose: Purpose::Generator, step: 0, layer: 0 }.stream();
        let edges: Vec<[u64; 2]> = (0..40_000)
            .map(|k| {
                let mut draws = stream.draws(k, 0, 0);
                match k % 3 {
                    0 => [77_777, 5],
                    1 => [draws.below(100_000), 99_999],
                    _ => [draws.below(100_000), draws.below(100_000)],
                }
            })
            .collect();
        for is_wide in [false, true] {
            let options = EdgeOptions::default();
            let (summary, found) = build(&edges, 100_000, options, 64 << 10, is_wide);
            assert!(!summary.is_symmetric);
            assert_eq!(found, expected(&edges, options));
        }
    }

    /// 600,000 directed edges in 1 MiB: the same columns in several passes as in one, and scratch files of one pass.
    #[test]
    fn passes_bound_scratch_and_change_no_byte() {
        let stream = Name { run_key: 2, purpose: Purpose::Generator, step: 0, layer: 0 }.stream();
        let edges: Vec<[u64; 2]> = (0..300_000)
            .map(|k| {
                let mut draws = stream.draws(k, 0, 0);
                [draws.below(50_000), draws.below(50_000)]
            })
            .collect();
        let options = EdgeOptions { symmetrize: true, drop_loops: true, merge_duplicates: true };
        for (is_weighted, least_passes) in [(false, 3), (true, 6)] {
            let build = |in_passes: bool| {
                let temp = tempfile::tempdir().unwrap();
                let mut writer = StoreWriter::create(&temp.path().join("store")).unwrap();
                let budget = Budget::new(1 << 20, &writer.scratch());
                let builder = match is_weighted {
                    true => ListsBuilder::weighted(50_000, options, &budget),
                    false => ListsBuilder::new(50_000, options, &budget),
                };
                let builder = if in_passes { builder.unwrap().in_passes(300_000) } else { builder.unwrap() };
                let (_, n_passes) = builder.pass();
                feed_halves(&builder, &edges);
                let again = |builder: &ListsBuilder<'_>| {
                    feed_halves(builder, &edges);
                    Ok(())
                };
                let (summary, _) = builder.finish(&mut writer, &Quiet, again).unwrap();
                assert_eq!(budget.held(), 0);
                let ListsSummary { n_edges, is_symmetric, .. } = summary;
                let contents = Contents {
                    n_nodes: 50_000,
                    n_edges,
                    is_symmetric,
                    edge_weights: is_weighted,
                    ..Contents::default()
                };
                let manifest = writer.finish(contents, Provenance::default()).unwrap();
                (manifest, summary, n_passes, budget.peak_spilled(), budget.pass_bytes())
            };
            let (one, expected, _, whole, _) = build(false);
            let (several, summary, n_passes, spilled, pass_bytes) = build(true);
            assert!(n_passes >= least_passes, "{n_passes} passes");
            assert_eq!((several, summary), (one, expected));
            assert!(spilled < pass_bytes && whole > 2 * pass_bytes, "{spilled} and {whole} of {pass_bytes} bytes");
        }
    }

    #[test]
    fn a_graph_without_nodes_or_edges_is_a_graph() {
        assert_eq!(build(&[], 0, EdgeOptions::default(), 1 << 20, false).0.n_edges, 0);
        assert_eq!(build(&[], 3, EdgeOptions::default(), 1 << 20, false).0.n_edges, 0);
        assert_eq!(build(&[[0, 0]], 1, EdgeOptions::default(), 1 << 20, false).1, [[0, 0]]);
    }

    #[test]
    fn too_many_nodes_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let budget = Budget::new(1 << 20, temp.path());
        assert!(ListsBuilder::new((1 << 40) + 1, EdgeOptions::default(), &budget).is_err());
    }
}
