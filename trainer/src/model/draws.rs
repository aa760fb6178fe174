//! What a layer draws in a step: dropout, negatives, and the pairs its edge loss looks at. Whatever computes the layer,
//! the draws are these.

use kith_draw::{Name, Purpose};
use kith_kernels::{Block, Negatives, PairSubset};
use rayon::prelude::*;
use tch::Tensor;

use crate::{
    config::{EdgeLossConfig, Exclude, Subset},
    input::GraphInput,
    model::{Call, Pass},
};

/// Full batches have one slice of negatives and one of pairs.
const SLICE: u64 = 0;

/// The pairs that one layer's edge loss looks at: edges of the block, and pairs without an edge.
#[derive(Debug)]
pub struct Pairs {
    /// Pairs without an edge.
    pub negatives: Negatives,
    /// Which pairs are looked at: edges in the block's order, then, with [`Subset::Union`], negatives.
    pub kept: PairSubset,
    /// What `kept` speaks of.
    pub subset: Subset,
}

impl Pairs {
    /// The pairs of a layer in a step.
    pub fn draw(config: &EdgeLossConfig, graph: &GraphInput, run_key: u64, step: u64, layer: usize) -> Pairs {
        let block = &*graph.block;
        let stream = |purpose| Name { run_key, purpose, step, layer: layer as u32 }.stream();
        let n_edges = block.n_edges();
        let n_negatives = match config.subset {
            Subset::Union => share(config.negatives, n_edges),
            Subset::Each => share(config.negatives * config.kept, n_edges),
        };
        let n_negatives = n_negatives.min((block.n_sources() * block.n_destinations()).saturating_sub(n_edges));
        let has_reverses = config.exclude == Exclude::Symmetric && !graph.is_symmetric && !graph.is_one_of_many;
        let stream_of_negatives = stream(Purpose::Negative);
        let negatives = if has_reverses {
            Negatives::draw(stream_of_negatives, SLICE, n_negatives, block, |source, destination| {
                block.has_edge(source, destination) || block.has_edge(destination, source)
            })
        } else {
            Negatives::draw(stream_of_negatives, SLICE, n_negatives, block, |source, destination| {
                block.has_edge(source, destination)
            })
        };
        let n_pairs = match config.subset {
            Subset::Union => n_edges + negatives.len(),
            Subset::Each => n_edges,
        };
        let kept = PairSubset::draw(stream(Purpose::PairSubset), SLICE, n_pairs, share(config.kept, n_pairs));
        Pairs { negatives, kept, subset: config.subset }
    }

    /// Whether an edge is looked at.
    pub fn holds_edge(&self, edge: usize) -> bool {
        self.kept.holds(edge)
    }

    /// Whether a negative is looked at; `n_edges` are the block's.
    pub fn holds_negative(&self, negative: usize, n_edges: usize) -> bool {
        match self.subset {
            Subset::Union => self.kept.holds(n_edges + negative),
            Subset::Each => true,
        }
    }

    /// How many pairs are looked at.
    pub fn n_kept(&self) -> usize {
        match self.subset {
            Subset::Union => self.kept.n_kept(),
            Subset::Each => self.kept.n_kept() + self.negatives.len(),
        }
    }
}

/// The whole number just below a share of `n`.
fn share(p: f64, n: usize) -> usize {
    (p * n as f64) as usize
}

/// The pairs of a call; none when evaluating or without edge loss.
pub(super) fn pairs(call: &Call<'_>) -> Option<Pairs> {
    let Pass::Train { run_key, step } = call.pass else { return None };
    let config = call.model.edge_loss.as_ref()?;
    Some(Pairs::draw(config, call.graph, run_key, step, call.layer))
}

/// What a call's rows are multiplied with, nodes × width; `None` where nothing is dropped.
pub(super) fn row_factors(call: &Call<'_>) -> Option<Tensor> {
    let (run_key, step, dropout) = call.dropout()?;
    let purpose = if call.layer == 0 { Purpose::InputDropout } else { Purpose::HiddenDropout };
    let stream = Name { run_key, purpose, step, layer: call.layer as u32 }.stream();
    let (block, width) = (&*call.graph.block, call.shape().dim);
    let mut factors = vec![0.0; block.n_sources() * width];
    factors.par_chunks_mut(width).enumerate().for_each(|(position, out)| {
        dropout.row_factors(stream, block.id(position), out);
    });
    Some(on_device(call, &factors, width))
}

/// What a call's attention weights are multiplied with, edges × heads; `None` where nothing is dropped.
pub(super) fn attention_factors(call: &Call<'_>) -> Option<Tensor> {
    let (run_key, step, dropout) = call.dropout()?;
    let stream = Name { run_key, purpose: Purpose::AttentionDropout, step, layer: call.layer as u32 }.stream();
    let (block, heads) = (&*call.graph.block, call.shape().heads);
    let destinations = destination_of_edges(block);
    let mut factors = vec![0.0; block.n_edges() * heads];
    factors.par_chunks_mut(heads).zip(destinations.par_iter().zip(block.sources())).for_each(
        |(out, (destination, source))| {
            dropout.edge_factors(stream, block.id(*destination as usize), block.id(*source as usize), out);
        },
    );
    Some(on_device(call, &factors, heads))
}

fn on_device(call: &Call<'_>, values: &[f32], width: usize) -> Tensor {
    let like = call.model.weights.flat();
    Tensor::from_slice(values).view([-1, width as i64]).to_device(like.device()).to_kind(like.kind())
}

/// The destination of each edge of a block, by destination.
pub(super) fn destination_of_edges(block: &Block) -> Vec<u32> {
    let mut destinations = Vec::with_capacity(block.n_edges());
    for destination in 0..block.n_destinations() {
        destinations.resize(block.indptr()[destination + 1], destination as u32);
    }
    destinations
}
