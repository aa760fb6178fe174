//! GAT: out_i = Σ_j α_ij · h_j with h = x·W, α_i = softmax of leakyReLU(e_ij) over the neighbors j of i and i itself. The
//! forms of e are in [`Form`].

use kith_block::Pairs;
use kith_kernels::{AttentionLayer, AttentionWeights, Form, OpenList};
use tch::{TchError, Tensor};

use crate::{
    config::Kernels,
    model::{Call, LayerOutput, LayerRows, LayerShape, draws, reference, weight_name},
    weights::{Entry, Initial},
};

/// The weights of a layer. Glorot's bounds look at whole tensors: a head is not a tensor of its own.
pub(super) fn entries(layer: usize, shape: LayerShape, form: Form) -> Vec<Entry> {
    let LayerShape { dim, heads, features, .. } = shape;
    let entry = |name, shape: &[usize], initial| Entry {
        name: weight_name(layer, name),
        shape: shape.iter().map(|size| *size as i64).collect(),
        initial,
    };
    let weight = entry("weight", &[dim, heads * features], Initial::glorot(dim, heads * features));
    let attention = entry("attention", &[heads, 2 * features], Initial::glorot(heads, 2 * features));
    let bias = entry("bias", &[shape.width()], Initial::Zero);
    if form.has_weights() { vec![weight, attention, bias] } else { vec![weight, bias] }
}

pub(super) fn forward(call: &Call<'_>, rows: &LayerRows<'_>) -> Result<LayerOutput, TchError> {
    attend(call, rows, None)
}

/// An attention layer, with an edge loss where there are pairs.
pub(super) fn attend(call: &Call<'_>, rows: &LayerRows<'_>, pairs: Option<Pairs>) -> Result<LayerOutput, TchError> {
    let n_negatives_left_out = pairs.as_ref().map_or(0, |pairs| pairs.negatives().n_left_out);
    let weights = weights_of(call);
    let (shape, form) = (call.shape(), call.model.config.form);
    match call.model.kernels {
        Kernels::Fused => {
            let input = rows.as_input();
            let (rows, edge_loss) = fused(call).forward(input, weights, call.block, call.layer_draws(), pairs)?;
            Ok(LayerOutput { rows, attention: None, edge_losses: Vec::from_iter(edge_loss), n_negatives_left_out })
        }
        Kernels::Reference => {
            let factors = draws::attention_factors(call);
            let attended = reference::attend(
                &call.products(rows),
                call.edges(),
                weights,
                (shape, form),
                factors.as_ref(),
                pairs.as_ref(),
            );
            let (attention, edge_losses) = (Some(attended.attention), Vec::from_iter(attended.edge_loss));
            Ok(LayerOutput { rows: attended.rows, attention, edge_losses, n_negatives_left_out })
        }
    }
}

/// The same of one destination whose list comes in pieces, once it was the last one.
pub(super) fn attend_piece(
    call: &Call<'_>,
    rows: &LayerRows<'_>,
    open: &mut OpenList,
    is_last: bool,
) -> Option<Tensor> {
    fused(call).forward_piece(rows.as_input(), weights_of(call), (call.block, is_last), open)
}

fn fused(call: &Call<'_>) -> AttentionLayer {
    let LayerShape { heads, features, concat, .. } = call.shape();
    AttentionLayer { form: call.model.config.form, heads, features, is_mean: !concat }
}

fn weights_of<'a>(call: &'a Call<'_>) -> AttentionWeights<'a> {
    AttentionWeights {
        weight: call.weight("weight"),
        attention: call.find_weight("attention"),
        bias: call.weight("bias"),
    }
}
