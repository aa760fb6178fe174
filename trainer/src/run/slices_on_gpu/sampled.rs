//! Slices that the GPU samples itself: the same blocks and pairs that are drawn here, bit for bit.

use std::sync::Arc;

use kith_client::{BatchConfig, BatchDigest, Plan, Roots};
use kith_kernels::cuda::{SampledOnDevice, SampledParts};
use kith_sampler::Fanout;

use super::{Drawn, Learned, Ready, Slices};
use crate::{error::TrainError, exchange::SliceRecord, feed::At};

/// What a GPU samples by.
#[derive(Debug)]
pub(super) struct Recipe {
    plan: Arc<Plan>,
    /// From the roots outwards; `None`: all neighbors.
    pub(super) fanouts: Vec<Option<u32>>,
    /// Layers with pairs.
    n_pair_layers: usize,
}

impl Recipe {
    pub(super) fn of((plan, config): (&Arc<Plan>, &BatchConfig)) -> Recipe {
        let fanout = |fanout: &Fanout| match fanout {
            Fanout::AtMost(n) => Some(n.get()),
            Fanout::All => None,
        };
        Recipe {
            plan: Arc::clone(plan),
            fanouts: config.fanouts.iter().map(fanout).collect(),
            n_pair_layers: if config.pairs.is_some() { config.fanouts.len() } else { 0 },
        }
    }
}

/// What was drawn on the GPU, read back for its digest.
#[derive(Debug)]
pub(super) struct Sampled {
    name: (u64, u64),
    roots: Roots,
    nodes: Vec<u64>,
    /// From the input to the output.
    blocks: Vec<Block>,
}

#[derive(Debug)]
struct Block {
    indptr: Vec<u32>,
    sources: Vec<u32>,
    n_sources: usize,
}

impl Sampled {
    fn read(name: (u64, u64), roots: Roots, sampled: &SampledOnDevice) -> Result<Sampled, TrainError> {
        let blocks = (0..sampled.n_hops()).rev().map(|hop| {
            let hop = sampled.hop(hop);
            Ok(Block { indptr: hop.indptr()?, sources: hop.sources()?, n_sources: hop.n_sources() })
        });
        let blocks = blocks.collect::<Result<_, TrainError>>()?;
        Ok(Sampled { name, roots, nodes: sampled.ids()?, blocks })
    }

    /// The digest of everything but the pairs.
    pub(super) fn digest(&self) -> BatchDigest {
        let mut digest = BatchDigest::new(self.name, &self.roots.ids, &self.roots.seeds, &self.nodes);
        for Block { indptr, sources, n_sources } in &self.blocks {
            digest.add_block(indptr.windows(2).map(|bounds| bounds[1] - bounds[0]), *n_sources, sources);
        }
        digest
    }
}

impl<'a> Slices<'a> {
    /// The slice at a place of the run, sampled on the GPU.
    pub(super) fn sample(&mut self, at: At) -> Result<Ready<'a>, TrainError> {
        let recipe = self.recipe.as_ref().expect("the GPU samples");
        let step = recipe.plan.step(at.step);
        let roots = Roots::of(&recipe.plan, &step, at.slice);
        let (name, n_pair_layers) = ((at.run_key, at.step), recipe.n_pair_layers);
        let sampled = self.program.sample(name, &recipe.fanouts, &roots.ids)?;
        let learned = Learned::of(&roots.labels, &roots.seeds, roots.ids.len());
        let (n_seeds, is_empty) = (roots.seeds.len() as u64, roots.ids.is_empty());
        let record = SliceRecord {
            row_counts: (0, sampled.n_nodes() as u64, 0),
            n_seeds,
            n_edges: sampled.n_drawn_edges() as u64,
            ..SliceRecord::default()
        };
        let drawn = Sampled::read((at.step, at.slice as u64), roots, &sampled)?;
        if is_empty {
            let mut digest = drawn.digest();
            (0..n_pair_layers).for_each(|_| digest.add_pairs((&[], &[]), &[], 0, 0));
            self.program.give_back(sampled);
            let record = SliceRecord { digest: Some(digest.text()), ..record };
            return Ok(Ready { batch: None, record, drawn: Drawn::OnGpu(drawn) });
        }
        let n_classes = self.n_classes();
        let mut batch = self.spare()?;
        batch.fill_sampled(SampledParts {
            step: at.step,
            slice: at.slice as u32,
            sampled,
            classes: &learned.classes,
            bits: learned.bits.as_deref(),
            n_classes,
            n_terms: learned.n_terms(step.n_seeds(), n_classes),
        })?;
        Ok(Ready { batch: Some(batch), record, drawn: Drawn::OnGpu(drawn) })
    }
}
