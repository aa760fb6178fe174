//! An attention layer as one differentiable call: features, weights and edges in, output and edge loss out.

use std::sync::Arc;

use kith_block::{Block, Form, Pairs};
use kith_draw::Stream;
use tch::{TchError, Tensor};

use crate::{
    attention::{
        Attention, Grouped, GroupedPairs, Mask, Pulled, Saved, forward, forward_piece, pull_to_destinations,
        push_to_sources,
    },
    bridge::{attach, filled, numbers},
    buffer::Buffer,
    dropout::{Drop, Dropout},
    edge_mask::EdgeMask,
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
    /// Its attention.
    pub form: Form,
    /// Heads.
    pub heads: usize,
    /// Features per head.
    pub features: usize,
    /// True to average heads, false to concatenate them.
    pub is_mean: bool,
}

/// Draws of an attention layer in one step, and the edges that it leaves out.
#[derive(Debug, Default)]
pub struct AttentionStep {
    /// Names of dropout. Without them nothing is dropped and nothing can be differentiated: that is evaluation.
    pub draws: Option<LayerDraws>,
    /// Pairs of the edge loss.
    pub pairs: Option<Pairs>,
    /// Edges that attention leaves out. The edge loss sees them.
    pub left_out: Option<EdgeMask>,
}

/// The weights of an attention layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionWeights<'a> {
    /// dim × (heads · features); column `head * features + feature`.
    pub weight: &'a Tensor,
    /// heads × 2 · features, the destination's half first, or heads × features of a dynamic attention; only for forms that have it.
    pub attention: Option<&'a Tensor>,
    /// t of a dynamic attention: destinations × (heads · features).
    pub targets: Option<&'a Tensor>,
    /// One per output.
    pub bias: &'a Tensor,
}

impl AttentionLayer {
    /// The layer's output and, given pairs, its edge loss.
    pub fn forward(
        self,
        input: LayerInput,
        weights: AttentionWeights,
        block: &Arc<Block>,
        step: AttentionStep,
    ) -> Result<(Tensor, Option<Tensor>), TchError> {
        let is_training = step.draws.is_some();
        let mut state = self.state(&input, weights, block, step);
        let saved = forward(&state.attention());
        let output = self.output(&saved.outputs, weights, block.n_destinations());
        let n_pairs = state.pairs.as_ref().map(|(pairs, _)| pairs.n_pairs().max(1));
        let edge_loss = n_pairs.map(|n_pairs| filled(&[], |loss| loss[0] = (saved.loss / n_pairs as f64) as f32));
        state.saved = Some(saved);

        if is_training {
            let no_grad = tch::no_grad(|| Tensor::zeros([0], (tch::Kind::Float, tch::Device::Cpu)));
            let inputs = [
                input.hidden().unwrap_or(&no_grad),
                weights.weight,
                weights.attention.unwrap_or(&no_grad),
                weights.bias,
                weights.targets.unwrap_or(&no_grad),
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
        (block, left_out, is_last): (&Arc<Block>, Option<EdgeMask>, bool),
        open: &mut OpenList,
    ) -> Option<Tensor> {
        let state = self.state(&input, weights, block, AttentionStep { left_out, ..AttentionStep::default() });
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
        AttentionStep { draws, pairs, left_out }: AttentionStep,
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
            left_out,
            weights: layout.pack(numbers(&weights.weight.contiguous())),
            attention: packed_attention.unwrap_or_default(),
            targets: weights.targets.map_or(Vec::new(), |targets| layout.pack(numbers(&targets.contiguous()))),
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
        if self.form.has_halves() {
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

    /// a₁ and a₂ in the layout of a row, or a of a dynamic attention.
    fn pack_attention(self, layout: Layout, attention: &[f32]) -> [Vec<Lanes>; 2] {
        if self.form.is_dynamic() {
            return [layout.pack(attention), Vec::new()];
        }
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
    left_out: Option<EdgeMask>,
    weights: Vec<Lanes>,
    attention: [Vec<Lanes>; 2],
    targets: Vec<Lanes>,
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
            targets: &self.targets,
            left: self.left.numbers(),
            right: self.right.numbers(),
            mask: self.mask.as_ref(),
            left_out: self.left_out.as_ref(),
            pairs: self.pairs.as_ref().map(|(pairs, negatives)| GroupedPairs { pairs, negatives }),
        }
    }

    /// The gradients of input, weight, attention, bias and targets, given those of output and edge loss.
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
        let pulled = pull_to_destinations(&attention, &saved, &mut pushed, pair);
        drop(saved);
        let attention = self.attention_gradient(&pulled, &pushed.right);
        let targets = self.layer.form.is_dynamic().then(|| {
            let shape = [n_destinations as i64, (heads * features) as i64];
            Tensor::from_slice(&layout.unpack(&pulled.targets)).view(shape)
        });
        let product = self.product();
        let weight = layout.unpack(&product.weight_gradient(&self.kept, &pushed.rows));
        let dim = product.dim() as i64;
        let weight = Tensor::from_slice(&weight).view([dim, (heads * features) as i64]);
        let hidden = self.input.as_ref().and_then(KeptInput::tensor);
        let input = hidden.map(|hidden| filled(&hidden.size(), |out| product.input_gradient(&pushed.rows, out)));
        vec![input, Some(weight), attention, Some(Tensor::from_slice(&bias)), targets]
    }

    /// The gradient of the attention weights; `right` is that of a₂·h.
    fn attention_gradient(&self, pulled: &Pulled, right: &Buffer) -> Option<Tensor> {
        let AttentionLayer { form, heads, features, .. } = self.layer;
        let layout = self.layout;
        if form.is_dynamic() {
            let gradient = layout.unpack(&pulled.attention);
            return Some(Tensor::from_slice(&gradient).view([heads as i64, features as i64]));
        }
        let (n_destinations, n_sources) = (self.block.n_destinations(), self.block.n_sources());
        form.has_halves().then(|| {
            let rows = Nodes { layout, rows: &self.rows };
            let (of_left, of_right) = rayon::join(
                || weighted_row_sum(rows, pulled.left.numbers(), n_destinations),
                || weighted_row_sum(rows, right.numbers(), n_sources),
            );
            let halves = [layout.unpack(&of_left), layout.unpack(&of_right)];
            let mut both = Vec::with_capacity(2 * heads * features);
            for head in 0..heads {
                for half in &halves {
                    both.extend_from_slice(&half[head * features..(head + 1) * features]);
                }
            }
            Tensor::from_slice(&both).view([heads as i64, 2 * features as i64])
        })
    }
}
