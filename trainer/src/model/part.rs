//! One layer over a part of a graph, with nothing dropped.

use std::{borrow::Cow, ops::Range, sync::Arc};

use kith_block::Block;
use kith_kernels::{
    ColumnStatistics, InputRows, LayerInput, OpenList, column_statistics_of, linear, multiply, product_len,
};
use kith_run::config::{Kernels, Norm};
use tch::Tensor;

use crate::{
    data::matrix::{Matrix, rows_of},
    error::TrainError,
    model::{
        Model,
        call::{LayerRows, pick},
        jumping::{carried_len, carry},
        layer_shape::LayerShape,
        linear::{INPUT, OUTPUT, own_width},
        out_degrees::OutDegrees,
        pass::Pass,
        reference,
        transition::Transition,
    },
};

/// Layers over a part of a graph. A layer's output is followed by the node's jumping values, for the output layer: see
/// [`Jumping`](kith_run::config::Jumping).
impl Model {
    /// Output of one layer for a part of a graph, before its transition, and jumping values; nothing is dropped.
    pub fn evaluate_layer(&self, layer: usize, part: LayerPart<'_>) -> Result<Tensor, TrainError> {
        let LayerPart { block, out_degrees, rows } = part;
        let rows = self.layer_rows(layer, rows);
        tch::no_grad(|| {
            let output = self.graph_layer((layer, block, out_degrees), &rows, Pass::Evaluate, (None, None))?.rows;
            Ok(self.with_carried(layer, block, &rows, output))
        })
    }

    /// True if the neighbor list of a destination may come in pieces. Tensor operations need whole lists: their softmax
    /// subtracts the largest score first, and their sums over a list have no cuts that pieces could end at.
    pub fn takes_pieces(&self) -> bool {
        self.kernels == Kernels::Fused
    }

    /// Output of one layer, as of [`Model::evaluate_layer`], for a destination whose neighbor list comes in pieces: `part` is the next
    /// one, and the last one returns the output. The bits are those of the whole list.
    pub fn evaluate_piece(
        &self,
        layer: usize,
        part: LayerPart<'_>,
        open: &mut OpenList,
        is_last: bool,
    ) -> Option<Tensor> {
        assert!(self.takes_pieces(), "tensor operations look at whole lists");
        let LayerPart { block, out_degrees, rows } = part;
        let rows = self.layer_rows(layer, rows);
        let call = self.call((layer, block, out_degrees), None, Pass::Evaluate);
        tch::no_grad(|| {
            let mut output = self.spec.forward_piece(&call, &rows, open, is_last)?;
            if let LayerRows::Products { values, stride, .. } = rows
                && let (Some(own), _) = self.picked(layer, block, (values, stride))
            {
                output += own;
            }
            Some(self.with_carried(layer, block, &rows, output))
        })
    }

    /// True if the transition after a layer needs statistics of all nodes: [`Model::statistics`].
    pub fn needs_statistics(&self, layer: usize) -> bool {
        self.config.norm() == Norm::Graph && self.config.is_hidden(layer)
    }

