//! Mini-batches of a run, drawn without their features.

use std::sync::Arc;

use kith_client::{Batch, BatchConfig, BatchMaker, Plan, PlanConfig, Stock};
use kith_sampler::{EdgeData, Fanout, Sampling};
use kith_store::SplitPart;

use super::{args::Args, source::Source, trace::Trace};
use crate::progress::{grouped, say};

/// Bytes of a node's id, and of a number of neighbors.
pub(super) const ID_BYTES: u64 = 4;
const COUNT_BYTES: u64 = 4;

/// Traces of all ranks, and sums over the counted steps.
pub(super) struct Drawn {
    /// By rank.
    pub(super) traces: Vec<Trace>,
    pub(super) n_counted: usize,
    /// Seed nodes of all ranks.
    pub(super) n_seeds: u64,
    /// Feature vectors that mini-batches need, local ones included.
    pub(super) n_vectors: u64,
    /// Bytes of frontiers and of their sampled neighbors, if the adjacency is remote.
    pub(super) hop_bytes: u64,
    /// Bytes of blocks: ids of nodes, positions of neighbors, and the number of neighbors of each destination.
    pub(super) block_bytes: u64,
    /// Feature vectors of the largest mini-batch.
    pub(super) largest_batch: u64,
}

impl Drawn {
    /// Draws the counted steps, and those that windows of `lookahead` steps see after them.
    pub(super) fn new(source: &Source, args: &Args, lookahead: usize) -> anyhow::Result<Drawn> {
        let n_ranks = usize::from(args.ranks);
        let config = PlanConfig {
            run_key: args.run_seed,
            seeds_per_step: args.batch_size as usize,
            edge_seeds: args.edge_seeds,
            slices: n_ranks,
        };
        let seeds = Arc::new(source.shards.seeds(None, SplitPart::Train)?);
        let plan = Arc::new(Plan::new(config, source.n_nodes, seeds)?);
        let n_counted = args.steps.map_or(u64::from(args.epochs) * plan.steps_per_epoch(), u64::from) as usize;
        let n_steps = n_counted + lookahead;
        say(&format!("drawing {} steps, {} of them counted", grouped(n_steps as u64), grouped(n_counted as u64)));
        let config = BatchConfig {
            fanouts: args.fanouts.0.iter().map(|fanout| fanout.map_or(Fanout::All, Fanout::AtMost)).collect(),
            sampling: Sampling::Uniform,
            edge_data: EdgeData::NONE,
            pairs: None,
            links: None,
            has_rows: false,
            by_hash: false,
        };
        let stock = Stock::new(1);
        let mut maker = BatchMaker::new(Arc::clone(&source.shards), Arc::clone(&plan), config, stock.clone());
        let new_trace = || Trace::new(source.n_nodes as usize, n_counted, usize::from(args.in_flight));
        let mut drawn = Drawn {
            traces: (0..n_ranks).map(|_| new_trace()).collect(),
            n_counted,
            n_seeds: 0,
            n_vectors: 0,
            hop_bytes: 0,
            block_bytes: 0,
            largest_batch: 0,
        };
        for place in 0..n_steps {
            let step = plan.step(place as u64);
            if place < n_counted {
                drawn.n_seeds += step.n_seeds() as u64;
            }
            for rank in 0..n_ranks {
                let batch = maker.make_slice(&step, rank)?;
                let remote = batch.nodes.iter().filter(|node| source.is_remote(rank, **node));
                drawn.traces[rank].push(remote.map(|node| *node as u32));
                if place < n_counted {
                    drawn.count(&batch);
                }
                stock.give_back(batch);
            }
        }
        drawn.traces.iter_mut().for_each(Trace::link);
        Ok(drawn)
    }

    fn count(&mut self, batch: &Batch) {
        let n_nodes = batch.nodes.len() as u64;
        let n_destinations: u64 = batch.blocks.iter().map(|block| block.n_destinations() as u64).sum();
        let n_drawn = batch.n_drawn_edges() as u64;
        self.n_vectors += n_nodes;
        self.hop_bytes += n_destinations * (ID_BYTES + COUNT_BYTES) + n_drawn * ID_BYTES;
        self.block_bytes += n_nodes * ID_BYTES + n_destinations * COUNT_BYTES + n_drawn * ID_BYTES;
        self.largest_batch = self.largest_batch.max(n_nodes);
    }
}
