//! Order of a loader's seeds: nodes or pairs of nodes.

use std::sync::Arc;

use kith_client::{Labels, Plan, PlanConfig, Seeds};

use crate::{error::Failed, settings::StepConfig};

/// Seeds of every step, in the order of an epoch.
pub(crate) struct Order {
    /// Places among the caller's seeds.
    places: Vec<u32>,
    /// Seeds of a step, all ranks together.
    per_step: usize,
    n_ranks: usize,
    drop_last: bool,
}

impl Order {
    /// The order of an epoch. `names` are the numbers by which draws know the seeds: they differ, and are below `end`.
    pub(crate) fn new(names: &[u64], end: u64, seed: u64, steps: &StepConfig, epoch: u64) -> Result<Order, Failed> {
        let StepConfig { batch_size, world_size, shuffle, drop_last, .. } = *steps;
        let n = u32::try_from(names.len()).map_err(|_| Failed::new("expected fewer than 2^32 seeds"))?;
        let mut places: Vec<u32> = (0..n).collect();
        if shuffle && !names.is_empty() {
            // SampleConfig are named by nodes, so the caller's order does not matter.
            places.sort_unstable_by_key(|place| names[*place as usize]);
            let ids: Vec<u64> = places.iter().map(|place| names[*place as usize]).collect();
            if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(Failed::new(format!("node {} is a seed twice: give each seed node once", twice[0])));
            }
            let labels = Labels::Classes(vec![0; ids.len()]);
            let all = Seeds::new(ids, labels).map_err(|error| Failed::new(error.to_string()))?;
            let plan = PlanConfig { run_key: seed, seeds_per_step: all.len(), edge_seeds: 0, slices: 1 };
            let order = Plan::new(plan, end, Arc::new(all))?.order(epoch);
            places = order.iter().map(|number| places[*number as usize]).collect();
        }
        Ok(Order { places, per_step: batch_size.saturating_mul(world_size), n_ranks: world_size, drop_last })
    }

    /// StepConfig of an epoch.
    pub(crate) fn n_steps(&self) -> u64 {
        let (n, per_step) = (self.places.len(), self.per_step);
        if self.drop_last { (n / per_step) as u64 } else { n.div_ceil(per_step) as u64 }
    }

    /// Seeds of a rank in a step of the epoch.
    pub(crate) fn slice(&self, step: u64, rank: usize) -> &[u32] {
        let start = step as usize * self.per_step;
        let all = &self.places[start..(start + self.per_step).min(self.places.len())];
        let (size, n_larger) = (all.len() / self.n_ranks, all.len() % self.n_ranks);
        let bound = |rank: usize| rank * size + rank.min(n_larger);
        &all[bound(rank)..bound(rank + 1)]
    }
}
