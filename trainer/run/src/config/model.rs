//! Settings of the model.

use kith_block::Form;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choices::{Activation, Jumping, Norm, Residual};
use crate::{
    choice::{Named, named, named_option},
    model_kind::ModelKind,
};

/// The model. Hidden layers have `heads` heads of `hidden` features each, concatenated; the last layer has `out_heads` heads of one
/// feature per class, averaged. With `output_linear`, all graph layers are hidden layers, and a linear layer follows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModelConfig {
    /// the model: see the table of models
    #[serde(with = "named")]
    #[schemars(with = "Named<ModelKind>")]
    pub kind: ModelKind,
    /// attention score of a neighbor; v2 is GATv2's (supergat, gat; a gat has go unless this key is set)
    #[serde(with = "named")]
    #[schemars(with = "Named<Form>")]
    pub attention: Form,
    /// number of graph layers
    #[schemars(range(min = 1, max = 64))]
    pub n_layers: usize,
    /// attention heads of a hidden layer
    #[schemars(range(min = 1, max = 1024))]
    pub heads: usize,
    /// hidden features, per head with attention (default without attention: 128)
    #[schemars(range(min = 1, max = 65_536))]
    pub hidden: usize,
    /// attention heads of the last layer, averaged (without `output_linear`)
    #[schemars(range(min = 1, max = 1024))]
    pub out_heads: usize,
    /// dropout probability of hidden features, and of the graph's features and attention weights unless their own keys are set
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub dropout: f64,
    /// dropout probability of the features of the graph (default: `dropout`)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub input_dropout: Option<f64>,
    /// dropout probability of attention weights (default: `dropout`)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub attention_dropout: Option<f64>,
    /// dropout probability of edges: each step leaves out edges, the same in all layers; self-loops stay (not for mlp and cgat; default: 0)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub edge_dropout: Option<f64>,
    /// true: the weights of edges are factors of the messages (gcn, sage, gin; a self-loop weighs 1), or one more feature of each edge in
    /// attention scores (gat, supergat: see `edge_dim`) (default: false)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge_weights: Option<bool>,
    /// features of an edge that are part of attention scores, as many as edges have in the graph; a self-loop has the mean of its
    /// node's other edges (gat, supergat; default: 0)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub edge_dim: Option<usize>,
    /// false: no self-loops; a node without neighbors then outputs the bias (gat, gcn, sage; default: true)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_loops: Option<bool>,
    /// norm of the output of hidden layers. layer: over the features of a node; batch: over the nodes of a step (of a slice in
    /// mini-batches), with running statistics in evaluation; graph: as batch, with a learned mean_scale and without running statistics
    /// (default: none)
    #[serde(skip_serializing_if = "Option::is_none", with = "named_option")]
    #[schemars(with = "Option<Named<Norm>>")]
    pub norm: Option<Norm>,
    /// residual connection of each graph layer, added before the norm. identity: the layer's input, where it has the output's width and is
    /// not the graph's features; linear: a linear layer of the input (default: none)
    #[serde(skip_serializing_if = "Option::is_none", with = "named_option")]
    #[schemars(with = "Option<Named<Residual>>")]
    pub residual: Option<Residual>,
    /// activation of hidden layers; prelu has one learned slope per layer (default: elu)
    #[serde(skip_serializing_if = "Option::is_none", with = "named_option")]
    #[schemars(with = "Option<Named<Activation>>")]
    pub activation: Option<Activation>,
    /// true: a linear layer before the first graph layer (default: false)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_linear: Option<bool>,
    /// true: a linear layer after the last graph layer, which is then a hidden layer (default: false)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_linear: Option<bool>,
    /// jumping knowledge: input of the output layer. none: the last graph layer's output; sum, max, concat: all graph layers' outputs,
    /// combined (needs `output_linear`; default: none)
    #[serde(skip_serializing_if = "Option::is_none", with = "named_option")]
    #[schemars(with = "Option<Named<Jumping>>")]
    pub jumping: Option<Jumping>,
    /// true: a second weight matrix for the node itself, as `lin_r` of PyG's SAGEConv; for PyG's mean, also set `self_loops` = false (sage;
    /// default: false)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_weight: Option<bool>,
    /// false: graph layers have no bias; linear layers and linear residuals always have one (default: true)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bias: Option<bool>,
}

impl Default for ModelConfig {
    fn default() -> ModelConfig {
        ModelConfig {
            kind: ModelKind::Supergat,
            attention: Form::Mx,
            n_layers: 2,
            heads: 8,
            hidden: 16,
            out_heads: 8,
            dropout: 0.5,
            input_dropout: None,
            attention_dropout: None,
            edge_dropout: None,
            edge_weights: None,
            edge_dim: None,
            self_loops: None,
            norm: None,
            residual: None,
            activation: None,
            input_linear: None,
            output_linear: None,
            jumping: None,
            root_weight: None,
            bias: None,
        }
    }
}

