//! Models: graph layers with transitions between them, and linear layers before and after. The parts of one kind of model are in
//! its file: see [`ModelSpec`].

mod aggregate;
mod block_edges;
mod call;
mod contrast;
mod draws;
mod entries;
mod jumping;
mod kinds;
mod label_input;
mod layer_shape;
mod linear;
pub mod oracle;
mod out_degrees;
mod outputs;
mod pair_logits;
mod part;
mod pass;
mod pyg;
pub mod reference;
mod spec;
mod transition;

use std::sync::Arc;

use kith_block::{Block, Pairs};
use kith_kernels::InputRows;
use kith_run::config::{CgatConfig, EdgeLossConfig, Kernels, ModelConfig, RunConfig};
use tch::{Device, Kind, Tensor};

pub use crate::model::{
    contrast::{Compared, Contrast},
    draws::draw_pairs,
    layer_shape::LayerShape,
    out_degrees::OutDegrees,
    part::{LayerPart, ReadRows},
    pass::Pass,
};
pub(crate) use crate::model::{
    kinds::spec_of,
    pyg::{PygMap, PygTensor},
    spec::ModelSpec,
    transition::{MOMENTUM, activation_of, norm_kind},
};
use crate::{
    data::{
        input::{GraphInput, Sample},
        label_input::LabelInput,
    },
    error::TrainError,
    model::{
        call::{Call, Compare, LayerOutput, LayerRows},
        entries::entries,
        jumping::carry,
        layer_shape::{layer_shapes, weight_name},
        linear::{INPUT, OUTPUT},
        reference::Edges,
    },
    weights::Weights,
};

/// Result of a forward pass.
#[derive(Debug)]
pub struct Forward {
    /// Nodes × classes.
    pub logits: Tensor,
    /// Losses of the layers beside the node loss; empty in evaluation, and for models without such losses.
    pub edge_losses: Vec<EdgeLoss>,
    /// Negatives that could not be drawn, in all layers.
    pub n_negatives_left_out: usize,
    /// Mean and variance of each feature of each hidden layer, for batch norms in training: as many numbers as the model has running
    /// statistics.
    pub statistics: Option<Tensor>,
}

/// A loss that layers have of their own, and what it weighs beside the node loss.
#[derive(Debug)]
pub struct EdgeLoss {
    /// The weight of each layer's.
    pub weight: f64,
    /// Layer by layer, before it is weighted.
    pub layers: Vec<Tensor>,
}

impl Forward {
    /// All losses of layers, before they are weighted.
    pub fn losses_of_layers(&self) -> impl Iterator<Item = &Tensor> {
        self.edge_losses.iter().flat_map(|loss| &loss.layers)
    }

    /// Weighted edge loss of one of a step's `n_slices` slices; `None` without an edge loss.
    pub fn edge_loss(&self, n_slices: usize) -> Option<Tensor> {
        let weighted = |loss: &EdgeLoss| {
            let (first, others) = loss.layers.split_first()?;
            let sum = others.iter().fold(first.shallow_clone(), |sum, loss| sum + loss);
            Some(sum * (loss.weight / n_slices as f64))
        };
        self.edge_losses.iter().filter_map(weighted).reduce(|sum, loss| sum + loss)
    }
}

/// Outputs of each layer for a graph, without dropout.
#[derive(Debug)]
pub struct Traced {
    /// Each layer's output, after its ELU; the last one's are the logits.
    pub rows: Vec<Tensor>,
    /// Each layer's attention weights, edges × heads in the block's order; empty for kinds without attention.
    pub attention: Vec<Tensor>,
}

/// A model with its weights.
#[derive(Debug)]
pub struct Model {
    config: ModelConfig,
    edge_loss: Option<EdgeLossConfig>,
    cgat: Option<CgatConfig>,
    spec: &'static dyn ModelSpec,
    kernels: Kernels,
    layers: Vec<LayerShape>,
    label_input: Option<LabelInput>,
    weights: Weights,
}

impl Model {
    /// A model with the initial weights of a seed, for a graph with `dim` features.
    pub fn new(
        config: &RunConfig,
        dim: usize,
        n_classes: usize,
        run_key: u64,
        device: Device,
    ) -> Result<Model, TrainError> {
        let label_input = LabelInput::new(&config.train, dim, n_classes);
        let dim = dim + label_input.as_ref().map_or(0, LabelInput::n_columns);
        let layers = layer_shapes(&config.model, dim, n_classes);
        let spec = spec_of(config.model.kind);
        Ok(Model {
            weights: Weights::new(entries(&config.model, spec, &layers, (dim, n_classes)), run_key, device),
            spec,
            layers,
            label_input,
            config: config.model.clone(),
            // A weight of zero switches the loss off: nothing is drawn for it.
            edge_loss: config.edge_loss.clone().filter(|edge_loss| edge_loss.weight != 0.0),
            cgat: config.cgat.clone(),
            kernels: kernels_of(config),
        })
    }

