//! A layer that sums neighbors with fixed factors, as one differentiable call:
//!
//! ```text
//! out_i = d_i Σ_j s_j w_ij h_j + bias     h = x·W, over the neighbors j of i and i itself, unless they are left out
//! ```
//!
//! w_ij is the weight of the edge, or 1.

use std::{ops::Range, sync::Arc};

use kith_block::Block;
use kith_draw::{Stream, Vectorized, vectorized};
use rayon::prelude::*;
use tch::{Device, Kind, TchError, Tensor};

use crate::{
    bridge::{attach, filled, numbers},
    buffer::Buffer,
    cut::{PIECE_EDGES, parts_mut, units},
    dropout::{Drop, Dropout},
    edge_mask::{EdgeMask, degree_from, sum_of_weights},
    layer::{KeptInput, LayerDraws, LayerInput},
    layout::Layout,
    node_sums::{Nodes, column_sums, write_outputs},
    open_list::OpenList,
    product::{KeptFactors, Product},
    products::pick,
    simd::{Lanes, prefetch},
    weighted_rows::{GroupRows, add_weighted},
};

/// The factors of an aggregating layer.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateLayer {
    /// d, by destination.
    pub destinations: Vec<f32>,
    /// s, by source.
    pub sources: Vec<f32>,
    /// Edges that it leaves out.
    pub left_out: Option<EdgeMask>,
    /// True if the weights of the block's edges are factors as well.
    pub is_weighted: bool,
}

/// The weights of an aggregating layer.
#[derive(Clone, Copy, Debug)]
pub struct AggregateWeights<'a> {
    /// dim × features.
    pub weight: &'a Tensor,
    /// One per feature.
    pub bias: &'a Tensor,
}

impl AggregateLayer {
    /// Neighbors divided by the root of both degrees, which count edges, or their weights, by source.
    pub fn convolution(block: &Block, left_out: Option<EdgeMask>, is_weighted: bool) -> AggregateLayer {
        let mask = left_out.as_ref();
        let degrees: Vec<f32> =
            (0..block.n_sources()).into_par_iter().map(|node| degree_from(mask, block, node, is_weighted)).collect();
        AggregateLayer::convolution_by(block, left_out, is_weighted, |node| degrees[node])
    }

    /// The same with degrees from elsewhere, by position: a block that has only some of a graph's destinations does not
    /// have all edges of its sources.
    pub fn convolution_by(
        block: &Block,
        left_out: Option<EdgeMask>,
        is_weighted: bool,
        degree: impl Fn(usize) -> f32,
    ) -> AggregateLayer {
        let root = |node: usize| match degree(node) {
            0.0 => 0.0,
            degree => 1.0 / degree.sqrt(),
        };
        AggregateLayer {
            destinations: (0..block.n_destinations()).map(root).collect(),
            sources: (0..block.n_sources()).map(root).collect(),
            left_out,
            is_weighted,
        }
    }

    /// The mean of the neighbors, by the weights of their edges if they count.
    pub fn mean(block: &Block, left_out: Option<EdgeMask>, is_weighted: bool) -> AggregateLayer {
        let degree = |node: usize| match is_weighted {
            false => EdgeMask::n_into(left_out.as_ref(), block, node) as f32,
            true => sum_of_weights(left_out.as_ref(), block, block.edges_into(node)).degree(),
        };
        let degrees: Vec<f32> = (0..block.n_destinations()).into_par_iter().map(degree).collect();
        AggregateLayer::mean_by(block, left_out, is_weighted, |node| degrees[node])
    }

    /// The same with the number of each destination's edges, or the sum of their weights, from elsewhere.
    pub fn mean_by(
        block: &Block,
        left_out: Option<EdgeMask>,
        is_weighted: bool,
        degree: impl Fn(usize) -> f32,
    ) -> AggregateLayer {
        let inverse = |node: usize| match degree(node) {
            0.0 => 1.0,
            degree => 1.0 / degree,
        };
        AggregateLayer {
            destinations: (0..block.n_destinations()).map(inverse).collect(),
            sources: vec![1.0; block.n_sources()],
            left_out,
            is_weighted,
        }
    }

