//! `hash` and `range`: owners that follow from ids and do not look at neighbors.

use kith_draw::{Name, Purpose};
use kith_store::{Graph, Result};

/// Every node draws its shard.
pub(super) fn hash(n_nodes: u64, n_shards: u32, run_key: u64) -> Vec<u16> {
    let stream = Name { run_key, purpose: Purpose::Owner, step: 0, layer: 0 }.stream();
    (0..n_nodes).map(|node| stream.draws(node, 0, 0).below(u64::from(n_shards)) as u16).collect()
}

/// Ratios to the mean are tried in these parts.
const PARTS: u128 = 1 << 12;

/// Contiguous ids. The heaviest shard, by nodes or by edges, is as light as contiguity allows; within that, each shard
/// takes its share of what is left.
pub(super) fn range(graph: &Graph, n_shards: u32) -> Result<Vec<u16>> {
    let line = Line { bounds: graph.lists().indptr()?, n_shards: u128::from(n_shards) };
    let (mut low, mut high) = (0, PARTS * line.n_shards);
    while low < high {
        let middle = (low + high) / 2;
        if line.ends_from_left(middle).last() == Some(&line.n_nodes()) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let mut owner = vec![0; line.n_nodes()];
    let earliest = line.starts_from_right(high);
    let mut start = 0;
    for shard in 0..n_shards {
        // Nodes before the earliest start of the next shard must go to this one.
        let must = earliest.get(shard as usize + 1).copied().unwrap_or(line.n_nodes());
        let fair = line.fair_end(start, line.n_shards - u128::from(shard));
        let end = fair.max(must).min(line.end_after(start, high)).max(start);
        owner[start..end].fill(shard as u16);
        start = end;
    }
    Ok(owner)
}

/// All nodes in order of id, with the bounds of their lists.
struct Line<'a> {
    bounds: &'a [u64],
    n_shards: u128,
}

impl Line<'_> {
    fn n_nodes(&self) -> usize {
        self.bounds.len() - 1
    }

    fn n_edges(&self) -> u64 {
        self.bounds[self.n_nodes()]
    }

    /// The most nodes and edges of a shard at a ratio to the mean.
    fn limits(&self, ratio: u128) -> (usize, u64) {
        let of = |total: u64| (u128::from(total) * ratio / (PARTS * self.n_shards)) as u64;
        (of(self.n_nodes() as u64) as usize, of(self.n_edges()))
    }

    /// Largest end of a shard that starts at `start`.
    fn end_after(&self, start: usize, ratio: u128) -> usize {
        let (nodes, edges) = self.limits(ratio);
        let last = start.saturating_add(nodes).min(self.n_nodes());
        let most = self.bounds[start].saturating_add(edges);
        start + self.bounds[start + 1..=last].partition_point(|bound| *bound <= most)
    }

    /// Smallest start of a shard that ends at `end`.
    fn start_before(&self, end: usize, ratio: u128) -> usize {
        let (nodes, edges) = self.limits(ratio);
        let first = end.saturating_sub(nodes);
        let least = self.bounds[end].saturating_sub(edges);
        first + self.bounds[first..end].partition_point(|bound| *bound < least)
    }

    fn ends_from_left(&self, ratio: u128) -> Vec<usize> {
        let next = |start: &mut usize| {
            *start = self.end_after(*start, ratio);
            Some(*start)
        };
        (0..self.n_shards).scan(0, |start, _| next(start)).collect()
    }

    /// The earliest start of each shard, so that those behind it can take the rest.
    fn starts_from_right(&self, ratio: u128) -> Vec<usize> {
        let mut starts = vec![0; self.n_shards as usize];
        let mut end = self.n_nodes();
        for start in starts.iter_mut().rev() {
            end = self.start_before(end, ratio);
            *start = end;
        }
        starts
    }

    /// The end that leaves each of `n_left` shards the same share of nodes and edges together.
    fn fair_end(&self, start: usize, n_left: u128) -> usize {
        let weight = |place: usize| {
            let (nodes, edges) = (self.n_nodes().max(1) as u128, u128::from(self.n_edges().max(1)));
            place as u128 * edges + u128::from(self.bounds[place]) * nodes
        };
        let share = weight(start) + weight(self.n_nodes()).saturating_sub(weight(start)).div_ceil(n_left);
        let (mut low, mut high) = (start, self.n_nodes());
        while low < high {
            let middle = (low + high) / 2;
            if weight(middle) < share { low = middle + 1 } else { high = middle }
        }
        low
    }
}
