//! Passes over all nodes with their neighbors, in order of id: a node moves to the shard of most of its neighbors,
//! unless that shard is getting heavy.
//!
//! The rule is that of LDG and Fennel (Stanton, Kliot 2012; Tsourakakis and others 2014), the repeated passes are those
//! of Nishimura and Ugander (2013), with a price for each of three loads. Memory beside the owners is a few numbers per
//! shard.

use kith_store::Graph;

use super::{
    connections::Connections,
    load::{Load, Loads, N_WEIGHTS, Weights},
    price::{MEAN, Prices},
};
use crate::error::Result;

/// Shards that stand together: `n_shards` of them, the first names all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) first: u16,
    pub(super) n_shards: u32,
}

impl Group {
    /// Two halves; a single shard has no second one.
    pub(super) fn halves(self) -> (Group, Option<Group>) {
        if self.n_shards < 2 {
            return (self, None);
        }
        let n_left = self.n_shards / 2;
        let right = Group { first: self.first + n_left as u16, n_shards: self.n_shards - n_left };
        (Group { n_shards: n_left, ..self }, Some(right))
    }
}

/// An assignment being made.
pub(super) struct Restream<'a> {
    graph: &'a Graph,
    weights: Weights<'a>,
    total: Load,
    pub(super) owner: Vec<u16>,
    pub(super) loads: Loads,
    prices: Prices,
    connections: Connections,
}

/// Cost, for an average node, of a shard that is one mean too heavy, in quarters of the node's edges.
pub(super) type Strength = i64;

impl<'a> Restream<'a> {
    /// Goes on with an assignment to `n_shards` shards, all of which take nodes.
    pub(super) fn new(graph: &'a Graph, owner: Vec<u16>, total: Load, limits: Load, n_shards: u32) -> Result<Self> {
        let weights = Weights::new(graph);
        let loads = Loads::of(weights, &owner, n_shards, limits)?;
        let mut restream = Restream {
            graph,
            weights,
            total,
            owner,
            loads,
            prices: Prices::new(total, limits, n_shards),
            connections: Connections::new(n_shards),
        };
        restream.open((0..n_shards).map(|shard| Group { first: shard as u16, n_shards: 1 }));
        Ok(restream)
    }

    /// From now on only these take nodes; their loads stay what they are.
    fn open(&mut self, groups: impl Iterator<Item = Group>) {
        self.prices = Prices::new(self.total, self.loads.limits, self.loads.of_shard.len() as u32);
        for group in groups {
            self.prices.open(group.first, group.n_shards, self.loads.of_shard[usize::from(group.first)]);
        }
    }

    /// Halves every group: each node goes to one of its group's halves, looking at neighbors that went before.
    pub(super) fn split(&mut self, groups: &[Group], strength: Strength, on_nodes: &dyn Fn(u64)) -> Result<Vec<Group>> {
        let mut right_of = vec![None; self.loads.of_shard.len()];
        let mut halves = Vec::with_capacity(2 * groups.len());
        for group in groups {
            let (left, right) = group.halves();
            halves.push(left);
            if let Some(right) = right {
                right_of[usize::from(group.first)] = Some(right.first);
                halves.push(right);
            }
        }
        self.loads.of_shard.fill(Load::default());
        self.open(halves.iter().copied());
        for node in 0..self.graph.n_nodes() {
            let place = node as usize;
            let left = self.owner[place];
            let load = self.weights.of(node)?;
            let to = match right_of[usize::from(left)] {
                None => left,
                Some(right) => {
                    self.connections.count(self.graph, node, &self.owner[..], place)?;
                    let dues = self.prices.dues(load);
                    if self.value(right, &dues, strength) > self.value(left, &dues, strength) { right } else { left }
                }
            };
            self.put(place, to, load);
            report(node, on_nodes);
        }
        Ok(halves)
    }

