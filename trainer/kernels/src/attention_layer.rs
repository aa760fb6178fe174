//! An attention layer as one differentiable call: features, weights and edges in, output and edge loss out.

use std::sync::Arc;

use kith_block::{Block, Form, Pairs};
use kith_draw::Stream;
use tch::{TchError, Tensor};

use crate::{
    attention::{
        Attention, Grouped, GroupedPairs, Mask, Saved, forward, forward_piece, pull_to_destinations, push_to_sources,
    },
    bridge::{attach, filled, numbers},
    buffer::Buffer,
    dropout::{Drop, Dropout},
    layer::{KeptInput, LayerDraws, LayerInput},
    layout::Layout,
    node_sums::{Nodes, column_sums, head_sums, spread, weighted_row_sum, write_outputs},
    open_list::OpenList,
    product::{KeptFactors, Product},
    products::pick,
    simd::Lanes,
};

/// The shape of an attention layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionLayer {
    /// Attention: GO, DP, SD or MX.
    pub form: Form,
    /// Heads.
    pub heads: usize,
    /// Features per head.
    pub features: usize,
    /// True to average heads, false to concatenate them.
    pub is_mean: bool,
}

/// The weights of an attention layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionWeights<'a> {
    /// dim × (heads · features); column `head * features + feature`.
    pub weight: &'a Tensor,
    /// heads × 2 · features, the destination's half first; only for forms that have it.
    pub attention: Option<&'a Tensor>,
    /// One per output.
    pub bias: &'a Tensor,
}

impl AttentionLayer {
    /// The layer's output and, given pairs, its edge loss. Without `draws` nothing is dropped and nothing can be
    /// differentiated: that is evaluation.
    pub fn forward(
        self,
        input: LayerInput,
        weights: AttentionWeights,
        block: &Arc<Block>,
        draws: Option<LayerDraws>,
        pairs: Option<Pairs>,
    ) -> Result<(Tensor, Option<Tensor>), TchError> {
        let mut state = self.state(&input, weights, block, draws, pairs);
        let saved = forward(&state.attention());
        let output = self.output(&saved.outputs, weights, block.n_destinations());
        let n_pairs = state.pairs.as_ref().map(|(pairs, _)| pairs.n_pairs().max(1));
        let edge_loss = n_pairs.map(|n_pairs| filled(&[], |loss| loss[0] = (saved.loss / n_pairs as f64) as f32));
        state.saved = Some(saved);

        if draws.is_some() {
            let no_grad = tch::no_grad(|| Tensor::zeros([0], (tch::Kind::Float, tch::Device::Cpu)));
            let inputs = [
                input.hidden().unwrap_or(&no_grad),
                weights.weight,
                weights.attention.unwrap_or(&no_grad),
                weights.bias,
            ];
            let outputs: Vec<&Tensor> = [Some(&output), edge_loss.as_ref()].into_iter().flatten().collect();
            // Taken, so that what it holds is free for the layers before it.
            let mut state = Some(state);
            let backward =
                move |gradients: &[Option<Tensor>]| Ok(state.take().expect("backward runs once").backward(gradients));
            attach(&inputs, &outputs, Box::new(backward))?;
        }
        Ok((output, edge_loss))
    }

    /// The output of a block of one destination that has a piece of its edges, once that is the last one; see
    /// [`OpenList`]. Nothing is dropped.
    pub fn forward_piece(
        self,
        input: LayerInput,
        weights: AttentionWeights,
        (block, is_last): (&Arc<Block>, bool),
        open: &mut OpenList,
    ) -> Option<Tensor> {
        let state = self.state(&input, weights, block, None, None);
        let piece = open.add(block.n_edges(), is_last);
        let outputs = forward_piece(&state.attention(), piece, &mut open.attended)?;
        Some(self.output(&outputs, weights, 1))
    }

    /// All that comes before the pass over the edges.
    fn state(
        self,
        input: &LayerInput,
        weights: AttentionWeights,
        block: &Arc<Block>,
        draws: Option<LayerDraws>,
        pairs: Option<Pairs>,
    ) -> State {
        let layout = Layout::new(self.heads, self.features);
        let packed_attention = weights.attention.map(|attention| self.pack_attention(layout, numbers(attention)));
        let negatives =
            pairs.as_ref().map(|pairs| Grouped::new(pairs.negatives(), block.n_destinations(), block.n_sources()));
        let mut state = State {
            layer: self,
            layout,
            input: KeptInput::new(input),
            block: Arc::clone(block),
            input_dropout: draws.and_then(LayerDraws::input_dropout),
            mask: draws.and_then(LayerDraws::attention_dropout).map(|dropout| Mask::draw(dropout, block, layout)),
            weights: layout.pack(numbers(&weights.weight.contiguous())),
            attention: packed_attention.unwrap_or_default(),
            pairs: pairs.zip(negatives),
            rows: Buffer::default(),
            kept: KeptFactors::Nothing,
            left: Buffer::default(),
            right: Buffer::default(),
            saved: None,
        };
        match input {
            LayerInput::Products { values, stride } => state.rows = pick(values, *stride, block, layout),
            _ => (state.rows, state.kept) = state.product().forward(),
        }
        if self.form.has_weights() {
            let rows = Nodes { layout, rows: &state.rows };
            state.left = head_sums(rows, &state.attention[0], block.n_destinations());
            state.right = head_sums(rows, &state.attention[1], block.n_sources());
        }
        state
    }

