//! Builds the mini-batch of one slice of a step: everything a rank needs for it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use kith_block::{Block, Negatives, PairConfig, Pairs, PairsDraw, PairsName};
use kith_sampler::{Direction, EdgeData, Fanout, Labels, Sampling};
use tracing::{Span, info_span};

use crate::{
    batch_digest::BatchDigest,
    blocks::{BlockMaker, SampledBlocks},
    error::Result,
    link_batches::{BatchPairs, LinkBatches},
    plan::{Plan, Step},
    roots::Roots,
    rows::FetchedRows,
    shards::{RowCounts, Shards},
    stock::Stock,
};

/// Configuration of mini-batches.
#[derive(Clone, Debug)]
pub struct BatchConfig {
    /// The fanout of every layer, from the roots outwards: see [`kith_sampler::fanouts_of_layers`].
    pub fanouts: Vec<Fanout>,
    /// Sampling of a node's neighbors.
    pub sampling: Sampling,
    /// Data of edges that blocks have.
    pub edge_data: EdgeData,
    /// The pairs of the edge loss, for models that have one.
    pub pairs: Option<PairConfig>,
    /// The pairs of link prediction, for a plan whose seeds are edges.
    pub links: Option<LinkBatches>,
    /// True if features are fetched.
    pub has_rows: bool,
    /// True if nodes are relabeled by hash, without a table of all nodes.
    pub by_hash: bool,
}

/// All that a rank needs for one slice of one step.
#[derive(Debug)]
pub struct Batch {
    /// Weight updates before it.
    pub step: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Its slice of the step.
    pub slice: u64,
    /// Seeds of the whole step, all slices: the divisor of the node loss. In link prediction, edges of the step.
    pub n_step_seeds: usize,
    /// From the input layer to the output layer. Destinations of the last are the roots, by id: seed nodes or the nodes of pairs,
    /// and edge seeds.
    pub blocks: Vec<Arc<Block>>,
    /// The ids of the first block's sources, whose rows are in `rows`.
    pub nodes: Arc<Vec<u64>>,
    /// Positions of the seed nodes among the roots, ascending.
    pub seeds: Vec<u32>,
    /// Pairs of link prediction; `None` for tasks of nodes.
    pub links: Option<BatchPairs>,
    /// Labels of the roots, by position; edge seeds have none.
    pub labels: Labels,
    /// The rows of `nodes`.
    pub rows: FetchedRows,
    /// Numbers of feature vectors by source.
    pub row_counts: RowCounts,
    /// The pairs of each layer's edge loss, as `blocks`; empty without one.
    pub pairs: Vec<Pairs>,
    /// Of everything drawn: step, slice, roots, seeds, blocks, pairs.
    pub digest: u64,
}

impl Stock {
    /// Takes the memory of a batch, as far as nobody else still holds it.
    pub fn give_back(&self, batch: Batch) {
        let Batch { rows, blocks, nodes, .. } = batch;
        self.take_rows(rows);
        self.take_blocks(blocks, nodes);
    }
}

/// Makes batches, one after the other, in memory that is used again. One per thread.
pub struct BatchMaker<S: ?Sized> {
    config: BatchConfig,
    blocks: BlockMaker,
    stock: Stock,
    /// Ids of pairs that are being looked up.
    looked_up: Vec<(u64, u64)>,
    plan: Arc<Plan>,
    shards: Arc<S>,
}

impl<S: Shards + ?Sized> BatchMaker<S> {
    /// Memory comes from the stock as far as it has some.
    pub fn new(shards: Arc<S>, plan: Arc<Plan>, config: BatchConfig, stock: Stock) -> BatchMaker<S> {
        let n_nodes = shards.info().n_nodes;
        let blocks = match config.by_hash {
            true => BlockMaker::by_hash(n_nodes, stock.clone()),
            false => BlockMaker::new(n_nodes, stock.clone()),
        };
        BatchMaker { config, blocks, stock, looked_up: Vec::new(), plan, shards }
    }

