//! Pairs of nodes that link prediction learns from in a mini-batch: edges of the step, and negatives.

use std::{collections::HashSet, ops::Range, sync::Arc};

use kith_draw::{Name, Purpose};
use kith_sampler::{Direction, Drawn};

use crate::{
    error::Result,
    plan::{Plan, Step},
    shards::Shards,
};

/// Attempts to draw a pair without an edge.
pub const N_ATTEMPTS: u16 = 16;

/// Pairs of mini-batches.
#[derive(Clone)]
pub struct LinkBatches {
    /// The graph that training knows: a pair without an edge there may be a negative.
    pub known: Arc<dyn Shards>,
    /// Negatives per edge.
    pub neg_sample_ratio: f64,
    /// Source of negatives.
    pub negatives: LinkNegatives,
    /// True if messages do not travel along the edges that a slice predicts.
    pub excludes_targets: bool,
}

/// Source of negatives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkNegatives {
    /// Two nodes of the graph, each with the same probability.
    #[default]
    Uniform,
    /// A node of an edge of the slice, and a node of another.
    InBatch,
}

/// Pairs of a slice, as positions among its roots: its edges first, then its negatives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchPairs {
    /// The first node of each.
    pub sources: Vec<u32>,
    /// The second node of each.
    pub destinations: Vec<u32>,
    /// The first `n_edges` pairs are edges.
    pub n_edges: usize,
    /// Pairs of all slices of the step, negatives that were left out included: the divisor of the loss.
    pub n_step_pairs: usize,
    /// Negatives of the slice that were left out, because every attempt was an edge.
    pub n_left_out: usize,
}

/// Pairs of a slice by the ids of their nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DrawnPairs {
    /// Edges, then negatives.
    pub(crate) pairs: Vec<(u64, u64)>,
    pub(crate) n_edges: usize,
    pub(crate) n_step_pairs: usize,
    n_left_out: usize,
    /// The edges in both directions.
    both: HashSet<(u64, u64)>,
}

impl LinkBatches {
    /// The pairs of a slice. Negatives are named by the step and their number in it; `n_layers` keeps their draws apart from those of
    /// layers.
    pub(crate) fn draw(&self, plan: &Plan, step: &Step, slice: usize, n_layers: usize) -> Result<DrawnPairs> {
        let edge = |place: &u32| {
            let (a, b) = plan.links()[*place as usize];
            (u64::from(a), u64::from(b))
        };
        let mut pairs: Vec<(u64, u64)> = step.slice(slice).seeds.iter().map(edge).collect();
        let n_edges = pairs.len();
        let n_negatives = (step.n_seeds() as f64 * self.neg_sample_ratio).round() as usize;
        let name = Name {
            run_key: plan.config().run_key,
            purpose: Purpose::Negative,
            step: step.step,
            layer: n_layers as u32,
        };
        let numbers = step.piece_of(n_negatives, slice);
        let negatives = self.draw_negatives(name, numbers.clone(), &pairs)?;
        let n_left_out = numbers.len() - negatives.len();
        let both = pairs.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]).collect();
        pairs.extend(negatives);
        Ok(DrawnPairs { pairs, n_edges, n_step_pairs: step.n_seeds() + n_negatives, n_left_out, both })
    }

    /// Negatives by number, without those that have an edge in every attempt.
    fn draw_negatives(&self, name: Name, numbers: Range<usize>, edges: &[(u64, u64)]) -> Result<Vec<(u64, u64)>> {
        if self.negatives == LinkNegatives::InBatch && edges.is_empty() {
            return Ok(Vec::new());
        }
        let (stream, n_nodes) = (name.stream(), self.known.info().n_nodes);
        let propose = |number: usize, attempt| {
            let mut draws = stream.draws(0, number as u64, attempt);
            match self.negatives {
                LinkNegatives::Uniform => (draws.below(n_nodes), draws.below(n_nodes)),
                LinkNegatives::InBatch => {
                    let one = edges[(number - numbers.start) % edges.len()];
                    let other = edges[draws.below(edges.len() as u64) as usize];
                    in_batch(one, other, draws.below(4))
                }
            }
        };
        let mut drawn = vec![None; numbers.len()];
        let mut open: Vec<usize> = numbers.clone().collect();
        for attempt in 0..N_ATTEMPTS {
            if open.is_empty() {
                break;
            }
            let pairs: Vec<(u64, u64)> = open.iter().map(|number| propose(*number, attempt)).collect();
            let mut are_edges = vec![false; pairs.len()];
            self.known.has_edges(&pairs, Direction::Either, &mut are_edges)?;
            let mut found = pairs.into_iter().zip(are_edges);
            open.retain(|number| {
                let ((a, b), is_edge) = found.next().expect("one answer per question");
                let is_free = a != b && !is_edge;
                if is_free {
                    drawn[number - numbers.start] = Some((a, b));
                }
                !is_free
            });
        }
        Ok(drawn.into_iter().flatten().collect())
    }
}

/// A node of one edge, and a node of another; `which` is below 4.
pub fn in_batch<T>(one: (T, T), other: (T, T), which: u64) -> (T, T) {
    let pick = |(a, b): (T, T), second: bool| if second { b } else { a };
    (pick(one, which & 1 == 1), pick(other, which & 2 == 2))
}

impl DrawnPairs {
    /// Both nodes of every pair.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = u64> {
        self.pairs.iter().flat_map(|(a, b)| [*a, *b])
    }

    /// The pairs as positions among roots that have all of them, ascending.
    pub(crate) fn place(&self, roots: &[u64]) -> BatchPairs {
        let position = |node: u64| roots.binary_search(&node).expect("both nodes of a pair are roots") as u32;
        let (sources, destinations) = self.pairs.iter().map(|(a, b)| (position(*a), position(*b))).unzip();
        let DrawnPairs { n_edges, n_step_pairs, n_left_out, .. } = *self;
        BatchPairs { sources, destinations, n_edges, n_step_pairs, n_left_out }
    }

    /// Drops the pairs that are edges from what a frontier drew, in both directions. The roots are the first of the frontier, and no
    /// other node has such an edge.
    pub(crate) fn drop_from(&self, frontier: &[u64], n_roots: usize, drawn: &mut Drawn) {
        drawn.retain(|place, neighbor| place >= n_roots || !self.both.contains(&(neighbor, frontier[place])));
    }
}

impl std::fmt::Debug for LinkBatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LinkBatches { neg_sample_ratio, negatives, excludes_targets, .. } = self;
        f.debug_struct("LinkBatches")
            .field("neg_sample_ratio", neg_sample_ratio)
            .field("negatives", negatives)
            .field("excludes_targets", excludes_targets)
            .finish_non_exhaustive()
    }
}
