//! GAT: out_i = Σ_j α_ij · h_j with h = x·W, α_i = softmax of leakyReLU(e_ij) over the neighbors j of i and i itself.
//! The variants of e are in [`Form`]. With V2's, GATv2, the softmax is of e itself.
//!
//! Edges may have features r: their weights, features of the store, or both. Then b·(r·U) is added to the linear term of e, or to the dot
//! product if there is no other; with V2, r·U is added before the leaky ReLU. Edge loss logits leave them out, because negative pairs have
//! no features.

use kith_block::{Form, Pairs};
use kith_kernels::{
    AttentionLayer, AttentionStep, AttentionWeights, OpenList,
    cuda::{LayerKind, LayerPlan},
};
use kith_run::{
    config::{Kernels, ModelConfig},
    model_kind::ModelKind,
};
use tch::{TchError, Tensor};

use crate::{
    model::{
        call::{Call, Compare, LayerOutput, LayerRows},
        draws,
        layer_shape::{LayerShape, weight_name},
        pyg::{PygMap, PygTensor},
        reference,
        spec::ModelSpec,
    },
    weights::{Entry, Initial},
};

/// GAT.
#[derive(Debug)]
pub(super) struct Gat;

impl ModelSpec for Gat {
    fn kind(&self) -> ModelKind {
        ModelKind::Gat
    }

    fn weights(&self, layer: usize, shape: LayerShape, config: &ModelConfig) -> Vec<Entry> {
        entries(layer, shape, config)
    }

    fn forward(&self, call: &Call<'_>, rows: &LayerRows<'_>, _compare: Compare) -> Result<LayerOutput, TchError> {
        attend(call, rows, None)
    }

    fn forward_piece(
        &self,
        call: &Call<'_>,
        rows: &LayerRows<'_>,
        open: &mut OpenList,
        is_last: bool,
    ) -> Option<Tensor> {
        attend_piece(call, rows, open, is_last)
    }

    fn gpu_layer(&self, config: &ModelConfig) -> Result<LayerKind, String> {
        attention_on_gpu(config)
    }

    fn pyg_layer(&self, config: &ModelConfig) -> Result<Vec<PygTensor>, &'static str> {
        attention_in_pyg(config)
    }
}

/// Attention as a GPU's kernels compute it, or the reason why they cannot.
pub(super) fn attention_on_gpu(config: &ModelConfig) -> Result<LayerKind, String> {
    let n_heads = config.heads.max(config.out_heads);
    if n_heads > LayerPlan::MAX_HEADS {
        return Err(format!("the kernels for GPUs take up to {} heads, not {n_heads}", LayerPlan::MAX_HEADS));
    }
    Ok(LayerKind::Attention(config.attention))
}

/// Weights of an attention layer in PyG's names: of `SuperGATConv` (MX, SD), `GATConv` (GO) or `GATv2Conv` (V2).
pub(super) fn attention_in_pyg(config: &ModelConfig) -> Result<Vec<PygTensor>, &'static str> {
    let half = |half, theirs| PygTensor { ours: "layers.{}.attention", theirs, map: PygMap::Half(half) };
    let heads = PygTensor { ours: "layers.{}.attention", theirs: "att", map: PygMap::Heads };
    let source_bias = PygTensor { ours: "layers.{}.target.bias", theirs: "lin_l.bias", map: PygMap::SourceBias };
    let weight = PygTensor::turned("layers.{}.weight", "lin.weight");
    let bias = PygTensor::same("layers.{}.bias", "bias");
    let mut tensors = match config.attention {
        Form::Dp => return Err("PyG has no layer with plain dot products: use Kith's names (kith export --to kith)"),
        Form::Mx | Form::Sd if config.n_edge_terms() > 0 => {
            return Err("PyG's SuperGATConv has no features of edges: use Kith's names (kith export --to kith)");
        }
        Form::Go => vec![weight, half(0, "att_dst"), half(1, "att_src"), bias],
        Form::Mx => vec![weight, half(0, "att_r"), half(1, "att_l"), bias],
        Form::Sd => vec![weight, bias],
        Form::V2 => vec![
            PygTensor::turned("layers.{}.weight", "lin_l.weight"),
            PygTensor::turned("layers.{}.target.weight", "lin_r.weight"),
            PygTensor::same("layers.{}.target.bias", "lin_r.bias"),
            heads,
            bias,
            source_bias,
        ],
    };
    if config.n_edge_terms() > 0 {
        tensors.push(PygTensor::turned("layers.{}.edge.weight", "lin_edge.weight"));
        if !config.is_dynamic() {
            tensors.push(PygTensor { ours: "layers.{}.edge.attention", theirs: "att_edge", map: PygMap::Heads });
        }
    }
    Ok(tensors)
}

