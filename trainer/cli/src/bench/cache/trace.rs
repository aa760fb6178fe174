//! Trace of a rank: the nodes whose remote features it needs, step by step.

use kith_store::NodeRows;

/// Step of a next use that the trace does not contain.
pub(super) const NEVER: u32 = u32::MAX;

/// Remote nodes of each step, and the step of each node's next use.
#[derive(Debug)]
pub(super) struct Trace {
    n_nodes: usize,
    /// Bounds of the steps in `nodes` and `next`.
    bounds: Vec<usize>,
    nodes: Vec<u32>,
    next: Vec<u32>,
    /// Steps whose fetches are counted. Later steps are only seen by windows.
    n_counted: usize,
    /// Mini-batches before each one that are still in memory and share their features with it.
    in_flight: usize,
}

impl Trace {
    /// Trace of a graph of `n_nodes`, without steps.
    pub(super) fn new(n_nodes: usize, n_counted: usize, in_flight: usize) -> Trace {
        Trace { n_nodes, bounds: vec![0], nodes: Vec::new(), next: Vec::new(), n_counted, in_flight }
    }

    /// Adds a step. Its nodes must differ.
    pub(super) fn push(&mut self, nodes: impl Iterator<Item = u32>) {
        self.nodes.extend(nodes);
        self.bounds.push(self.nodes.len());
    }

    /// Computes the next use of every access. All steps must have been added.
    pub(super) fn link(&mut self) {
        let mut coming = vec![NEVER; self.n_nodes];
        self.next = vec![NEVER; self.nodes.len()];
        for step in (0..self.n_steps()).rev() {
            for place in self.bounds[step]..self.bounds[step + 1] {
                let node = self.nodes[place] as usize;
                self.next[place] = std::mem::replace(&mut coming[node], step as u32);
            }
        }
    }

    pub(super) fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    /// Steps, counted or not.
    pub(super) fn n_steps(&self) -> usize {
        self.bounds.len() - 1
    }

    pub(super) fn n_counted(&self) -> usize {
        self.n_counted.min(self.n_steps())
    }

    /// Accesses of the counted steps.
    pub(super) fn n_accesses(&self) -> u64 {
        self.bounds[self.n_counted()] as u64
    }

    /// Nodes of a step; none after the last.
    pub(super) fn nodes(&self, step: usize) -> &[u32] {
        if step < self.n_steps() { &self.nodes[self.bounds[step]..self.bounds[step + 1]] } else { &[] }
    }

    /// Nodes of a step, each with the step of its next use.
    pub(super) fn accesses(&self, step: usize) -> impl Iterator<Item = (u32, u32)> {
        let own = self.bounds[step]..self.bounds[step + 1];
        self.nodes[own.clone()].iter().copied().zip(self.next[own].iter().copied())
    }

    /// Nodes that no mini-batch in flight has any more once `step` is done, each with the step of its next use. A cache may keep them.
    pub(super) fn leaving(&self, step: usize) -> impl Iterator<Item = (u32, u32)> {
        let last = step.checked_sub(self.in_flight);
        let accesses = last.into_iter().flat_map(|last| self.accesses(last));
        accesses.filter(move |(_, next)| *next as usize > step)
    }

    /// Accesses of the counted steps that a mini-batch in flight answers. No cache sees them.
    pub(super) fn n_shared(&self) -> u64 {
        self.n_shared_of(|_| true)
    }

    fn n_shared_of(&self, is_meant: impl Fn(u32) -> bool) -> u64 {
        let n_counted = self.n_counted();
        let of_step = |step: usize| {
            let end = (step + self.in_flight).min(n_counted - 1);
            self.accesses(step).filter(|(node, next)| *next as usize <= end && is_meant(*node)).count() as u64
        };
        (0..n_counted).map(of_step).sum()
    }

    /// Hits of a cache that never changes.
    pub(super) fn static_hits(&self, kept: &NodeRows) -> u64 {
        let is_kept = |node: u32| kept.row_of(u64::from(node)).is_some();
        let counted = &self.nodes[..self.bounds[self.n_counted()]];
        counted.iter().filter(|node| is_kept(**node)).count() as u64 - self.n_shared_of(is_kept)
    }

