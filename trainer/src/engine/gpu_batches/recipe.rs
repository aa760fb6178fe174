//! Settings for sampling on a GPU.

use std::sync::Arc;

use kith_client::{BatchConfig, Plan};
use kith_sampler::{Fanout, Sampling};

/// Steps, fanouts and pairs of the slices that a GPU samples.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) plan: Arc<Plan>,
    /// From the roots outwards; `None`: all neighbors.
    pub(super) fanouts: Vec<Option<u32>>,
    /// Layers with pairs.
    pub(super) n_pair_layers: usize,
    /// True if neighbors are drawn by the weights of edges.
    pub(super) by_weight: bool,
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
            by_weight: config.sampling == Sampling::Weighted,
        }
    }
}
