//! One call of a layer: its settings, weights, input and output.

use std::{ops::Range, sync::Arc};

use kith_block::{Block, Pairs};
use kith_draw::{Name, Purpose, Stream};
use kith_kernels::{Dropout, EdgeMask, InputRows, LayerDraws, LayerInput, plain_products, product_len};
use kith_run::config::{CgatConfig, Kernels, ModelConfig};
use tch::Tensor;

use crate::{
    model::{
        contrast::Contrast,
        layer_shape::{LayerShape, weight_name},
        oracle,
        out_degrees::OutDegrees,
        pass::Pass,
        reference::{EdgeTerms, Edges, product},
    },
    weights::Weights,
};

/// A call of one layer.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) cgat: Option<&'a CgatConfig>,
    pub(super) kernels: Kernels,
    pub(super) weights: &'a Weights,
    pub(super) shape: LayerShape,
    pub(super) layer: usize,
    pub(super) block: &'a Arc<Block>,
    /// Only for layers of tensor operations.
    pub(super) edges: Option<&'a Edges>,
    /// Set if the block does not have all edges of its sources.
    pub(super) out_degrees: Option<&'a OutDegrees>,
    pub(super) pass: Pass,
}

/// Input of a layer: the graph's features, the output of the previous layer, or either times the weights.
pub(crate) enum LayerRows<'a> {
    Input(&'a Arc<InputRows>),
    Hidden(Tensor),
    /// The output of a transition or a linear layer, after dropout.
    Ready(Tensor),
    /// Of all nodes, by id; each product comes first in its node's `stride` numbers.
    Products {
        values: &'a [f32],
        stride: usize,
        /// True if they are in the layout of the fused kernels.
        is_packed: bool,
    },
}

/// Output of a layer.
pub(crate) struct LayerOutput {
    pub(super) rows: Tensor,
    pub(super) attention: Option<Tensor>,
    /// One for each of the model's weights of such losses; none when evaluating.
    pub(super) edge_losses: Vec<Tensor>,
    pub(super) n_negatives_left_out: usize,
    /// Mean and variance of each feature, for batch norms in training.
    pub(super) statistics: Option<Tensor>,
}

impl LayerOutput {
    pub(super) fn of_rows(rows: Tensor) -> LayerOutput {
        LayerOutput { rows, attention: None, edge_losses: Vec::new(), n_negatives_left_out: 0, statistics: None }
    }
}