    /// The same model computing with numbers of another kind; always by tensor operations. With doubles it is what
    /// every other way to compute is compared with.
    pub fn to_kind(&self, kind: Kind) -> Model {
        Model {
            config: self.config.clone(),
            edge_loss: self.edge_loss.clone(),
            cgat: self.cgat.clone(),
            spec: self.spec,
            kernels: Kernels::Reference,
            layers: self.layers.clone(),
            label_input: self.label_input.clone(),
            weights: self.weights.to_kind(kind),
        }
    }

    /// Its config.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Its weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The shapes of its layers.
    pub fn layers(&self) -> &[LayerShape] {
        &self.layers
    }

    /// One pass over a whole graph.
    pub fn forward(&self, graph: &GraphInput, pass: Pass) -> Result<Forward, TrainError> {
        self.forward_sample(&self.sample(graph, pass)?, pass, self.compare(graph, pass))
    }

    /// Pairs and contrasts of the layers' own losses in a pass over a whole graph.
    pub fn compare(&self, graph: &GraphInput, pass: Pass) -> Compared {
        let Pass::Train { run_key, step } = pass else { return Compared::default() };
        let layers = 0..self.layers.len();
        let pairs = |config| layers.clone().map(|layer| draw_pairs(config, graph, run_key, step, layer)).collect();
        let contrasts =
            |config| layers.clone().map(|layer| Contrast::draw(config, graph, run_key, step, layer)).collect();
        Compared {
            pairs: self.edge_loss.as_ref().map_or(Vec::new(), pairs),
            contrasts: self.cgat.as_ref().map_or(Vec::new(), contrasts),
        }
    }

    /// One pass over a sample, and what its layers' own losses look at.
    pub fn forward_sample(&self, sample: &Sample, pass: Pass, compared: Compared) -> Result<Forward, TrainError> {
        let weights = self.loss_weights();
        let mut edge_losses: Vec<EdgeLoss> =
            weights.into_iter().map(|weight| EdgeLoss { weight, layers: Vec::new() }).collect();
        let mut n_negatives_left_out = 0;
        let mut statistics = Vec::new();
        let walk = || {
            self.walk(sample, pass, compared, |output| {
                edge_losses.iter_mut().zip(output.edge_losses).for_each(|(all, own)| all.layers.push(own));
                n_negatives_left_out += output.n_negatives_left_out;
                statistics.extend(output.statistics);
            })
        };
        let logits = match pass {
            Pass::Train { .. } => walk(),
            Pass::Evaluate => tch::no_grad(walk),
        }?;
        edge_losses.retain(|loss| !loss.layers.is_empty());
        let statistics = (!statistics.is_empty()).then(|| Tensor::cat(&statistics, 0));
        Ok(Forward { logits, edge_losses, n_negatives_left_out, statistics })
    }

    /// Weight of each loss that a layer returns, in its order.
    fn loss_weights(&self) -> Vec<f64> {
        match (&self.edge_loss, &self.cgat) {
            (Some(config), _) => vec![config.weight],
            (None, Some(config)) => config.loss_weights(),
            (None, None) => Vec::new(),
        }
    }

    /// Computes the output of every layer for a sample.
    pub fn trace(&self, sample: &Sample) -> Result<Traced, TrainError> {
        // Fused layers keep nothing of what passes between them.
        let reference = self.to_kind(self.weights.flat().kind());
        let mut traced = Traced { rows: Vec::new(), attention: Vec::new() };
        let _logits = tch::no_grad(|| {
            reference.walk(sample, Pass::Evaluate, Compared::default(), |output| {
                traced.rows.push(output.rows);
                traced.attention.extend(output.attention);
            })
        })?;
        Ok(traced)
    }

    /// Linear layer → graph layers, each with its transition → linear layer; `see` gets the output of each graph layer.
    fn walk(
        &self,
        sample: &Sample,
        pass: Pass,
        compared: Compared,
        mut see: impl FnMut(LayerOutput),
    ) -> Result<Tensor, TrainError> {
        let (mut pairs, mut contrasts) = (compared.pairs.into_iter(), compared.contrasts.into_iter());
        let mut rows = self.enter(&sample.blocks[0], &sample.rows, pass)?;
        let mut carried = None;
        for (layer, block) in sample.blocks.iter().enumerate() {
            let output = self.one_layer((layer, block, None), &rows, pass, (pairs.next(), contrasts.next()))?;
            carried = carry(&self.config, carried, &output.rows);
            rows = self.passed(output.rows.shallow_clone());
            see(output);
        }
        match (rows, sample.blocks.last()) {
            (LayerRows::Hidden(rows) | LayerRows::Ready(rows), Some(block)) => {
                self.leave(block, carried.unwrap_or(rows), pass)
            }
            _ => unreachable!("a model has a layer"),
        }
    }

