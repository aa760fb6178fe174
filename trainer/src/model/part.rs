//! One layer over a part of a graph, with nothing dropped.

use std::sync::Arc;

use kith_block::Block;
use kith_kernels::{InputRows, OpenList, multiply, product_len};
use kith_run::config::Kernels;
use tch::Tensor;

use crate::{
    data::matrix::rows_of,
    error::TrainError,
    model::{Model, call::LayerRows, layer_shape::LayerShape, out_degrees::OutDegrees, pass::Pass, reference},
};

impl Model {
    /// Output of one layer for a part of a graph, without dropout.
    pub fn evaluate_layer(&self, layer: usize, part: LayerPart<'_>) -> Result<Tensor, TrainError> {
        let LayerPart { block, out_degrees, rows } = part;
        let rows = self.layer_rows(rows);
        tch::no_grad(|| Ok(self.one_layer((layer, block, out_degrees), &rows, Pass::Evaluate, (None, None))?.rows))
    }

    /// True if the neighbor list of a destination may come in pieces. Tensor operations need whole lists: their softmax
    /// subtracts the largest score first, and their sums over a list have no cuts that pieces could end at.
    pub fn takes_pieces(&self) -> bool {
        self.kernels == Kernels::Fused
    }

    /// Output of one layer for a destination whose neighbor list comes in pieces: `part` is the next one, and the last
    /// one returns the output. The bits are those of the whole list.
    pub fn evaluate_piece(
        &self,
        layer: usize,
        part: LayerPart<'_>,
        open: &mut OpenList,
        is_last: bool,
    ) -> Option<Tensor> {
        assert!(self.takes_pieces(), "tensor operations look at whole lists");
        let LayerPart { block, out_degrees, rows } = part;
        let rows = self.layer_rows(rows);
        let call = self.call((layer, block, out_degrees), None, Pass::Evaluate);
        tch::no_grad(|| self.spec.forward_piece(&call, &rows, open, is_last))
    }

    /// The attention weights of one layer over a part of a graph, edges × heads in the block's order; `None` for kinds
    /// without attention.
    pub fn attention_of_layer(&self, layer: usize, part: LayerPart<'_>) -> Result<Option<Tensor>, TrainError> {
        // Fused layers keep nothing of what passes between them.
        let reference = self.to_kind(self.weights.flat().kind());
        let rows = match part.rows {
            ReadRows::Made(rows) if self.gives_rows_before_elu() => LayerRows::Hidden(rows.elu()),
            rows => self.layer_rows(rows),
        };
        let what = (layer, part.block, part.out_degrees);
        tch::no_grad(|| Ok(reference.one_layer(what, &rows, Pass::Evaluate, (None, None))?.attention))
    }

    /// Rows times the weights of a layer: [`Model::product_len`] numbers for each. What a layer makes of a part of a graph
    /// begins with this.
    pub fn multiply(&self, layer: usize, rows: ReadRows<'_>) -> Result<Vec<f32>, TrainError> {
        let shape = self.layers[layer];
        let weight = self.weight(layer, "weight");
        let rows = self.layer_rows(rows);
        tch::no_grad(|| match self.kernels {
            Kernels::Fused => Ok(multiply(rows.as_input(), weight, (shape.heads, shape.features))),
            Kernels::Reference => Ok(rows_of(&reference::product(&rows.to_tensor(&self.weights), weight))?.values),
        })
    }

    /// Numbers of one product.
    pub fn product_len(&self, layer: usize) -> usize {
        let LayerShape { heads, features, .. } = self.layers[layer];
        match self.kernels {
            Kernels::Fused => product_len(heads, features),
            Kernels::Reference => heads * features,
        }
    }

    pub(super) fn layer_rows<'a>(&self, rows: ReadRows<'a>) -> LayerRows<'a> {
        match rows {
            ReadRows::Stored(rows) => LayerRows::Input(rows),
            ReadRows::Made(rows) => LayerRows::Hidden(rows),
            ReadRows::Products(values) => LayerRows::Products { values, is_packed: self.kernels == Kernels::Fused },
        }
    }

    /// True if a hidden layer's output gets its ELU in the layer that reads it.
    pub fn gives_rows_before_elu(&self) -> bool {
        self.kernels == Kernels::Fused
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
    /// Result of [`Model::multiply`] for every node, by id.
    Products(&'a [f32]),
}