/// The weights of a layer. Glorot's bounds look at whole tensors: a head is not a tensor of its own.
pub(super) fn entries(layer: usize, shape: LayerShape, config: &ModelConfig) -> Vec<Entry> {
    let LayerShape { dim, heads, features, .. } = shape;
    let entry = |name, shape: &[usize], initial| Entry {
        name: weight_name(layer, name),
        shape: shape.iter().map(|size| *size as i64).collect(),
        initial,
    };
    let weight = entry("weight", &[dim, heads * features], Initial::glorot(dim, heads * features));
    let attention = entry("attention", &[heads, 2 * features], Initial::glorot(heads, 2 * features));
    let bias = entry("bias", &[shape.width()], Initial::Constant(0.0));
    let mut entries = match config.attention {
        Form::Go | Form::Mx => vec![weight, attention, bias],
        Form::Dp | Form::Sd => vec![weight, bias],
        Form::V2 => vec![
            weight,
            entry("attention", &[heads, features], Initial::glorot(heads, features)),
            entry("target.weight", &[dim, heads * features], Initial::glorot(dim, heads * features)),
            entry("target.bias", &[heads * features], Initial::Constant(0.0)),
            bias,
        ],
    };
    let n_terms = config.n_edge_terms();
    if n_terms > 0 {
        entries.push(entry("edge.weight", &[n_terms, heads * features], Initial::glorot(n_terms, heads * features)));
        if !config.is_dynamic() {
            entries.push(entry("edge.attention", &[heads, features], Initial::glorot(heads, features)));
        }
    }
    entries
}

/// An attention layer, with an edge loss where there are pairs.
pub(super) fn attend(call: &Call<'_>, rows: &LayerRows<'_>, pairs: Option<Pairs>) -> Result<LayerOutput, TchError> {
    let n_negatives_left_out = pairs.as_ref().map_or(0, |pairs| pairs.negatives().n_left_out);
    let (bias, targets) = (call.bias(), call.targets(rows)?);
    let weights = weights_of(call, &bias, targets.as_ref());
    let (shape, form) = (call.shape, call.config.attention);
    match call.kernels {
        Kernels::Fused => {
            let step = AttentionStep { draws: call.layer_draws(rows), pairs, left_out: call.left_out() };
            let (rows, edge_loss) = fused(call).forward(rows.as_input(), weights, call.block, step)?;
            let edge_losses = Vec::from_iter(edge_loss);
            Ok(LayerOutput { edge_losses, n_negatives_left_out, ..LayerOutput::of_rows(rows) })
        }
        Kernels::Reference => {
            let step = reference::ReferenceStep {
                factors: draws::attention_factors(call),
                in_sums: draws::in_sums(call),
                pairs: pairs.as_ref(),
                edge_terms: call.edge_terms(),
            };
            let attended = reference::attend(&draws::products(call, rows), call.edges(), weights, (shape, form), &step);
            let (attention, edge_losses) = (Some(attended.attention), Vec::from_iter(attended.edge_loss));
            let output = LayerOutput::of_rows(attended.rows);
            Ok(LayerOutput { attention, edge_losses, n_negatives_left_out, ..output })
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
    let (bias, targets) = (call.bias(), call.targets(rows).expect("products of all nodes"));
    let weights = weights_of(call, &bias, targets.as_ref());
    fused(call).forward_piece(rows.as_input(), weights, (call.block, call.left_out(), is_last), open)
}

fn fused(call: &Call<'_>) -> AttentionLayer {
    let LayerShape { heads, features, concat, .. } = call.shape;
    AttentionLayer { form: call.config.attention, heads, features, is_mean: !concat }
}

fn weights_of<'a>(call: &'a Call<'_>, bias: &'a Tensor, targets: Option<&'a Tensor>) -> AttentionWeights<'a> {
    AttentionWeights { weight: call.weight("weight"), attention: call.find_weight("attention"), targets, bias }
}