    /// Input of the first graph layer: the features, or the output of the linear layer before it.
    fn enter<'a>(
        &self,
        block: &Arc<Block>,
        features: &'a Arc<InputRows>,
        pass: Pass,
    ) -> Result<LayerRows<'a>, TrainError> {
        let features = LayerRows::Input(features);
        if !self.config.has_input_linear() {
            return Ok(features);
        }
        let call = self.call((0, block, None), None, pass);
        let (weight, bias) = (self.named(INPUT, "weight"), self.named(INPUT, "bias"));
        let rows = call.linear(&features, block.n_sources(), weight, Some(bias))?;
        Ok(LayerRows::Ready(call.drop_input(rows)?))
    }

    /// Logits of the destinations of the last block, given the output of the last graph layer, or of all.
    fn leave(&self, block: &Arc<Block>, rows: Tensor, pass: Pass) -> Result<Tensor, TrainError> {
        if !self.config.has_output_linear() {
            return Ok(rows);
        }
        let call = self.call((self.layers.len() - 1, block, None), None, pass);
        let (weight, bias) = (self.named(OUTPUT, "weight"), self.named(OUTPUT, "bias"));
        Ok(call.linear(&LayerRows::Ready(rows), block.n_destinations(), weight, Some(bias))?)
    }

    /// Output of a graph layer as the next one reads it.
    fn passed(&self, rows: Tensor) -> LayerRows<'static> {
        if self.config.is_plain() { LayerRows::Hidden(rows) } else { LayerRows::Ready(rows) }
    }

    /// Output of one graph layer for the rows of a block's sources, after its transition. In models with plain layers, rows between
    /// layers are after the ELU with tensor operations, and before it with fused layers, which begin with the ELU of their input.
    fn one_layer(
        &self,
        at: (usize, &Arc<Block>, Option<&OutDegrees>),
        rows: &LayerRows<'_>,
        pass: Pass,
        compared: (Option<Pairs>, Option<Contrast>),
    ) -> Result<LayerOutput, TrainError> {
        let (layer, block, out_degrees) = at;
        let mut output = self.graph_layer(at, rows, pass, compared)?;
        if !self.config.is_hidden(layer) {
            return Ok(output);
        }
        match (self.config.is_plain(), self.kernels) {
            (true, Kernels::Fused) => {}
            (true, Kernels::Reference) => output.rows = output.rows.elu(),
            (false, _) => {
                let call = self.call((layer, block, out_degrees), None, pass);
                (output.rows, output.statistics) = call.transition(output.rows)?;
            }
        }
        Ok(output)
    }

    /// Output of one graph layer, before its transition.
    fn graph_layer(
        &self,
        (layer, block, out_degrees): (usize, &Arc<Block>, Option<&OutDegrees>),
        rows: &LayerRows<'_>,
        pass: Pass,
        (pairs, contrast): (Option<Pairs>, Option<Contrast>),
    ) -> Result<LayerOutput, TrainError> {
        let edges = (self.kernels == Kernels::Reference).then(|| Edges::new(block, self.weights.flat().device()));
        let call = self.call((layer, block, out_degrees), edges.as_ref(), pass);
        let mut output = self.spec.forward(&call, rows, Compare { pairs, contrast })?;
        let own = match rows {
            LayerRows::Products { values, stride, .. } => self.picked(layer, block, (values, *stride)).0,
            _ => call.own(rows)?,
        };
        if let Some(own) = own {
            output.rows = own + &output.rows;
        }
        Ok(output)
    }
}

/// Layers that read numbers of edges are tensor operations.
fn kernels_of(config: &RunConfig) -> Kernels {
    if config.model.n_edge_terms() > 0 { Kernels::Reference } else { config.train.kernels }
}

impl Model {
    /// A call of one layer.
    fn call<'a>(
        &'a self,
        (layer, block, out_degrees): (usize, &'a Arc<Block>, Option<&'a OutDegrees>),
        edges: Option<&'a Edges>,
        pass: Pass,
    ) -> Call<'a> {
        Call {
            config: &self.config,
            cgat: self.cgat.as_ref(),
            kernels: self.kernels,
            weights: &self.weights,
            shape: self.layers[layer],
            layer,
            block,
            edges,
            out_degrees,
            pass,
        }
    }

    /// True if a graph layer adds its input to its output.
    pub(crate) fn adds_input(&self, layer: usize) -> bool {
        linear::adds_input(&self.config, layer, self.layers[layer])
    }

    /// The model as a spec: what is particular to it.
    pub(crate) fn spec(&self) -> &'static dyn ModelSpec {
        self.spec
    }

    fn weight(&self, layer: usize, name: &str) -> &Tensor {
        self.weights.get(&weight_name(layer, name)).unwrap_or_else(|| panic!("layer {layer} has no {name}"))
    }

    /// A weight of a linear layer.
    fn named(&self, layer: &str, name: &str) -> &Tensor {
        self.weights.get(&format!("{layer}.{name}")).unwrap_or_else(|| panic!("{layer} has no {name}"))
    }
}

#[cfg(test)]
mod tests;