    /// Bytes of its own memory without the positions, once it has made a batch.
    pub fn scratch_bytes(&self) -> u64 {
        self.blocks.scratch_bytes() + 16 * self.looked_up.capacity() as u64
    }

    /// The batch of one slice of one step.
    pub fn make(&mut self, step: u64, slice: usize) -> Result<Batch> {
        let step = self.plan.step(step);
        self.make_slice(&step, slice)
    }

    /// The same where the step is at hand.
    pub fn make_slice(&mut self, step: &Step, slice: usize) -> Result<Batch> {
        let _within = info_span!("batch", step = step.step, slice).entered();
        let run_key = self.plan.config().run_key;
        let BatchConfig { fanouts, sampling, edge_data, links, .. } = &self.config;
        let drawn = links.as_ref().map(|links| links.draw(&self.plan, step, slice, fanouts.len())).transpose()?;
        let Roots { ids, seeds, labels } = match &drawn {
            Some(pairs) => Roots::of_pairs(pairs.nodes(), step, slice),
            None => Roots::of(&self.plan, step, slice),
        };
        let name = (run_key, step.step);
        let excluded = drawn.as_ref().filter(|_| links.as_ref().is_some_and(|links| links.excludes_targets));
        let SampledBlocks { blocks, nodes } =
            self.blocks.sample_without(&*self.shards, name, fanouts, (*sampling, *edge_data), &ids, excluded)?;
        let (pairs, (rows, row_counts)) = self.pairs_and_rows((step.step, slice as u64), &blocks, &nodes)?;
        let mut batch = Batch {
            step: step.step,
            epoch: step.epoch,
            slice: slice as u64,
            n_step_seeds: step.n_seeds(),
            blocks,
            nodes,
            seeds,
            links: drawn.map(|pairs| pairs.place(&ids)),
            labels,
            rows,
            row_counts,
            pairs,
            digest: 0,
        };
        batch.digest = batch.compute_digest();
        Ok(batch)
    }

    /// The pairs of all layers, and the features of nodes. Neither needs the other: where servers answer, both are asked for at the same
    /// time.
    fn pairs_and_rows(
        &mut self,
        name: (u64, u64),
        blocks: &[Arc<Block>],
        nodes: &[u64],
    ) -> Result<(Vec<Pairs>, (FetchedRows, RowCounts))> {
        let (shards, has_rows) = (Arc::clone(&self.shards), self.config.has_rows);
        let mut rows = if has_rows { self.stock.rows() } else { FetchedRows::default() };
        let fetch = move || -> Result<(FetchedRows, RowCounts)> {
            let counts = if has_rows { shards.fetch_features(nodes, &mut rows)? } else { RowCounts::default() };
            Ok((rows, counts))
        };
        if !(self.shards.waits() && has_rows && self.config.pairs.is_some()) {
            return Ok((self.draw_pairs(name, blocks)?, fetch()?));
        }
        let fetch = Mutex::new(Some(fetch));
        let fetch = || (fetch.lock().unwrap_or_else(PoisonError::into_inner).take().expect("fetched once"))();
        thread::scope(|scope| {
            let span = Span::current();
            let fetching = thread::Builder::new().spawn_scoped(scope, move || span.in_scope(fetch));
            let pairs = self.draw_pairs(name, blocks)?;
            let fetched = match fetching {
                Ok(fetching) => fetching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(_) => fetch(), // The system permits no more threads.
            };
            Ok((pairs, fetched?))
        })
    }

