//! Passes over all nodes with their neighbors, in order of id: a node moves to the shard of most of its neighbors,
//! unless that shard is getting heavy.
//!
//! The rule is that of LDG and Fennel (Stanton, Kliot 2012; Tsourakakis and others 2014), the repeated passes are those
//! of Nishimura and Ugander (2013), with a price for each of three loads. Memory beside the owners is a few numbers per
//! shard.
//!
//! A pass goes through batches of consecutive nodes. All nodes of a batch look at the owners and prices of its start, in
//! parallel, and ask for moves; the moves are then granted in order of id, at the prices that the earlier ones left. So
//! the result does not depend on the number of threads.

use std::ops::Range;

use kith_store::Neighbors;
use rayon::prelude::*;

use super::{
    adjacency::Adjacency,
    connections::{Connections, Counters, Known},
    group::Group,
    load::{Load, Loads, N_WEIGHTS, Weights},
    members::Members,
    price::{MEAN, Prices},
};
use crate::error::Result;

/// Share of all nodes that decide at once: one in this many, so that few of them are neighbors.
const BATCHES_PER_PASS: u64 = 256;
/// Most nodes that decide at once.
const MAX_BATCH_LEN: u64 = 1 << 13;
/// Nodes that one thread looks at before it takes more.
const PIECE_LEN: u64 = 1 << 8;

/// An assignment being made.
pub(super) struct Restream<'a> {
    weights: Weights<'a>,
    total: Load,
    pub(super) owner: Vec<u16>,
    pub(super) loads: Loads,
    prices: Prices,
    counters: Counters,
}

/// Cost, for an average node, of a shard that is one mean too heavy, in quarters of the node's edges.
pub(super) type Strength = i64;

/// Strength of a pass in which loads cost nothing, and no shard is filled beyond its limits.
pub(super) const FREE: Strength = 0;

/// Parameters of a pass.
#[derive(Clone, Copy)]
pub(super) struct Pass<'a> {
    /// The edges that count.
    pub(super) adjacency: Adjacency<'a>,
    pub(super) strength: Strength,
    /// Value of one of these edges, in parts of [`MEAN`] of an edge of the graph.
    edge_value: i64,
}

impl<'a> Pass<'a> {
    pub(super) fn new(adjacency: Adjacency<'a>, strength: Strength) -> Pass<'a> {
        let edge_value = match adjacency {
            Adjacency::Store(_) => MEAN,
            Adjacency::Core(core) => core.value_of_edge(MEAN),
        };
        Pass { adjacency, strength, edge_value }
    }

    /// Value of a shard that `n_edges` edges lead to, at this cost.
    #[inline]
    fn value(&self, n_edges: u32, cost: i64) -> i64 {
        i64::from(n_edges) * self.edge_value - self.strength * cost
    }
}

/// Edges of a node to the halves of its group.
#[derive(Default)]
struct Seen {
    /// To nodes of earlier batches.
    n_left: u32,
    n_right: u32,
    /// Earlier nodes of the same batch.
    near: Vec<u64>,
}

/// A node that is better off in another shard.
struct Wish {
    node: u64,
    /// Its own shard, if it has one, and its edges to it.
    own: Option<(u16, u32)>,
    to: u16,
    /// Edges to `to`.
    n_to: u32,
}

impl<'a> Restream<'a> {
    /// Goes on with an assignment to `n_shards` shards, all of which take nodes.
    pub(super) fn new(weights: Weights<'a>, owner: Vec<u16>, total: Load, limits: Load, n_shards: u32) -> Result<Self> {
        let loads = Loads::of(weights, &owner, n_shards, limits)?;
        Ok(Restream::with_loads(weights, owner, total, loads))
    }

