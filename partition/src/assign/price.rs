//! Prices of shards: the cost for a node of joining a shard that is above or below its mean load. Integers only.

use super::{
    cheapest::Cheapest,
    load::{Load, N_WEIGHTS},
};

/// Fixed-point unit of loads: the mean load is `MEAN`.
pub(super) const MEAN: i64 = 1 << 10;

/// Strengths count in quarters.
const STRENGTH_UNIT: i64 = 4;

/// Beyond this a shard is as full as can be; products with it stay far from 2^63.
const MAX_PRICE: i64 = 1 << 20;

/// The same for what a node pays: nodes with 2^32 edges are as heavy as can be.
const MAX_DUE: i64 = 1 << 36;

/// A shard that takes no node never is the cheapest.
const CLOSED: i64 = i64::MAX;

/// The prices of every shard, one per weight: how far its load is above the mean, or below it. A node pays for what it
/// weighs, so that a shard with many edges but few nodes is dear to hubs and cheap to the others.
pub(super) struct Prices {
    /// Of what is balanced, the mean of all shards; 0 for what is not.
    means: [u64; N_WEIGHTS],
    /// Price of one unit of each weight: edges, in parts of [`UNIT`].
    units: [i64; N_WEIGHTS],
    /// Number of final shards that each shard stands for; 0 for a closed shard.
    n_shards: Vec<u32>,
    of_shard: Vec<[i64; N_WEIGHTS]>,
    /// By the highest of a shard's prices.
    cheapest: Cheapest,
}

/// Edges are counted in parts, so that small averages are not lost.
const UNIT: i64 = 1 << 4;

impl Prices {
    /// All shards are closed.
    pub(super) fn new(total: Load, limits: Load, n_shards: u32) -> Prices {
        let mut means = [0; N_WEIGHTS];
        let mut units = [0; N_WEIGHTS];
        for weight in 0..N_WEIGHTS {
            if limits.0[weight] != u64::MAX {
                means[weight] = (total.0[weight] / u64::from(n_shards)).max(1);
                // All nodes together pay as much for each weight: what all edges are worth.
                units[weight] =
                    (total.0[1].max(total.0[0]) as i64).saturating_mul(UNIT) / total.0[weight].max(1) as i64;
            }
        }
        Prices {
            means,
            units,
            n_shards: vec![0; n_shards as usize],
            of_shard: vec![[MAX_PRICE; N_WEIGHTS]; n_shards as usize],
            cheapest: Cheapest::new(n_shards, CLOSED),
        }
    }

    /// Opens a shard that stands for `n_shards` of them.
    pub(super) fn open(&mut self, shard: u16, n_shards: u32, load: Load) {
        self.n_shards[usize::from(shard)] = n_shards;
        self.update(shard, load);
    }

    /// A shard's load has changed.
    #[inline]
    pub(super) fn update(&mut self, shard: u16, load: Load) {
        let prices = self.at(shard, load);
        self.of_shard[usize::from(shard)] = prices;
        self.cheapest.set(shard, prices.into_iter().max().unwrap_or(0));
    }

    /// Prices of an open shard with this load.
    #[inline]
    fn at(&self, shard: u16, load: Load) -> [i64; N_WEIGHTS] {
        let n_shards = u64::from(self.n_shards[usize::from(shard)]);
        let mut prices = [-MEAN; N_WEIGHTS];
        for (price, (load, mean)) in prices.iter_mut().zip(load.0.into_iter().zip(self.means)) {
            if mean > 0 {
                let n_parts = load.saturating_mul(MEAN as u64) / (mean * n_shards);
                *price = n_parts.min(MAX_PRICE as u64) as i64 - MEAN;
            }
        }
        prices
    }

    /// Amount that a node pays for each weight, in parts of edges.
    #[inline]
    pub(super) fn dues(&self, load: Load) -> [i64; N_WEIGHTS] {
        let mut dues = self.units;
        for (due, load) in dues.iter_mut().zip(load.0) {
            *due = due.saturating_mul(load as i64).min(MAX_DUE);
        }
        dues
    }

    /// Cost of an open shard for a node with these dues, in edges times [`MEAN`].
    #[inline]
    pub(super) fn of(&self, shard: u16, dues: &[i64; N_WEIGHTS]) -> i64 {
        cost(&self.of_shard[usize::from(shard)], dues)
    }

    /// Cost of an open shard if it had this load.
    #[inline]
    pub(super) fn at_load(&self, shard: u16, load: Load, dues: &[i64; N_WEIGHTS]) -> i64 {
        cost(&self.at(shard, load), dues)
    }

    /// The shard whose highest price is lowest; of equals the first.
    #[inline]
    pub(super) fn cheapest(&self) -> u16 {
        self.cheapest.cheapest()
    }
}

#[inline]
fn cost(prices: &[i64; N_WEIGHTS], dues: &[i64; N_WEIGHTS]) -> i64 {
    (dues[0] * prices[0] + dues[1] * prices[1] + dues[2] * prices[2]) / (STRENGTH_UNIT * UNIT)
}