    /// Feature vectors of consecutive whole windows of `window` steps.
    pub(super) fn merged(&self, window: usize) -> Merged {
        let mut merged = Merged::default();
        let mut seen_in = vec![NEVER; self.n_nodes];
        for first in (0..=self.n_steps().saturating_sub(window)).step_by(window) {
            let mut n_distinct = 0;
            for step in first..first + window {
                let nodes = self.nodes(step);
                merged.n_vectors += nodes.len() as u64;
                let is_new =
                    |node: &&u32| std::mem::replace(&mut seen_in[**node as usize], first as u32) != first as u32;
                n_distinct += nodes.iter().filter(is_new).count() as u64;
            }
            merged.n_distinct += n_distinct;
            merged.most_distinct = merged.most_distinct.max(n_distinct);
        }
        merged
    }
}

/// Feature vectors of windows that are fetched together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Merged {
    /// Sum over the steps.
    pub(super) n_vectors: u64,
    /// Sum over the windows, each node once per window.
    pub(super) n_distinct: u64,
    /// Distinct nodes of the largest window.
    pub(super) most_distinct: u64,
}

#[cfg(test)]
pub(super) mod testing {
    use super::Trace;

    /// A linked trace whose steps are all counted.
    pub(in super::super) fn trace(n_nodes: usize, steps: &[Vec<u32>], in_flight: usize) -> Trace {
        let mut trace = Trace::new(n_nodes, steps.len(), in_flight);
        steps.iter().for_each(|step| trace.push(step.iter().copied()));
        trace.link();
        trace
    }

    /// Random steps, a few of them empty. Low ids are more probable.
    pub(in super::super) fn random_steps(n_nodes: u32, n_steps: usize, seed: u64) -> Vec<Vec<u32>> {
        let mut state = seed;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        (0..n_steps).map(|_| (0..n_nodes).filter(|node| draw() % (2 + node) < 2 && draw() % 3 > 0).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::trace, *};

    #[test]
    fn next_uses_are_linked() {
        let trace = trace(4, &[vec![0, 1], vec![], vec![1, 2], vec![2, 0, 1]], 0);
        let next = |step| trace.accesses(step).map(|(_, next)| next).collect::<Vec<_>>();
        assert_eq!([next(0), next(2), next(3)], [vec![3, 2], vec![3, 3], vec![NEVER; 3]]);
        assert!(trace.nodes(1).is_empty() && trace.nodes(4).is_empty());
    }

    #[test]
    fn windows_count_each_node_once() {
        let trace = trace(4, &[vec![0, 1], vec![1], vec![1, 2], vec![2, 3], vec![0]], 0);
        assert_eq!(trace.merged(1), Merged { n_vectors: 8, n_distinct: 8, most_distinct: 2 });
        assert_eq!(trace.merged(2), Merged { n_vectors: 7, n_distinct: 5, most_distinct: 3 });
        assert_eq!(trace.merged(5), Merged { n_vectors: 8, n_distinct: 4, most_distinct: 4 });
    }

    #[test]
    fn later_steps_are_not_counted() {
        let mut trace = Trace::new(3, 1, 0);
        trace.push([0, 1].into_iter());
        trace.push([0, 2].into_iter());
        trace.link();
        assert_eq!((trace.n_accesses(), trace.n_steps()), (2, 2));
        assert_eq!(trace.static_hits(&NodeRows::new(3, |node| node != 1)), 1);
    }

    #[test]
    fn mini_batches_in_flight_share_their_features() {
        let steps = [vec![0, 1], vec![1, 2], vec![0, 3], vec![1]];
        let of = |in_flight| {
            let trace = trace(4, &steps, in_flight);
            let leaving = (0..4).map(|step| trace.leaving(step).map(|(node, _)| node).collect()).collect();
            (trace.n_shared(), trace.static_hits(&NodeRows::new(4, |node| node == 1)), leaving)
        };
        let all: Vec<Vec<u32>> = steps.to_vec();
        assert_eq!(of(0), (0, 3, all));
        assert_eq!(of(1), (1, 2, vec![vec![], vec![0], vec![1, 2], vec![0, 3]]));
        assert_eq!(of(2), (3, 1, vec![vec![], vec![], vec![], vec![2]]));
    }
}