    /// Heads side by side or their mean, and the bias.
    fn output(self, outputs: &[Lanes], weights: AttentionWeights, n_destinations: usize) -> Tensor {
        let layout = Layout::new(self.heads, self.features);
        let n_outputs = if self.is_mean { self.features } else { self.heads * self.features };
        filled(&[n_destinations as i64, n_outputs as i64], |out| {
            write_outputs(Nodes { layout, rows: outputs }, self.is_mean, numbers(weights.bias), out);
        })
    }

    /// a₁ and a₂ in the layout of a row.
    fn pack_attention(self, layout: Layout, attention: &[f32]) -> [Vec<Lanes>; 2] {
        [0, 1].map(|half| {
            let halves = attention.chunks_exact(2 * self.features);
            let own: Vec<f32> =
                halves.flat_map(|both| &both[half * self.features..][..self.features]).copied().collect();
            layout.pack(&own)
        })
    }
}

/// All that one layer holds between forward and backward.
struct State {
    layer: AttentionLayer,
    layout: Layout,
    /// The input, unless it came as products.
    input: Option<KeptInput>,
    block: Arc<Block>,
    input_dropout: Option<(Dropout, Stream)>,
    mask: Option<Mask>,
    weights: Vec<Lanes>,
    attention: [Vec<Lanes>; 2],
    pairs: Option<(Pairs, Grouped)>,
    /// Features after the product; input values saved for backward.
    rows: Buffer,
    kept: KeptFactors,
    left: Buffer,
    right: Buffer,
    saved: Option<Saved>,
}

impl State {
    fn product(&self) -> Product<'_> {
        let input = self.input.as_ref().expect("only what is multiplied here has a way back");
        Product {
            input: input.as_input(),
            n_rows: self.block.n_sources(),
            dropout: self.input_dropout.map(|(dropout, stream)| Drop { dropout, stream, block: &self.block }),
            weights: &self.weights,
            width: self.layout.width(),
        }
    }

    fn attention(&self) -> Attention<'_> {
        Attention {
            block: &self.block,
            layout: self.layout,
            form: self.layer.form,
            rows: &self.rows,
            weights: [&self.attention[0], &self.attention[1]],
            left: self.left.numbers(),
            right: self.right.numbers(),
            mask: self.mask.as_ref(),
            pairs: self.pairs.as_ref().map(|(pairs, negatives)| GroupedPairs { pairs, negatives }),
        }
    }

    /// The gradients of input, weight, attention and bias, given those of output and edge loss.
    fn backward(mut self, gradients: &[Option<Tensor>]) -> Vec<Option<Tensor>> {
        let AttentionLayer { heads, features, is_mean, .. } = self.layer;
        let (layout, n_destinations) = (self.layout, self.block.n_destinations());
        let n_outputs = if is_mean { features } else { heads * features };
        let output = match gradients.first() {
            Some(Some(gradient)) => gradient.to_kind(tch::Kind::Float).contiguous(),
            _ => Tensor::zeros([n_destinations as i64, n_outputs as i64], (tch::Kind::Float, tch::Device::Cpu)),
        };
        let output = numbers(&output);
        let pair = match (gradients.get(1), &self.pairs) {
            (Some(Some(gradient)), Some((pairs, _))) => {
                (gradient.double_value(&[]) / (pairs.n_pairs().max(1) * heads) as f64) as f32
            }
            _ => 0.0,
        };

        let mut saved = self.saved.take().expect("backward runs once");
        let bias = column_sums(output, n_outputs);
        let spread = spread(layout, is_mean, output, &saved.outputs, saved.records.numbers_mut());
        saved.outputs = Buffer::default();
        let attention = self.attention();
        let mut pushed = push_to_sources(&attention, &saved, &spread, pair);
        drop(spread);
        let left = pull_to_destinations(&attention, &saved, &mut pushed, pair);
        drop(saved);
        let attention = self.layer.form.has_weights().then(|| {
            let rows = Nodes { layout, rows: &self.rows };
            let (of_left, of_right) = rayon::join(
                || weighted_row_sum(rows, left.numbers(), n_destinations),
                || weighted_row_sum(rows, pushed.right.numbers(), self.block.n_sources()),
            );
            let halves = [layout.unpack(&of_left), layout.unpack(&of_right)];
            let mut both = Vec::with_capacity(2 * heads * features);
            for head in 0..heads {
                for half in &halves {
                    both.extend_from_slice(&half[head * features..(head + 1) * features]);
                }
            }
            Tensor::from_slice(&both).view([heads as i64, 2 * features as i64])
        });
        let product = self.product();
        let weight = layout.unpack(&product.weight_gradient(&self.kept, &pushed.rows));
        let dim = product.dim() as i64;
        let weight = Tensor::from_slice(&weight).view([dim, (heads * features) as i64]);
        let hidden = self.input.as_ref().and_then(KeptInput::tensor);
        let input = hidden.map(|hidden| filled(&hidden.size(), |out| product.input_gradient(&pushed.rows, out)));
        vec![input, Some(weight), attention, Some(Tensor::from_slice(&bias))]
    }
}