    /// Draws the pairs of all layers. Attempts of all layers are looked up together.
    fn draw_pairs(&mut self, (step, slice): (u64, u64), blocks: &[Arc<Block>]) -> Result<Vec<Pairs>> {
        let Some(config) = self.config.pairs else { return Ok(Vec::new()) };
        let direction = if config.excludes_reverse { Direction::Either } else { Direction::Forward };
        let run_key = self.plan.config().run_key;
        let of_layer = |(layer, block): (usize, &Arc<Block>)| {
            PairsDraw::new(PairsName { run_key, step, layer: layer as u32, slice }, block, config)
        };
        let mut draws: Vec<PairsDraw> = blocks.iter().enumerate().map(of_layer).collect();
        let mut is_edge = Vec::new();
        loop {
            self.looked_up.clear();
            let mut ends = Vec::with_capacity(draws.len());
            for (draw, block) in draws.iter_mut().zip(blocks) {
                let id = |position: u32| block.id(position as usize);
                let pairs = draw.attempt().unwrap_or_default();
                self.looked_up.extend(pairs.iter().map(|(source, destination)| (id(*source), id(*destination))));
                ends.push(self.looked_up.len());
            }
            if self.looked_up.is_empty() {
                return Ok(draws.into_iter().map(PairsDraw::finish).collect());
            }
            is_edge.resize(self.looked_up.len(), false);
            self.shards.has_edges(&self.looked_up, direction, &mut is_edge)?;
            let mut start = 0;
            for (draw, end) in draws.iter_mut().zip(ends) {
                if end > start {
                    draw.refuse(&is_edge[start..end]);
                }
                start = end;
            }
        }
    }
}

impl Batch {
    /// Seed nodes or the nodes of pairs, and edge seeds, ascending.
    pub fn roots(&self) -> &[u64] {
        &self.nodes[..self.blocks.last().map_or(self.nodes.len(), |block| block.n_destinations())]
    }

    /// Edges drawn over all layers, without the loops that every destination gets.
    pub fn n_drawn_edges(&self) -> usize {
        self.blocks.iter().map(|block| block.n_edges() - block.n_destinations()).sum()
    }

    /// Bytes of its memory, if the blocks of all layers are as large as the largest: memory of a block is used again for any layer.
    pub fn memory_bytes(&self) -> u64 {
        let FetchedRows { indptr, columns, values, .. } = &self.rows;
        let rows = 8 * indptr.capacity() + 4 * (columns.capacity() + values.capacity());
        let largest = self.blocks.iter().map(|block| block.memory_bytes()).max().unwrap_or(0);
        // A positive of an edge loss is a bit, or an index; a negative is two positions.
        let pairs: usize = self.pairs.iter().map(|pairs| 8 * pairs.n_pairs()).sum();
        let links = self.links.as_ref().map_or(0, |links| 8 * links.sources.capacity());
        largest * self.blocks.len() as u64 + (rows + 8 * self.nodes.capacity() + pairs + links) as u64
    }

    /// The digest as reports show it.
    pub fn digest_text(&self) -> String {
        format!("{:016x}", self.digest)
    }

    fn compute_digest(&self) -> u64 {
        let mut digest = BatchDigest::new((self.step, self.slice), self.roots(), &self.seeds, &self.nodes);
        for block in &self.blocks {
            let lengths = block.indptr().windows(2).map(|bounds| (bounds[1] - bounds[0]) as u32);
            digest.add_block(lengths, block.n_sources(), block.sources());
        }
        if let Some(BatchPairs { sources, destinations, n_edges, n_step_pairs, .. }) = &self.links {
            digest.add_links((sources, destinations), *n_edges as u64, *n_step_pairs as u64);
        }
        for pairs in &self.pairs {
            let Negatives { sources, destinations, n_left_out } = pairs.negatives();
            let kept: Vec<u64> = pairs.kept_words().collect();
            digest.add_pairs((sources, destinations), &kept, pairs.n_pairs() as u64, *n_left_out as u64);
        }
        digest.finish()
    }
}

impl<S: ?Sized> std::fmt::Debug for BatchMaker<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchMaker").field("config", &self.config).finish_non_exhaustive()
    }
}