    /// Statistics of the outputs of a layer for all `n_nodes` nodes, of which `outputs` gives some at a time, in the order of their ids.
    pub(crate) fn statistics<'a>(
        &self,
        layer: usize,
        (n_nodes, n_together): (usize, usize),
        mut outputs: impl FnMut(Range<usize>) -> Result<Cow<'a, [f32]>, TrainError>,
    ) -> Result<ColumnStatistics, TrainError> {
        let (width, stride) = (self.layers[layer].width(), self.output_len(layer));
        let own = |nodes| {
            let outputs = outputs(nodes)?;
            Ok(match width == stride {
                true => outputs,
                false => Cow::Owned(outputs.chunks_exact(stride).flat_map(|node| &node[..width]).copied().collect()),
            })
        };
        let mean_scale = self.weights.get(&format!("norms.{layer}.mean_scale"));
        let mean_scale = mean_scale.map(|scale| Vec::<f32>::try_from(scale.detach()).expect("a row of floats"));
        column_statistics_of((n_nodes, n_together), width, mean_scale.as_deref(), own)
    }

    /// Takes outputs of a layer through its transition; `statistics` are those of all nodes, if they are needed. Of plain fused layers
    /// the ELU comes with the next layer.
    pub fn pass_on(
        &self,
        layer: usize,
        outputs: Tensor,
        statistics: Option<&ColumnStatistics>,
    ) -> Result<Tensor, TrainError> {
        if !self.config.is_hidden(layer) {
            return Ok(outputs);
        }
        tch::no_grad(|| match (self.config.is_plain(), self.kernels) {
            (true, Kernels::Fused) => Ok(outputs),
            (true, Kernels::Reference) => Ok(outputs.elu()),
            (false, kernels) => {
                let width = self.layers[layer].width() as i64;
                let n_carried = outputs.size()[1] - width;
                let own = outputs.narrow(1, 0, width);
                let before = (n_carried > 0).then(|| outputs.narrow(1, width, n_carried));
                let transition = Transition::of_layer(&self.config, &self.weights, layer);
                let rows = transition.evaluate(&own, statistics, kernels)?;
                Ok(match carry(&self.config, before, &rows) {
                    Some(carried) => Tensor::cat(&[rows, carried], 1),
                    None => rows,
                })
            }
        })
    }

    /// Logits of nodes, given the outputs of the last graph layer after its transition.
    pub fn logits(&self, outputs: Tensor) -> Result<Tensor, TrainError> {
        if !self.config.has_output_linear() {
            return Ok(outputs);
        }
        let rows = self.embeddings(outputs);
        let (weight, bias) = (self.named(OUTPUT, "weight"), self.named(OUTPUT, "bias"));
        tch::no_grad(|| match self.kernels {
            Kernels::Fused => {
                let rows = rows.contiguous();
                Ok(linear(LayerInput::Ready(&rows), rows.size()[0] as usize, (weight, Some(bias)), None)?)
            }
            Kernels::Reference => Ok(reference::product(&rows, weight) + bias),
        })
    }

    /// Input of the linear layer at the end, or of the last graph layer, given the outputs of the graph layer before it after its
    /// transition.
    pub fn embeddings(&self, outputs: Tensor) -> Tensor {
        let width = self.layers[0].width() as i64;
        match (self.config.has_output_linear(), outputs.size()[1] - width) {
            (true, n_carried) if n_carried > 0 => outputs.narrow(1, width, n_carried),
            _ => outputs,
        }
    }

    /// The attention weights of one layer over a part of a graph, edges × heads in the block's order; `None` for kinds
    /// without attention.
    pub fn attention_of_layer(&self, layer: usize, part: LayerPart<'_>) -> Result<Option<Tensor>, TrainError> {
        // Fused layers keep nothing of what passes between them.
        let reference = self.to_kind(self.weights.flat().kind());
        let rows = match part.rows {
            ReadRows::Made(rows) if self.gives_rows_before_elu() => LayerRows::Hidden(rows.elu()),
            rows => self.layer_rows(layer, rows),
        };
        let what = (layer, part.block, part.out_degrees);
        tch::no_grad(|| Ok(reference.graph_layer(what, &rows, Pass::Evaluate, (None, None))?.attention))
    }

    /// Record of each node that a layer reads, [`Model::record_len`] values: product with the weights, product as a target of
    /// dynamic attention, residual, jumping values.
    pub fn multiply(&self, layer: usize, rows: ReadRows<'_>) -> Result<Vec<f32>, TrainError> {
        let shape = self.layers[layer];
        let weight = self.weight(layer, "weight");
        tch::no_grad(|| {
            let (rows, carried) = self.entered(layer, self.layer_rows(layer, rows))?;
            let products = match self.kernels {
                Kernels::Fused => multiply(rows.as_input(), weight, (shape.heads, shape.features)),
                Kernels::Reference => rows_of(&reference::product(&rows.to_tensor(&self.weights), weight))?.values,
            };
            let [targets, own] = self.own_of(layer, &rows)?;
            let parts = [targets, own, carried].into_iter().flatten();
            let parts: Vec<Matrix> = parts.map(|part| rows_of(&part)).collect::<Result<_, _>>()?;
            if parts.is_empty() {
                return Ok(products);
            }
            let len = self.product_len(layer);
            let record = |(node, product): (usize, &[f32])| -> Vec<f32> {
                product.iter().chain(parts.iter().flat_map(|part| part.row(node))).copied().collect()
            };
            Ok(products.chunks_exact(len).enumerate().flat_map(record).collect())
        })
    }

    /// Input of a layer's product, and the jumping values that came with it. The first layer reads the output of the linear layer
    /// before it, if there is one.
    fn entered<'a>(&self, layer: usize, rows: LayerRows<'a>) -> Result<(LayerRows<'a>, Option<Tensor>), TrainError> {
        match rows {
            LayerRows::Input(features) if self.config.has_input_linear() => {
                let (weight, bias) = (self.named(INPUT, "weight"), self.named(INPUT, "bias"));
                let rows = match self.kernels {
                    Kernels::Fused => {
                        linear(LayerInput::Rows(features), features.n_rows(), (weight, Some(bias)), None)?
                    }
                    Kernels::Reference => {
                        reference::product(&LayerRows::Input(features).to_tensor(&self.weights), weight) + bias
                    }
                };
                Ok((LayerRows::Ready(rows), None))
            }
            LayerRows::Ready(rows) => {
                let dim = self.layers[layer].dim as i64;
                let n_carried = rows.size()[1] - dim;
                let carried = (n_carried > 0).then(|| rows.narrow(1, dim, n_carried));
                Ok((LayerRows::Ready(rows.narrow(1, 0, dim).contiguous()), carried))
            }
            rows => Ok((rows, None)),
        }
    }

    /// Target of each node, and its residual and root terms.
    fn own_of(&self, layer: usize, rows: &LayerRows<'_>) -> Result<[Option<Tensor>; 2], TrainError> {
        if self.own_len(layer) + self.target_len(layer) == 0 {
            return Ok([None, None]);
        }
        let n_rows = match rows {
            LayerRows::Input(rows) => rows.n_rows(),
            LayerRows::Hidden(rows) | LayerRows::Ready(rows) => rows.size()[0] as usize,
            LayerRows::Products { .. } => unreachable!("products are not multiplied again"),
        };
        let loops = Arc::new(Block::of_loops(n_rows));
        let call = self.call((layer, &loops, None), None, Pass::Evaluate);
        Ok([call.targets(rows)?, call.own(rows)?])
    }

    /// Residual and jumping values of a block's destinations, from the records.
    pub(super) fn picked(
        &self,
        layer: usize,
        block: &Block,
        (values, stride): (&[f32], usize),
    ) -> (Option<Tensor>, Option<Tensor>) {
        let picked = |start: usize, len: usize| {
            let picked = || pick(block, (values, stride), block.n_destinations(), start..start + len);
            (len > 0).then(|| self.tensor_of(&picked(), len))
        };
        let (own, carried) = (self.own_len(layer), self.carried_len(layer));
        let start = self.product_len(layer) + self.target_len(layer);
        (picked(start, own), picked(start + own, carried))
    }

    fn with_carried(&self, layer: usize, block: &Block, rows: &LayerRows<'_>, output: Tensor) -> Tensor {
        match rows {
            LayerRows::Products { values, stride, .. } => match self.picked(layer, block, (values, *stride)).1 {
                Some(carried) => Tensor::cat(&[output, carried], 1),
                None => output,
            },
            _ => output,
        }
    }

    /// Numbers of nodes, `len` each, as a tensor like the weights.
    pub fn tensor_of(&self, values: &[f32], len: usize) -> Tensor {
        let like = self.weights.flat();
        Tensor::from_slice(values).view([-1, len as i64]).to_device(like.device()).to_kind(like.kind())
    }

    /// Numbers of one product.
    fn product_len(&self, layer: usize) -> usize {
        let LayerShape { heads, features, .. } = self.layers[layer];
        match self.kernels {
            Kernels::Fused => product_len(heads, features),
            Kernels::Reference => heads * features,
        }
    }

    /// Numbers of a node's product as a target of dynamic attention.
    fn target_len(&self, layer: usize) -> usize {
        let LayerShape { heads, features, .. } = self.layers[layer];
        if self.config.is_dynamic() { heads * features } else { 0 }
    }

    fn own_len(&self, layer: usize) -> usize {
        own_width(&self.config, layer, self.layers[layer])
    }

    fn carried_len(&self, layer: usize) -> usize {
        carried_len(&self.config, layer, self.layers[0].width())
    }

    /// Length of the record of one node that a layer reads.
    pub fn record_len(&self, layer: usize) -> usize {
        self.product_len(layer) + self.target_len(layer) + self.own_len(layer) + self.carried_len(layer)
    }

    /// Length of one node's output before its transition, with its jumping values.
    pub fn output_len(&self, layer: usize) -> usize {
        self.layers[layer].width() + self.carried_len(layer)
    }

    /// Length of one node's output after its transition, with its jumping values.
    pub fn passed_len(&self, layer: usize) -> usize {
        self.layers[layer].width() + self.carried_len(layer + 1)
    }

    pub(super) fn layer_rows<'a>(&self, layer: usize, rows: ReadRows<'a>) -> LayerRows<'a> {
        match rows {
            ReadRows::Stored(rows) => LayerRows::Input(rows),
            ReadRows::Made(rows) => self.passed(rows),
            ReadRows::Products(values) => LayerRows::Products {
                values,
                stride: self.record_len(layer),
                is_packed: self.kernels == Kernels::Fused,
            },
        }
    }

    /// True if a hidden layer's output gets its ELU in the layer that reads it.
    pub fn gives_rows_before_elu(&self) -> bool {
        self.kernels == Kernels::Fused && self.config.is_plain()
    }
}

/// A part of a graph that one layer looks at: some destinations with all their edges.
#[derive(Debug)]
pub struct LayerPart<'a> {
    /// Its edges.
    pub block: &'a Arc<Block>,
    /// Of the whole graph, for kinds whose factors count them; `None` where the block is the whole graph.
    pub out_degrees: Option<&'a OutDegrees>,
    /// Input of the block's sources.
    pub rows: ReadRows<'a>,
}

/// Rows of the sources of a part.
#[derive(Debug)]
pub enum ReadRows<'a> {
    /// Rows of the store: what the first layer reads.
    Stored(&'a Arc<InputRows>),
    /// Output of the previous layer.
    Made(Tensor),
    /// Results of [`Model::multiply`] for every node, by id.
    Products(&'a [f32]),
}
