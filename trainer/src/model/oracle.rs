//! Oracle for the kernels: a layer in doubles, by tensor operations, with all its gradients.

use kith_block::{Block, Form, Pairs};
use kith_kernels::{AttentionWeights, InputRows};
use tch::{Kind, Tensor};

use crate::model::{
    layer_shape::LayerShape,
    reference::{Edges, ReferenceStep, attend, product},
};

/// An attention layer in one step: everything its results depend on. Tensors may be of any kind of float; shapes as in
/// [`crate::model::reference`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionCase<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Input of the layer, before dropout: N × D.
    pub rows: &'a Tensor,
    /// Dropout factors of the input: N × D.
    pub row_factors: Option<&'a Tensor>,
    /// The weights.
    pub weights: AttentionWeights<'a>,
    /// The layer's shape.
    pub shape: LayerShape,
    /// Its attention.
    pub form: Form,
    /// Dropout factors of the attention weights: E × K.
    pub attention_factors: Option<&'a Tensor>,
    /// The pairs of the edge loss.
    pub pairs: Option<&'a Pairs>,
}

/// A layer's results and gradients, in doubles.
#[derive(Debug)]
pub struct Answer {
    /// M × width.
    pub rows: Tensor,
    /// A scalar, where there are pairs.
    pub edge_loss: Option<Tensor>,
    /// Of the rows before dropout.
    pub rows_gradient: Tensor,
    /// Of the weights, in the order they were given.
    pub weight_gradients: Vec<Tensor>,
}

impl AttentionCase<'_> {
    /// The layer's results, and the gradients that come back when its rows get `rows_gradient` (M × width) and its edge
    /// loss gets `edge_loss_gradient`. Weights in the order weight, attention and targets (where the form has them), bias.
    pub fn answer(&self, rows_gradient: &Tensor, edge_loss_gradient: f64) -> Answer {
        let AttentionWeights { weight, attention, targets, bias } = self.weights;
        let weights: Vec<&Tensor> = [Some(weight), attention, targets, Some(bias)].into_iter().flatten().collect();
        let edges = Edges::new(self.block, weight.device());
        let double = |factors: &Tensor| factors.to_kind(Kind::Double);
        let row_factors = self.row_factors.map(double);
        let attention_factors = self.attention_factors.map(double);
        let gradients = (rows_gradient, edge_loss_gradient);
        differentiate(self.rows, &weights, gradients, |rows, weights| {
            let (weight, bias) = (&weights[0], &weights[weights.len() - 1]);
            let attention = attention.map(|_| &weights[1]);
            let targets = targets.map(|_| &weights[2]);
            let dropped = row_factors.as_ref().map(|factors| rows * factors);
            let step = ReferenceStep {
                factors: attention_factors.as_ref().map(Tensor::shallow_clone),
                in_sums: None,
                pairs: self.pairs,
                edge_terms: None,
            };
            let attended = attend(
                &product(dropped.as_ref().unwrap_or(rows), weight),
                &edges,
                AttentionWeights { weight, attention, targets, bias },
                (self.shape, self.form),
                &step,
            );
            (attended.rows, attended.edge_loss)
        })
    }
}

/// The results of any layer in doubles, and the gradients that come back when its rows and its edge loss get
/// `gradients`. `layer` gets the rows and the weights as doubles.
pub fn differentiate(
    rows: &Tensor,
    weights: &[&Tensor],
    gradients: (&Tensor, f64),
    layer: impl FnOnce(&Tensor, &[Tensor]) -> (Tensor, Option<Tensor>),
) -> Answer {
    let leaf = |tensor: &Tensor| tensor.detach().to_kind(Kind::Double).copy().set_requires_grad(true);
    let rows = leaf(rows);
    let weights: Vec<Tensor> = weights.iter().map(|weight| leaf(weight)).collect();
    let (output, edge_loss) = layer(&rows, &weights);
    let mut scalar = (&output * gradients.0.to_kind(Kind::Double)).sum(Kind::Double);
    if let Some(edge_loss) = &edge_loss {
        scalar += edge_loss * gradients.1;
    }
    scalar.backward();
    let gradient = |leaf: &Tensor| if leaf.grad().defined() { leaf.grad().copy() } else { leaf.zeros_like() };
    Answer {
        rows_gradient: gradient(&rows),
        weight_gradients: weights.iter().map(gradient).collect(),
        rows: output.detach(),
        edge_loss: edge_loss.map(|loss| loss.detach()),
    }
}

/// Input rows as a tensor, zeros included: N × D.
pub fn dense(rows: &InputRows) -> Tensor {
    Tensor::from_slice(&rows.to_dense()).view([rows.n_rows() as i64, rows.dim() as i64])
}

/// Relative error of a tensor: max |a − b| / max |b|; infinite if anything is not a number.
pub fn error(found: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!(found.size(), expected.size(), "errors are between tensors of one shape");
    if expected.numel() == 0 {
        return 0.0;
    }
    let (found, expected) = (found.to_kind(Kind::Double), expected.to_kind(Kind::Double));
    let difference = (found - &expected).abs().max().double_value(&[]);
    let largest = expected.abs().max().double_value(&[]);
    match difference {
        0.0 => 0.0,
        difference if difference.is_nan() || largest.is_nan() => f64::INFINITY,
        difference => difference / largest,
    }
}
