//! Samples some steps of a run without features, and counts their work for several placements of the shards at once.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use kith_client::{BatchConfig, BatchMaker, Found, Info, Plan, PlanConfig, Result, RowCounts, Shards, Stock};
use kith_run::config::RunConfig;
use kith_sampler::{Direction, Drawn, EdgeData, Hop, Sampling, Seeds, fanouts_of_layers};
use kith_store::SplitPart;

use super::work::{Shape, Work};

/// Place of a node's features for a sampled rank.
pub(crate) type Find<'a> = dyn Fn(usize, u64) -> Found + 'a;

/// Steps to sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) run_seed: u64,
    pub(crate) n_steps: u64,
    /// Ranks whose slices are sampled, and slices of each.
    pub(crate) ranks: usize,
    pub(crate) slices_per_rank: usize,
}

/// Work by step, rank and slice.
pub(crate) type Steps = Vec<Vec<Vec<Work>>>;

/// Settings of a run on `n_ranks` ranks, with the counts that its run file leaves open, and its training nodes.
pub(crate) fn settled(
    shards: &Arc<dyn Shards>,
    mut config: RunConfig,
    n_ranks: usize,
) -> anyhow::Result<(RunConfig, Seeds)> {
    if config.links.is_some() {
        bail!(
            "expected a run that predicts nodes, found `[links]`: the time of link prediction is not modeled, remove --hosts"
        );
    }
    let seeds = shards.seeds(None, SplitPart::Train)?;
    let has_edge_loss = config.edge_loss.as_ref().is_some_and(|edge_loss| edge_loss.weight != 0.0);
    config.train.settle((shards.info().n_nodes, seeds.len()), has_edge_loss, n_ranks);
    Ok((config, seeds))
}

/// Work of sampled steps, for each placement. The batch size of `config` is that of the sampled ranks.
pub(crate) fn sample(
    shards: &Arc<dyn Shards>,
    (config, seeds): (&RunConfig, Seeds),
    wanted: Wanted,
    placements: &[&Find<'_>],
) -> anyhow::Result<Vec<Steps>> {
    let info = shards.info().clone();
    let shape = Shape::new(config, info.dim, info.n_classes);
    let plan = PlanConfig {
        run_key: wanted.run_seed,
        seeds_per_step: config.train.batch_size.expect("settled"),
        edge_seeds: config.train.edge_seeds.expect("settled"),
        slices: wanted.ranks * wanted.slices_per_rank,
    };
    let plan = Arc::new(Plan::new(plan, info.n_nodes, Arc::new(seeds))?);
    let edge_loss = config.edge_loss.as_ref().filter(|edge_loss| edge_loss.weight != 0.0);
    let batch = BatchConfig {
        fanouts: fanouts_of_layers(&config.train.fanouts, config.model.n_layers).map_err(anyhow::Error::msg)?,
        sampling: Sampling::Uniform,
        edge_data: EdgeData::NONE,
        pairs: edge_loss.map(|edge_loss| edge_loss.pairs(info.is_symmetric, info.is_set)),
        links: None,
        has_rows: false,
        by_hash: false,
    };
    let watched = Arc::new(Watched { shards: Arc::clone(shards), looked_up: Mutex::default() });
    let mut maker = BatchMaker::new(Arc::clone(&watched), Arc::clone(&plan), batch, Stock::new(1));
    // The last step of an epoch may be a short one.
    let n_whole = (plan.seeds().len() / plan.config().seeds_per_step).max(1) as u64;
    let n_steps = wanted.n_steps.clamp(1, n_whole);
    let mut found: Vec<Steps> = vec![Vec::new(); placements.len()];
    for nth in 0..n_steps {
        let step = plan.step(nth * n_whole / n_steps);
        found.iter_mut().for_each(|steps| steps.push(vec![Vec::new(); wanted.ranks]));
        for rank in 0..wanted.ranks {
            for slice in rank * wanted.slices_per_rank..(rank + 1) * wanted.slices_per_rank {
                let batch = maker.make_slice(&step, slice)?;
                let (looked_up, attempts) = watched.take();
                for (steps, find) in found.iter_mut().zip(placements) {
                    let work = Work::of(&batch, &shape, (&looked_up, attempts), |node| find(rank, node));
                    steps.last_mut().expect("pushed")[rank].push(work);
                }
            }
        }
    }
    Ok(found)
}

/// Shards whose lookups of pairs are watched.
struct Watched {
    shards: Arc<dyn Shards>,
    /// Destinations of pairs, and number of rounds.
    looked_up: Mutex<(Vec<u64>, usize)>,
}

impl Watched {
    fn take(&self) -> (Vec<u64>, usize) {
        std::mem::take(&mut self.looked_up.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shards for Watched {
    fn info(&self) -> &Info {
        self.shards.info()
    }

    fn seeds(&self, split: Option<&str>, part: SplitPart) -> Result<Seeds> {
        self.shards.seeds(split, part)
    }

    fn sample_hop(&self, hop: &Hop, frontier: &[u64], drawn: &mut Drawn) -> Result<()> {
        self.shards.sample_hop(hop, frontier, drawn)
    }

    fn fetch_features(&self, nodes: &[u64], rows: &mut kith_client::FetchedRows) -> Result<RowCounts> {
        self.shards.fetch_features(nodes, rows)
    }

    fn has_edges(&self, pairs: &[(u64, u64)], direction: Direction, found: &mut [bool]) -> Result<()> {
        let mut looked_up = self.looked_up.lock().unwrap_or_else(PoisonError::into_inner);
        looked_up.0.extend(pairs.iter().map(|(_, destination)| *destination));
        looked_up.1 += 1;
        self.shards.has_edges(pairs, direction, found)
    }
}
