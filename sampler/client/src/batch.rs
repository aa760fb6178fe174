//! Builds the mini-batch of one slice of a step: everything a rank needs for it.

use std::sync::Arc;

use kith_block::{Block, Negatives, PairConfig, Pairs, PairsName};
use kith_sampler::{Direction, EdgeData, Fanout, Labels, Sampling};

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
        let blocks = BlockMaker::new(shards.info().n_nodes, stock.clone());
        BatchMaker { config, blocks, stock, looked_up: Vec::new(), plan, shards }
    }

    /// The batch of one slice of one step.
    pub fn make(&mut self, step: u64, slice: usize) -> Result<Batch> {
        let step = self.plan.step(step);
        self.make_slice(&step, slice)
    }

    /// The same where the step is at hand.
    pub fn make_slice(&mut self, step: &Step, slice: usize) -> Result<Batch> {
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
        let pairs = self.draw_pairs(step.step, slice as u64, &blocks)?;
        let (mut rows, mut row_counts) = (FetchedRows::default(), RowCounts::default());
        if self.config.has_rows {
            rows = self.stock.rows();
            row_counts = self.shards.fetch_features(&nodes, &mut rows)?;
        }
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

    fn draw_pairs(&mut self, step: u64, slice: u64, blocks: &[Arc<Block>]) -> Result<Vec<Pairs>> {
        let Some(config) = self.config.pairs else { return Ok(Vec::new()) };
        let direction = if config.excludes_reverse { Direction::Either } else { Direction::Forward };
        let run_key = self.plan.config().run_key;
        let (looked_up, shards) = (&mut self.looked_up, &self.shards);
        let of_layer = |(layer, block): (usize, &Arc<Block>)| {
            let name = PairsName { run_key, step, layer: layer as u32, slice };
            Pairs::draw_with(name, block, config, |pairs, found| {
                let id = |position: u32| block.id(position as usize);
                looked_up.clear();
                looked_up.extend(pairs.iter().map(|(source, destination)| (id(*source), id(*destination))));
                shards.has_edges(looked_up, direction, found)
            })
        };
        blocks.iter().enumerate().map(of_layer).collect()
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