    /// Goes on with an assignment of some nodes, which have these loads.
    pub(super) fn with_loads(weights: Weights<'a>, owner: Vec<u16>, total: Load, loads: Loads) -> Restream<'a> {
        let n_shards = loads.of_shard.len() as u32;
        let prices = Prices::new(total, loads.limits, n_shards);
        let mut restream = Restream { weights, total, owner, loads, prices, counters: Counters::new(n_shards) };
        restream.open((0..n_shards).map(|shard| Group { first: shard as u16, n_shards: 1 }));
        restream
    }

    /// From now on only these take nodes; their loads stay what they are.
    fn open(&mut self, groups: impl Iterator<Item = Group>) {
        self.prices = Prices::new(self.total, self.loads.limits, self.loads.of_shard.len() as u32);
        for group in groups {
            self.prices.open(group.first, group.n_shards, self.loads.of_shard[usize::from(group.first)]);
        }
    }

    fn batches(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let n_nodes = self.owner.len() as u64;
        let len = (n_nodes / BATCHES_PER_PASS).clamp(1, MAX_BATCH_LEN);
        (0..n_nodes.div_ceil(len)).map(move |batch| batch * len..n_nodes.min((batch + 1) * len))
    }

    /// Looks at the nodes of a batch in parallel, with a counter for each thread; answers are in order of id.
    fn look<T: Send>(
        &self,
        batch: Range<u64>,
        look: impl Fn(u64, &mut Connections, &mut Vec<T>) -> Result<()> + Sync,
    ) -> Result<Vec<Vec<T>>> {
        let n_pieces = (batch.end - batch.start).div_ceil(PIECE_LEN);
        let of_piece = |piece: u64| {
            let start = batch.start + piece * PIECE_LEN;
            let mut connections = self.counters.take();
            let mut found = Vec::new();
            let mut nodes = start..batch.end.min(start + PIECE_LEN);
            nodes.try_for_each(|node| look(node, &mut connections, &mut found))?;
            self.counters.give_back(connections);
            Ok(found)
        };
        (0..n_pieces).into_par_iter().map(of_piece).collect()
    }

    /// Halves every group: each node goes to one of its group's halves, looking at neighbors that went before.
    pub(super) fn split(&mut self, groups: &[Group], pass: Pass<'_>, on_nodes: &dyn Fn(u64)) -> Result<Vec<Group>> {
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
        for batch in self.batches() {
            let known = Known::Before(batch.start as usize);
            let look = |node: u64, connections: &mut Connections, found: &mut Vec<Seen>| {
                let left = self.owner[node as usize];
                found.push(match right_of[usize::from(left)] {
                    None => Seen::default(),
                    Some(right) => {
                        self.counters.count(connections, pass.adjacency, node, &self.owner, known)?;
                        let near = pass.adjacency.lists_of(node)?.map(|(list, _)| list);
                        let near = near.into_iter().flat_map(Neighbors::iter);
                        let near = near.filter(|id| (batch.start..node).contains(id)).collect();
                        Seen { n_left: connections.to(left), n_right: connections.to(right), near }
                    }
                });
                Ok(())
            };
            let found = self.look(batch.clone(), look)?;
            for (node, seen) in batch.clone().zip(found.into_iter().flatten()) {
                let left = self.owner[node as usize];
                let load = self.weights.of(node)?;
                let to = match right_of[usize::from(left)] {
                    None => left,
                    Some(right) => {
                        let near =
                            |shard| seen.near.iter().filter(|id| self.owner[**id as usize] == shard).count() as u32;
                        let (n_left, n_right) = (seen.n_left + near(left), seen.n_right + near(right));
                        let dues = self.prices.dues(load);
                        let value = |shard, n_edges| pass.value(n_edges, self.prices.of(shard, &dues));
                        if value(right, n_right) > value(left, n_left) { right } else { left }
                    }
                };
                self.put(node, to, load);
            }
            on_nodes(batch.end - batch.start);
        }
        Ok(halves)
    }

    /// Reads all nodes again and moves those that are better off elsewhere; says how many moved.
    pub(super) fn pass(&mut self, pass: Pass<'_>, on_nodes: &dyn Fn(u64)) -> Result<u64> {
        self.place(pass, None, on_nodes)
    }

    /// The same, where only core nodes have owners at first: all other nodes get theirs.
    pub(super) fn place(&mut self, pass: Pass<'_>, core: Option<&Members>, on_nodes: &dyn Fn(u64)) -> Result<u64> {
        let mut n_moved = 0;
        for batch in self.batches() {
            let known = core.map_or(Known::All, |core| Known::Core(core, batch.start as usize));
            let look = |node: u64, connections: &mut Connections, wishes: &mut Vec<Wish>| {
                self.counters.count(connections, pass.adjacency, node, &self.owner, known)?;
                let own = core.is_none_or(|core| core.contains(node)).then(|| self.owner[node as usize]);
                wishes.extend(self.wish(node, own, connections, pass)?);
                Ok(())
            };
            for wish in self.look(batch.clone(), look)?.into_iter().flatten() {
                n_moved += u64::from(self.grant(&wish, pass)?);
            }
            on_nodes(batch.end - batch.start);
        }
        Ok(n_moved)
    }

    /// The shard that is worth most to the node that was counted, if that is not its own; of equals the first.
    fn wish(&self, node: u64, own: Option<u16>, connections: &Connections, pass: Pass<'_>) -> Result<Option<Wish>> {
        let load = self.weights.of(node)?;
        let dues = self.prices.dues(load);
        let value = |shard: u16| pass.value(connections.to(shard), self.prices.of(shard, &dues));
        let mut best = own.map_or((i64::MIN, u16::MAX), |own| (value(own), own));
        for shard in connections.shards().iter().copied().chain([self.prices.cheapest()]) {
            let value = value(shard);
            let is_better = value > best.0 || (value == best.0 && Some(best.1) != own && shard < best.1);
            if is_better && self.may_take(shard, load, pass) {
                best = (value, shard);
            }
        }
        let own = own.map(|own| (own, connections.to(own)));
        // A node does not stand in its own way.
        let stays = |(own, n_own)| best.1 == own || best.0 <= pass.value(n_own, self.cost_of_own(own, load, &dues));
        Ok((!own.is_some_and(stays)).then(|| Wish { node, own, to: best.1, n_to: connections.to(best.1) }))
    }

    /// True if a shard may take a node: where loads cost nothing, limits count.
    #[inline]
    fn may_take(&self, shard: u16, load: Load, pass: Pass<'_>) -> bool {
        pass.strength != FREE || self.loads.has_room(shard, load)
    }

    /// Cost of a node's own shard, as if the node were not yet there.
    fn cost_of_own(&self, own: u16, load: Load, dues: &[i64; N_WEIGHTS]) -> i64 {
        let mut others = self.loads.of_shard[usize::from(own)];
        others -= load;
        self.prices.at_load(own, others, dues)
    }

    /// Moves a node to the shard that it chose, or to the cheapest one. The node stays if its own shard is worth as much by now. Returns
    /// true if it moved.
    fn grant(&mut self, wish: &Wish, pass: Pass<'_>) -> Result<bool> {
        let load = self.weights.of(wish.node)?;
        let dues = self.prices.dues(load);
        let own_value = |(own, n_own)| (pass.value(n_own, self.cost_of_own(own, load, &dues)), Some(own));
        let mut best = wish.own.map_or((i64::MIN, None), own_value);
        // Edges to a shard that became the cheapest just now were not counted.
        for (shard, n_edges) in [(wish.to, wish.n_to), (self.prices.cheapest(), 0)] {
            let value = pass.value(n_edges, self.prices.of(shard, &dues));
            if value > best.0 && self.may_take(shard, load, pass) {
                best = (value, Some(shard));
            }
        }
        let own = wish.own.map(|(own, _)| own);
        let Some(to) = best.1.filter(|to| Some(*to) != own) else { return Ok(false) };
        if let Some(own) = own {
            self.take_out(own, load);
        }
        self.put(wish.node, to, load);
        Ok(true)
    }

    fn take_out(&mut self, shard: u16, load: Load) {
        let own = &mut self.loads.of_shard[usize::from(shard)];
        *own -= load;
        self.prices.update(shard, *own);
    }

    fn put(&mut self, node: u64, shard: u16, load: Load) {
        self.owner[node as usize] = shard;
        let own = &mut self.loads.of_shard[usize::from(shard)];
        *own += load;
        self.prices.update(shard, *own);
    }

    /// Goes on with another assignment to the same groups.
    pub(super) fn resume(&mut self, owner: Vec<u16>, groups: &[Group]) -> Result<()> {
        self.loads = Loads::of(self.weights, &owner, self.loads.of_shard.len() as u32, self.loads.limits)?;
        self.owner = owner;
        self.open(groups.iter().copied());
        Ok(())
    }

    /// Entries of neighbor lists whose ends have different owners.
    pub(super) fn n_cut(&self, adjacency: Adjacency<'_>) -> Result<u64> {
        let of_node = |node: u64| -> Result<u64> {
            let own = self.owner[node as usize];
            let is_cut = |id: &u64| self.owner.get(*id as usize) != Some(&own);
            let lists = adjacency.lists_of(node)?;
            Ok(lists.iter().map(|(list, _)| list.iter().filter(is_cut).count() as u64).sum())
        };
        let n_nodes = self.owner.len() as u64;
        (0..n_nodes).into_par_iter().map(of_node).try_reduce(|| 0, |left, right| Ok(left + right))
    }

    /// Moves nodes out of shards that are beyond their limits to where there is room, those that lose least first;
    /// says whether all shards are within their limits now.
    pub(super) fn repair(&mut self, adjacency: Adjacency<'_>) -> Result<bool> {
        let mut connections = self.counters.take();
        for n_lost_parts in REPAIR_PARTS {
            if self.loads.are_within_limits() {
                return Ok(true);
            }
            for node in 0..self.owner.len() as u64 {
                let own = self.owner[node as usize];
                let load = self.weights.of(node)?;
                if !self.loads.is_relieved_without(own, load) {
                    continue;
                }
                self.counters.count(&mut connections, adjacency, node, &self.owner, Known::All)?;
                let most_lost = connections.n_all as i64 * n_lost_parts / N_REPAIR_PARTS;
                let least_kept = i64::from(connections.to(own)) - most_lost;
                let candidates = connections.shards().iter().copied().chain([self.prices.cheapest()]);
                let room = |shard: &u16| *shard != own && self.loads.has_room(*shard, load);
                let kept = |shard: u16| i64::from(connections.to(shard));
                let best = candidates.filter(room).max_by_key(|shard| (kept(*shard), std::cmp::Reverse(*shard)));
                if let Some(to) = best.filter(|shard| kept(*shard) >= least_kept) {
                    self.take_out(own, load);
                    self.put(node, to, load);
                }
            }
        }
        Ok(self.loads.are_within_limits())
    }
}

/// Most edges that a node may lose when a repair moves it, per sweep, in parts of its edges.
const REPAIR_PARTS: [i64; 6] = [0, 1, 2, 4, 8, 8];
const N_REPAIR_PARTS: i64 = 8;