    /// The sum of the neighbors.
    pub fn sum(block: &Block, left_out: Option<EdgeMask>, is_weighted: bool) -> AggregateLayer {
        let (destinations, sources) = (vec![1.0; block.n_destinations()], vec![1.0; block.n_sources()]);
        AggregateLayer { destinations, sources, left_out, is_weighted }
    }

    /// The layer's output. Without `draws` nothing is dropped and nothing can be differentiated: that is evaluation.
    pub fn forward(
        self,
        input: LayerInput,
        weights: AggregateWeights,
        block: &Arc<Block>,
        draws: Option<LayerDraws>,
    ) -> Result<Tensor, TchError> {
        let (state, rows) = self.state(&input, weights, block, draws);
        let output = state.output(&state.sums(&rows).run(), weights);
        if draws.is_some() {
            let nothing = Tensor::zeros([0], (Kind::Float, Device::Cpu));
            let inputs = [input.hidden().unwrap_or(&nothing), weights.weight, weights.bias];
            attach(&inputs, &[&output], Box::new(move |gradients| Ok(state.backward(gradients))))?;
        }
        Ok(output)
    }

    /// The output of a block of one destination that has a piece of its edges, once that is the last one; see
    /// [`OpenList`]. Nothing is dropped, and only the last piece looks at the destination's factor.
    pub fn forward_piece(
        self,
        input: LayerInput,
        weights: AggregateWeights,
        (block, is_last): (&Arc<Block>, bool),
        open: &mut OpenList,
    ) -> Option<Tensor> {
        assert_eq!(block.n_destinations(), 1, "one destination comes in pieces");
        let (state, rows) = self.state(&input, weights, block, None);
        let piece = open.add(block.n_edges(), is_last);
        if piece.n_before == 0 {
            open.sums = vec![Lanes::ZERO; state.layout.width()];
        }
        let is_first = piece.n_before == 0;
        vectorized(Unit { sums: state.sums(&rows), range: 0..1, is_first, is_last, out: &mut open.sums });
        is_last.then(|| state.output(&open.sums, weights))
    }

    /// All that comes before the sums over the edges, and the rows that are added up.
    fn state(
        self,
        input: &LayerInput,
        weights: AggregateWeights,
        block: &Arc<Block>,
        draws: Option<LayerDraws>,
    ) -> (State, Buffer) {
        let layout = Layout::new(1, weights.weight.size()[1] as usize);
        let mut state = State {
            layer: self,
            layout,
            input: KeptInput::new(input),
            block: Arc::clone(block),
            dropout: draws.and_then(LayerDraws::input_dropout),
            weights: layout.pack(numbers(&weights.weight.contiguous())),
            kept: KeptFactors::Nothing,
        };
        let rows = match input {
            LayerInput::Products { values, stride } => pick(values, *stride, block, layout),
            _ => {
                let (rows, kept) = state.product().forward();
                state.kept = kept;
                rows
            }
        };
        (state, rows)
    }
}

/// All that one layer holds between forward and backward.
struct State {
    layer: AggregateLayer,
    layout: Layout,
    /// The input, unless it came as products.
    input: Option<KeptInput>,
    block: Arc<Block>,
    dropout: Option<(Dropout, Stream)>,
    weights: Vec<Lanes>,
    /// Input values saved for backward.
    kept: KeptFactors,
}