impl ModelConfig {
    /// Norm of hidden layers.
    pub fn norm(&self) -> Norm {
        self.norm.unwrap_or(Norm::None)
    }

    /// Addition to the output of a graph layer.
    pub fn residual(&self) -> Residual {
        self.residual.unwrap_or(Residual::None)
    }

    /// Activation of hidden layers.
    pub fn activation(&self) -> Activation {
        self.activation.unwrap_or(Activation::Elu)
    }

    /// Input of the linear layer after the last graph layer.
    pub fn jumping(&self) -> Jumping {
        self.jumping.unwrap_or(Jumping::None)
    }

    /// True if a linear layer stands before the first graph layer.
    pub fn has_input_linear(&self) -> bool {
        self.input_linear == Some(true)
    }

    /// True if a linear layer follows the last graph layer.
    pub fn has_output_linear(&self) -> bool {
        self.output_linear == Some(true)
    }

    /// True if the node itself has a second weight.
    pub fn has_root_weight(&self) -> bool {
        self.root_weight == Some(true)
    }

    /// True if graph layers have a bias.
    pub fn has_bias(&self) -> bool {
        self.bias != Some(false)
    }

    /// Dropout probability of the features of the graph.
    pub fn input_dropout(&self) -> f64 {
        self.input_dropout.unwrap_or(self.dropout)
    }

    /// Dropout probability of attention weights.
    pub fn attention_dropout(&self) -> f64 {
        self.attention_dropout.unwrap_or(self.dropout)
    }

    /// True if the weights of edges are factors of messages, or part of attention scores.
    pub fn has_edge_weights(&self) -> bool {
        self.edge_weights.unwrap_or(false)
    }

    /// Features of an edge that are part of attention scores.
    pub fn edge_dim(&self) -> usize {
        self.edge_dim.unwrap_or(0)
    }

    /// Numbers of an edge that are part of attention scores: its weight, if it counts, and its features.
    pub fn n_edge_terms(&self) -> usize {
        if self.kind.has_attention() { usize::from(self.has_edge_weights()) + self.edge_dim() } else { 0 }
    }

    /// Probability of dropping an edge.
    pub fn edge_dropout(&self) -> f64 {
        self.edge_dropout.unwrap_or(0.0)
    }

    /// True if every node is its own neighbor.
    pub fn has_self_loops(&self) -> bool {
        self.self_loops != Some(false)
    }

    /// True if destinations have weights of their own in attention scores: GATv2.
    pub fn is_dynamic(&self) -> bool {
        self.kind.has_attention() && self.attention.is_dynamic()
    }

    /// True for the paper's layers: ELU and dropout between them, and nothing else.
    pub fn is_plain(&self) -> bool {
        self.norm() == Norm::None
            && self.residual() == Residual::None
            && self.activation() == Activation::Elu
            && !self.has_input_linear()
            && !self.has_output_linear()
            && !self.has_root_weight()
            && self.kind != ModelKind::Gin
    }

    /// True if a graph layer is a hidden layer: its output passes the norm and the activation.
    pub fn is_hidden(&self, layer: usize) -> bool {
        self.has_output_linear() || layer + 1 < self.n_layers
    }

    /// True if a graph layer has hidden features as its input and as its output.
    pub fn has_identity(&self) -> bool {
        (0..self.n_layers).any(|layer| self.is_hidden(layer) && (layer > 0 || self.has_input_linear()))
    }

    /// Width of the widest output of a graph layer, heads side by side.
    pub fn widest(&self, n_classes: usize) -> usize {
        let width = |layer| self.heads_of(layer) * if self.is_hidden(layer) { self.hidden } else { n_classes };
        (0..self.n_layers).map(width).max().unwrap_or(0)
    }

    /// Numbers that evaluation holds of a node at most: the products of a layer, its residual, and jumping values.
    pub fn widest_record(&self, n_classes: usize) -> usize {
        let residual = usize::from(self.residual() != Residual::None || self.has_root_weight());
        let jumping = match self.jumping() {
            Jumping::None => 0,
            Jumping::Sum | Jumping::Max => 1,
            Jumping::Concat => self.n_layers,
        };
        self.widest(n_classes) * (1 + usize::from(self.is_dynamic()) + residual + jumping)
    }

    /// Heads of a graph layer.
    pub fn heads_of(&self, layer: usize) -> usize {
        match (self.kind.has_attention(), self.is_hidden(layer)) {
            (false, _) => 1,
            (true, true) => self.heads,
            (true, false) => self.out_heads,
        }
    }
}