    /// Reads all nodes again and moves those that are better off elsewhere; says how many moved.
    pub(super) fn pass(&mut self, strength: Strength, on_nodes: &dyn Fn(u64)) -> Result<u64> {
        let mut n_moved = 0;
        for node in 0..self.graph.n_nodes() {
            let place = node as usize;
            let own = self.owner[place];
            let load = self.weights.of(node)?;
            self.connections.count(self.graph, node, &self.owner[..], self.owner.len())?;
            // A node does not stand in its own way.
            self.loads.of_shard[usize::from(own)] -= load;
            self.prices.update(own, self.loads.of_shard[usize::from(own)]);
            let to = self.best(own, load, strength);
            n_moved += u64::from(to != own);
            self.put(place, to, load);
            report(node, on_nodes);
        }
        Ok(n_moved)
    }

    /// The shard that is worth most to the node that was counted: of equals its own, else the first.
    fn best(&self, own: u16, load: Load, strength: Strength) -> u16 {
        let dues = self.prices.dues(load);
        let cheapest = self.prices.cheapest();
        let mut best = (self.value(own, &dues, strength), own);
        for shard in self.connections.shards().iter().copied().chain([cheapest]) {
            let value = self.value(shard, &dues, strength);
            if value > best.0 || (value == best.0 && best.1 != own && shard < best.1) {
                best = (value, shard);
            }
        }
        best.1
    }

    /// Value of a shard for the node in `connections`.
    #[inline]
    fn value(&self, shard: u16, dues: &[i64; N_WEIGHTS], strength: Strength) -> i64 {
        i64::from(self.connections.to(shard)) * MEAN - strength * self.prices.of(shard, dues)
    }

    fn put(&mut self, place: usize, shard: u16, load: Load) {
        self.owner[place] = shard;
        let own = &mut self.loads.of_shard[usize::from(shard)];
        *own += load;
        self.prices.update(shard, *own);
    }

    /// Moves nodes out of shards that are beyond their limits to where there is room, those that lose least first;
    /// says whether all shards are within their limits now.
    pub(super) fn repair(&mut self) -> Result<bool> {
        for n_lost_parts in REPAIR_PARTS {
            if self.loads.are_within_limits() {
                return Ok(true);
            }
            for node in 0..self.graph.n_nodes() {
                let place = node as usize;
                let own = self.owner[place];
                let load = self.weights.of(node)?;
                if !self.loads.is_relieved_without(own, load) {
                    continue;
                }
                self.connections.count(self.graph, node, &self.owner[..], self.owner.len())?;
                let most_lost = self.connections.n_all as i64 * n_lost_parts / N_REPAIR_PARTS;
                let least_kept = i64::from(self.connections.to(own)) - most_lost;
                let candidates = self.connections.shards().iter().copied().chain([self.prices.cheapest()]);
                let room = |shard: &u16| *shard != own && self.loads.has_room(*shard, load);
                let kept = |shard: u16| i64::from(self.connections.to(shard));
                let best = candidates.filter(room).max_by_key(|shard| (kept(*shard), std::cmp::Reverse(*shard)));
                if let Some(to) = best.filter(|shard| kept(*shard) >= least_kept) {
                    self.loads.of_shard[usize::from(own)] -= load;
                    self.prices.update(own, self.loads.of_shard[usize::from(own)]);
                    self.put(place, to, load);
                }
            }
        }
        Ok(self.loads.are_within_limits())
    }
}

/// Most edges that a node may lose when a repair moves it, per sweep, in parts of its edges.
const REPAIR_PARTS: [i64; 6] = [0, 1, 2, 4, 8, 8];
const N_REPAIR_PARTS: i64 = 8;

/// Nodes between two reports.
const REPORT_EVERY: u64 = 1 << 16;

fn report(node: u64, on_nodes: &dyn Fn(u64)) {
    if (node + 1).is_multiple_of(REPORT_EVERY) {
        on_nodes(REPORT_EVERY);
    }
}