impl State {
    fn product(&self) -> Product<'_> {
        let input = self.input.as_ref().expect("only what is multiplied here has a way back");
        Product {
            input: input.as_input(),
            n_rows: self.block.n_sources(),
            dropout: self.dropout.map(|(dropout, stream)| Drop { dropout, stream, block: &self.block }),
            weights: &self.weights,
            width: self.layout.width(),
        }
    }

    fn weights_of_edges(&self) -> Option<&[f32]> {
        if self.layer.is_weighted { self.block.known_weights() } else { None }
    }

    fn sums<'a>(&'a self, rows: &'a [Lanes]) -> Sums<'a> {
        Sums {
            width: self.layout.width(),
            indptr: self.block.indptr(),
            nodes: self.block.sources(),
            rows,
            own: &self.layer.destinations,
            others: &self.layer.sources,
            left_out: self.layer.left_out.as_ref(),
            weights: self.weights_of_edges(),
            edges: None,
        }
    }

    fn output(&self, sums: &[Lanes], weights: AggregateWeights) -> Tensor {
        let layout = self.layout;
        filled(&[self.block.n_destinations() as i64, layout.features as i64], |out| {
            write_outputs(Nodes { layout, rows: sums }, false, numbers(weights.bias), out);
        })
    }

    /// The gradients of input, weight and bias, given that of the output.
    fn backward(&self, gradients: &[Option<Tensor>]) -> Vec<Option<Tensor>> {
        let Some(Some(gradient)) = gradients.first() else { return vec![None, None, None] };
        let gradient = gradient.to_kind(Kind::Float).contiguous();
        let spread = self.layout.pack(numbers(&gradient));
        let pushed = Sums {
            width: self.layout.width(),
            indptr: self.block.out_indptr(),
            nodes: self.block.destinations(),
            rows: &spread,
            own: &self.layer.sources,
            others: &self.layer.destinations,
            left_out: self.layer.left_out.as_ref(),
            weights: self.weights_of_edges(),
            edges: Some(self.block.out_edges()),
        }
        .run();
        let product = self.product();
        let weight = self.layout.unpack(&product.weight_gradient(&self.kept, &pushed));
        let weight = Tensor::from_slice(&weight).view([product.dim() as i64, self.layout.features as i64]);
        let hidden = self.input.as_ref().and_then(KeptInput::tensor);
        let input = hidden.map(|hidden| filled(&hidden.size(), |out| product.input_gradient(&pushed, out)));
        vec![input, Some(weight), Some(Tensor::from_slice(&column_sums(numbers(&gradient), self.layout.features)))]
    }
}

/// Of each node its own factor times the sum of its neighbors' rows, each times the neighbor's factor.
#[derive(Clone, Copy)]
struct Sums<'a> {
    width: usize,
    indptr: &'a [usize],
    nodes: &'a [u32],
    rows: &'a [Lanes],
    own: &'a [f32],
    others: &'a [f32],
    left_out: Option<&'a EdgeMask>,
    /// Of the block's edges.
    weights: Option<&'a [f32]>,
    /// Which edge of the block each one is; `None` if they are in its order.
    edges: Option<&'a [u32]>,
}

impl Sums<'_> {
    fn run(self) -> Buffer {
        let mut out = Buffer::dirty(self.own.len() * self.width);
        let ranges = units(self.indptr);
        let parts = parts_mut(&mut out, &ranges, |range| range.len() * self.width);
        ranges.into_par_iter().zip(parts).for_each(|(range, out)| {
            vectorized(Unit { sums: self, range, is_first: true, is_last: true, out });
        });
        out
    }
}

struct Unit<'a> {
    sums: Sums<'a>,
    range: Range<usize>,
    /// `is_first`: no piece of the list came before. `is_last`: none comes after. Both are true for whole lists.
    is_first: bool,
    is_last: bool,
    out: &'a mut [Lanes],
}

impl Vectorized for Unit<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Sums { width, indptr, nodes, rows, own, others, left_out, weights, edges } = self.sums;
        let (mut factors, all) = (Vec::with_capacity(PIECE_EDGES), GroupRows::whole(rows, width));
        for (node, out) in self.range.zip(self.out.chunks_exact_mut(width)) {
            let end = indptr[node + 1];
            for next in &nodes[end..(end + 16).min(nodes.len())] {
                prefetch(&rows[*next as usize * width..][..width]);
            }
            if self.is_first {
                out.fill(Lanes::ZERO);
            }
            for (piece, list) in nodes[indptr[node]..end].chunks(PIECE_EDGES).enumerate() {
                factors.clear();
                factors.extend(list.iter().map(|other| [others[*other as usize]]));
                if left_out.is_some() || weights.is_some() {
                    let first = indptr[node] + piece * PIECE_EDGES;
                    for (place, factor) in factors.iter_mut().enumerate() {
                        let edge = edges.map_or(first + place, |edges| edges[first + place] as usize);
                        if let Some(weights) = weights {
                            factor[0] *= weights[edge];
                        }
                        if left_out.is_some_and(|left_out| left_out.leaves_out(edge)) {
                            *factor = [0.0];
                        }
                    }
                }
                add_weighted(out, &factors, all, list);
            }
            if self.is_last {
                for out in out {
                    *out = out.scaled(own[node]);
                }
            }
        }
    }
}
