//! Slices that the GPU samples itself: the same blocks and pairs as on the host, bit for bit.

use kith_client::Roots;
use kith_kernels::cuda::{HostBlocks, HostPairs, SampledParts};

use super::{
    BatchEngine,
    ready::{Drawn, Ready, Sampled, Targets},
    recipe::Recipe,
};
use crate::{data::feed::At, distributed::exchange::SliceRecord, error::TrainError};

impl<'a> BatchEngine<'a> {
    /// The slice at a place of the run, sampled on the GPU.
    pub(super) fn sample(&mut self, at: At) -> Result<Ready<'a>, TrainError> {
        let recipe = self.recipe.as_ref().expect("the GPU samples");
        let step = recipe.plan.step(at.step);
        let roots = Roots::of(&recipe.plan, &step, at.slice);
        let name = (at.run_key, at.step);
        if roots.ids.is_empty() {
            return Ok(nothing(Sampled { name: (at.step, at.slice as u64), roots }, recipe));
        }
        let sampled = self.program.sample(name, &recipe.fanouts, &roots.ids)?;
        let targets = Targets::of(&roots.labels, &roots.seeds, roots.ids.len());
        let record = SliceRecord {
            row_counts: (0, sampled.n_nodes() as u64, 0),
            n_seeds: roots.seeds.len() as u64,
            n_edges: sampled.n_drawn_edges() as u64,
            ..SliceRecord::default()
        };
        let n_classes = self.n_classes();
        let mut batch = self.spare()?;
        batch.fill_sampled(SampledParts {
            step: at.step,
            slice: at.slice as u32,
            sampled,
            classes: &targets.classes,
            bits: targets.bits.as_deref(),
            n_classes,
            n_terms: targets.n_terms(step.n_seeds(), n_classes),
        })?;
        let drawn = Sampled { name: (at.step, at.slice as u64), roots };
        Ok(Ready { batch: Some(batch), record, drawn: Drawn::OnGpu(drawn) })
    }
}

/// A slice without roots.
fn nothing<'a>(sampled: Sampled, recipe: &Recipe) -> Ready<'a> {
    let none = HostPairs { sources: Vec::new(), destinations: Vec::new(), kept: Vec::new(), n_pairs: 0, n_left_out: 0 };
    let blocks = vec![(vec![0], Vec::new(), 0); recipe.fanouts.len()];
    let drawn = (HostBlocks { nodes: Vec::new(), blocks }, vec![none; recipe.n_pair_layers]);
    let record = SliceRecord { digest: Some(sampled.digest(&drawn)), ..SliceRecord::default() };
    Ready { batch: None, record, drawn: Drawn::OnGpu(sampled) }
}