impl Call<'_> {
    /// A weight of this layer.
    pub(super) fn weight(&self, name: &str) -> &Tensor {
        self.find_weight(name).unwrap_or_else(|| panic!("layer {} has no {name}", self.layer))
    }

    pub(super) fn find_weight(&self, name: &str) -> Option<&Tensor> {
        self.weights.get(&weight_name(self.layer, name))
    }

    /// The bias of this layer, or zeros if the model has none.
    pub(super) fn bias(&self) -> Tensor {
        let zeros =
            || Tensor::zeros([self.shape.width() as i64], (self.weights.flat().kind(), self.weights.flat().device()));
        self.find_weight("bias").map_or_else(zeros, Tensor::shallow_clone)
    }

    /// Dropout of a purpose in this pass, and its draws; `None` without dropout.
    pub(super) fn dropout(&self, purpose: Purpose, probability: f64) -> Option<(Dropout, Stream)> {
        let Pass::Train { run_key, step } = self.pass else { return None };
        let dropout = Dropout::new(probability);
        let stream = || Name { run_key, purpose, step, layer: self.layer as u32 }.stream();
        (!dropout.is_none()).then(|| (dropout, stream()))
    }

    /// Edges that the layer leaves out of its sums: self-loops, if the model has none, and dropped edges. All layers drop the same edges.
    pub(super) fn left_out(&self) -> Option<EdgeMask> {
        let dropout = match self.pass {
            Pass::Evaluate => None,
            Pass::Train { run_key, step } => {
                let name = Name { run_key, purpose: Purpose::EdgeDropout, step, layer: 0 };
                Some((Dropout::new(self.config.edge_dropout()), name.stream()))
            }
        };
        EdgeMask::new(self.block, self.config.has_self_loops(), dropout.filter(|(dropout, _)| !dropout.is_none()))
    }

    /// Out-degree of a node of the block in the whole graph, if it is known.
    pub(super) fn out_degree(&self, node: usize) -> Option<f32> {
        Some(self.out_degrees?.of(self.block.id(node), self.config.has_self_loops()))
    }

    /// The edges that are in the sums of a layer of tensor operations.
    pub(super) fn edges_in_sums(&self) -> Edges {
        let left_out = self.left_out();
        let mut edges = match &left_out {
            None => self.edges().copy(),
            Some(left_out) => Edges::in_sums(self.block, left_out, self.edges().sources.device()),
        };
        if self.config.has_edge_weights() {
            edges = edges.with_weights(self.block, left_out.as_ref());
        }
        match self.out_degrees {
            None => edges,
            Some(_) => edges.with_out_degrees(|node| self.out_degree(node).expect("degrees of all nodes")),
        }
    }

    /// The part of each edge's own numbers in attention scores, E × K × F; `None` if the model reads none.
    pub(super) fn edge_terms(&self) -> Option<EdgeTerms> {
        let n_terms = self.config.n_edge_terms();
        if n_terms == 0 {
            return None;
        }
        let mut data = Vec::with_capacity(self.block.n_edges() * n_terms);
        let (features, dim) = (self.block.edge_features(), self.config.edge_dim());
        assert!(features.len() >= self.block.n_edges() * dim, "a layer with edge features needs blocks with features");
        let weights = self.config.has_edge_weights().then(|| weights_in_scores(self.block));
        for edge in 0..self.block.n_edges() {
            data.extend(weights.as_ref().map(|weights| weights[edge]));
            data.extend_from_slice(&features[edge * dim..][..dim]);
        }
        let LayerShape { heads, features, .. } = self.shape;
        let products = product(&self.tensor_of(&data, n_terms), self.weight("edge.weight"));
        let products = products.view([-1, heads as i64, features as i64]);
        Some(EdgeTerms { products, attention: self.find_weight("edge.attention").map(Tensor::shallow_clone) })
    }

    pub(super) fn edges(&self) -> &Edges {
        self.edges.expect("layers of tensor operations get their edges")
    }

    /// Draws of a fused layer with this input; `None` in evaluation.
    pub(super) fn layer_draws(&self, rows: &LayerRows<'_>) -> Option<LayerDraws> {
        let Pass::Train { run_key, step } = self.pass else { return None };
        Some(LayerDraws {
            run_key,
            step,
            layer: self.layer as u32,
            input_dropout: match rows {
                LayerRows::Input(_) => self.config.input_dropout(),
                LayerRows::Hidden(_) => self.config.dropout,
                LayerRows::Ready(_) | LayerRows::Products { .. } => 0.0,
            },
            reads_features: matches!(rows, LayerRows::Input(_)),
            attention_dropout: self.config.attention_dropout(),
        })
    }

    /// Products of the block's sources, picked from those of all nodes.
    pub(super) fn pick_products(&self, values: &[f32], stride: usize, is_packed: bool) -> Tensor {
        let LayerShape { heads, features, .. } = self.shape;
        let len = self.product_len(is_packed);
        let mut picked = pick(self.block, (values, stride), self.block.n_sources(), 0..len);
        if is_packed {
            picked = plain_products(&picked, (heads, features));
        }
        self.tensor_of(&picked, heads * features)
    }

    /// Numbers of one product.
    pub(super) fn product_len(&self, is_packed: bool) -> usize {
        let LayerShape { heads, features, .. } = self.shape;
        if is_packed { product_len(heads, features) } else { heads * features }
    }

    /// Rows of `width` numbers as a tensor like the weights.
    pub(super) fn tensor_of(&self, values: &[f32], width: usize) -> Tensor {
        let like = self.weights.flat();
        Tensor::from_slice(values).view([-1, width as i64]).to_device(like.device()).to_kind(like.kind())
    }
}

/// Weights of edges as features: a self-loop has the mean of its destination's others, as in PyG.
fn weights_in_scores(block: &Block) -> Vec<f32> {
    let Some(weights) = block.known_weights() else { return vec![0.0; block.n_edges()] };
    let mut of_edges = weights.to_vec();
    for node in 0..block.n_destinations() {
        let edges = block.edges_into(node);
        let others = &weights[edges.start..edges.end - 1];
        let sum: f64 = others.iter().map(|weight| f64::from(*weight)).sum();
        of_edges[edges.end - 1] = (sum / others.len().max(1) as f64) as f32;
    }
    of_edges
}

/// Some numbers of the records of a block's first nodes; records of all nodes are `stride` numbers each.
pub(super) fn pick(block: &Block, (values, stride): (&[f32], usize), n_nodes: usize, own: Range<usize>) -> Vec<f32> {
    let ids = (0..n_nodes).map(|node| block.id(node) as usize);
    ids.flat_map(|id| &values[id * stride..][own.clone()]).copied().collect()
}

impl LayerRows<'_> {
    pub(super) fn as_input(&self) -> LayerInput<'_> {
        match self {
            LayerRows::Input(rows) => LayerInput::Rows(rows),
            LayerRows::Hidden(rows) => LayerInput::Hidden(rows),
            LayerRows::Ready(rows) => LayerInput::Ready(rows),
            LayerRows::Products { values, stride, .. } => LayerInput::Products { values, stride: *stride },
        }
    }
}

impl LayerRows<'_> {
    /// Rows that are not products, as a tensor like the weights.
    pub(super) fn to_tensor(&self, weights: &Weights) -> Tensor {
        let like = weights.flat();
        match self {
            LayerRows::Hidden(rows) | LayerRows::Ready(rows) => rows.shallow_clone(),
            LayerRows::Input(input) => oracle::dense(input).to_device(like.device()).to_kind(like.kind()),
            LayerRows::Products { .. } => unreachable!("products are not multiplied again"),
        }
    }
}

/// Pairs and nodes that a layer's own losses compare; none when evaluating.
#[derive(Default)]
pub(crate) struct Compare {
    pub(super) pairs: Option<Pairs>,
    pub(super) contrast: Option<Contrast>,
}
