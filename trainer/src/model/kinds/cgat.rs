//! CGAT as the authors ran it: GAT with GO attention whose scores must keep a margin.
//!
//! ```text
//! φ(u, v) = leakyReLU(a₁·h_u + a₂·h_v)         score of the edge s → t:  leakyReLU(φ(t, s))
//! graph structure:  mean of max(0, φ(s, k) + margin − score(s → t))      over edges, heads and nodes k without s → k
//! boundary:         mean of max(0, score(s → u) + margin − score(s → v)) over heads, v of s's class, u of another
//! ```
//!
//! Scores are activated twice, pairs without an edge once, and an edge is compared by its source though it is scored
//! for its target: the published numbers were computed this way. With `top_k`, a training step attends only to the
//! largest scores and drops no attention; evaluation attends to all. Shapes are those of [`reference`].

use kith_block::Form;
use kith_kernels::{OpenList, cuda::LayerKind};
use kith_run::{choice::Choice, config::ModelConfig, model_kind::ModelKind};
use tch::{Kind, TchError, Tensor};

use crate::{
    loss::sum_in_pieces,
    model::{
        call::{Call, Compare, LayerOutput, LayerRows},
        contrast::Contrast,
        draws,
        kinds::gat::entries,
        layer_shape::LayerShape,
        pass::Pass,
        pyg::PygTensor,
        reference::{self, Edges, Scorer, leaky_relu, pick, positions},
        spec::ModelSpec,
    },
    weights::Entry,
};

/// CGAT.
#[derive(Debug)]
pub(super) struct Cgat;

impl ModelSpec for Cgat {
    fn kind(&self) -> ModelKind {
        ModelKind::Cgat
    }

    fn weights(&self, layer: usize, shape: LayerShape, config: &ModelConfig) -> Vec<Entry> {
        entries(layer, shape, config)
    }

    fn forward(&self, call: &Call<'_>, rows: &LayerRows<'_>, compare: Compare) -> Result<LayerOutput, TchError> {
        Ok(forward(call, rows, compare.contrast))
    }

    fn forward_piece(&self, _: &Call<'_>, _: &LayerRows<'_>, _: &mut OpenList, _: bool) -> Option<Tensor> {
        unreachable!("a cgat has no fused kernels")
    }

    fn gpu_layer(&self, config: &ModelConfig) -> Result<LayerKind, String> {
        Err(format!("{} has no kernels for GPUs", config.kind.name()))
    }

    fn pyg_layer(&self, _config: &ModelConfig) -> Result<Vec<PygTensor>, &'static str> {
        Err("PyG has no layer like CGAT's: use Kith's names (kith export --to kith)")
    }
}

fn forward(call: &Call<'_>, rows: &LayerRows<'_>, contrast: Option<Contrast>) -> LayerOutput {
    let config = call.cgat.expect("a cgat has its config");
    let (edges, shape) = (call.edges(), call.shape);
    let LayerShape { heads, features, .. } = shape;
    let hidden = draws::products(call, rows).view([-1, heads as i64, features as i64]);
    let scorer = Scorer::new(&hidden, Some(call.weight("attention")), Form::Go);
    let phi = |sources: &Tensor, destinations: &Tensor| leaky_relu(&scorer.score(sources, destinations).scores);
    let scores = leaky_relu(&phi(&edges.sources, &edges.destinations));

    let top_k = config.top_k.filter(|_| call.pass != Pass::Evaluate);
    let kept = top_k.map(|k| largest(edges, &scores, k));
    let attention = reference::softmax(edges, &scores, kept.as_ref());
    let factors = if top_k.is_none() { draws::attention_factors(call) } else { None };
    let dropped = factors.map(|factors| &attention * factors);
    let heard = dropped.as_ref().unwrap_or(&attention);
    let rows = reference::listen(&hidden, edges, heard, &call.bias(), shape);

    let mut edge_losses = Vec::new();
    let place = |places: &[u32]| positions(places.iter().copied(), scores.device());
    if let Some(contrast) = contrast.as_ref().filter(|_| config.graph_weight != 0.0) {
        let own = place(&contrast.edges);
        let others = phi(&place(&contrast.nodes), &pick(&edges.sources, &own));
        edge_losses.push(hinge(&others, &pick(&scores, &own), config.graph_margin));
    }
    if let Some((contrast, (_, margin))) = contrast.as_ref().zip(config.boundary()) {
        let [crossing, within] = [&contrast.crossing, &contrast.within].map(|edges| pick(&scores, &place(edges)));
        edge_losses.push(hinge(&crossing, &within, margin));
    }
    let n_negatives_left_out = contrast.map_or(0, |contrast| contrast.n_left_out);
    LayerOutput { attention: Some(attention), edge_losses, n_negatives_left_out, ..LayerOutput::of_rows(rows) }
}

/// The mean of what is missing to a margin between scores; zero where there are none.
fn hinge(lower: &Tensor, upper: &Tensor, margin: f64) -> Tensor {
    let missing = (lower + margin - upper).relu();
    sum_in_pieces(&missing) / missing.numel().max(1) as f64
}

/// Mask of each destination's edges with one of its `k` largest scores, E × K: 1 or 0. Edges of equal scores are kept
/// together and count as one.
pub(crate) fn largest(edges: &Edges, scores: &Tensor, k: usize) -> Tensor {
    let mut left = scores.detach().copy();
    let mut kept = left.zeros_like().to_kind(Kind::Bool);
    let most = edges.degrees.max().int64_value(&[]) as usize;
    for _ in 0..k.min(most) {
        let is_largest = left.eq_tensor(&pick(&edges.max_by_destination(&left), &edges.destinations));
        kept = kept.logical_or(&is_largest);
        left = left.masked_fill(&is_largest, f64::NEG_INFINITY);
    }
    kept.to_kind(scores.kind())
}
