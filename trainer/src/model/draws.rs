//! Draws of a layer in a step: dropout, negatives, and the pairs of its edge loss. They are the same for every engine.

use kith_block::Pairs;
use kith_draw::{Purpose, Stream};
use kith_kernels::Dropout;
use kith_run::config::EdgeLossConfig;
use rayon::prelude::*;
use tch::Tensor;

use crate::{
    data::input::GraphInput,
    model::{
        block_edges::destination_of_edges,
        call::{Call, LayerRows},
        reference,
    },
};

/// The pairs that a layer's edge loss looks at in a step.
pub fn draw_pairs(config: &EdgeLossConfig, graph: &GraphInput, run_key: u64, step: u64, layer: usize) -> Pairs {
    let block = &*graph.block;
    let config = config.pairs(graph.is_symmetric, graph.is_one_of_many);
    let is_edge = |source, destination| block.has_edge(source, destination);
    Pairs::draw(run_key, step, layer as u32, block, config, is_edge)
}

/// Dropout factors of the first rows of a call's block, rows × width.
pub(super) fn row_factors(
    call: &Call<'_>,
    (dropout, stream): (Dropout, Stream),
    n_rows: usize,
    width: usize,
) -> Tensor {
    let mut factors = vec![0.0; n_rows * width];
    let block = &**call.block;
    factors.par_chunks_mut(width).enumerate().for_each(|(position, out)| {
        dropout.row_factors(stream, block.id(position), out);
    });
    call.tensor_of(&factors, width)
}

/// Dropout factors of a call's attention weights, edges × heads; `None` without dropout.
pub(super) fn attention_factors(call: &Call<'_>) -> Option<Tensor> {
    let (dropout, stream) = call.dropout(Purpose::AttentionDropout, call.config.attention_dropout())?;
    let (block, heads) = (&**call.block, call.shape.heads);
    let destinations = destination_of_edges(block);
    let mut factors = vec![0.0; block.n_edges() * heads];
    factors.par_chunks_mut(heads).zip(destinations.par_iter().zip(block.sources())).for_each(
        |(out, (destination, source))| {
            dropout.edge_factors(stream, block.id(*destination as usize), block.id(*source as usize), out);
        },
    );
    Some(call.tensor_of(&factors, heads))
}

/// 1 for each edge of a call that is in its sums, 0 for the others: edges × 1; `None` if all are.
pub(super) fn in_sums(call: &Call<'_>) -> Option<Tensor> {
    let left_out = call.left_out()?;
    let is_in = |edge| if left_out.leaves_out(edge) { 0.0 } else { 1.0 };
    Some(call.tensor_of(&(0..call.block.n_edges()).map(is_in).collect::<Vec<f32>>(), 1))
}

/// The rows of the block's sources, after dropout; for tensor operations.
pub(super) fn dropped(call: &Call<'_>, rows: &LayerRows<'_>) -> Tensor {
    let values = rows.to_tensor(call.weights);
    let dropout = match rows {
        LayerRows::Input(_) => call.dropout(Purpose::InputDropout, call.config.input_dropout()),
        LayerRows::Hidden(_) => call.dropout(Purpose::HiddenDropout, call.config.dropout),
        LayerRows::Ready(_) | LayerRows::Products { .. } => None,
    };
    let (n_rows, width) = (values.size()[0] as usize, values.size()[1] as usize);
    match dropout {
        None => values,
        Some(dropout) => values * row_factors(call, dropout, n_rows, width),
    }
}

/// The same times the weights of the layer.
pub(super) fn products(call: &Call<'_>, rows: &LayerRows<'_>) -> Tensor {
    if let LayerRows::Products { values, stride, is_packed } = rows {
        return call.pick_products(values, *stride, *is_packed);
    }
    reference::product(&dropped(call, rows), call.weight("weight"))
}
