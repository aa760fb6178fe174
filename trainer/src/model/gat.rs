//! GAT: out_i = Σ_j α_ij · h_j with h = x·W, α_i = softmax of leakyReLU(e_ij) over the neighbors j of i and i itself. The
//! forms of e are in [`Form`].

use kith_kernels::Form;

use crate::{
    config::Kernels,
    model::{Call, LayerOutput, LayerRows, LayerShape, Pairs, draws, reference, weight_name},
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

pub(super) fn forward(call: &Call<'_>, rows: &LayerRows<'_>) -> LayerOutput {
    attend(call, rows, None)
}

/// An attention layer, with an edge loss where there are pairs.
pub(super) fn attend(call: &Call<'_>, rows: &LayerRows<'_>, pairs: Option<Pairs>) -> LayerOutput {
    let weights = reference::AttentionWeights {
        weight: call.weight("weight"),
        attention: call.find_weight("attention"),
        bias: call.weight("bias"),
    };
    let attended = match call.model.kernels {
        Kernels::Fused | Kernels::Reference => reference::attend(
            &call.dropped_rows(rows),
            call.edges,
            weights,
            (call.shape(), call.model.config.form),
            draws::attention_factors(call).as_ref(),
            pairs.as_ref(),
        ),
    };
    LayerOutput {
        rows: attended.rows,
        attention: Some(attended.attention),
        edge_loss: attended.edge_loss,
        n_negatives_left_out: pairs.map_or(0, |pairs| pairs.negatives.n_left_out),
    }
}
