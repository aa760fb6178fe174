//! A linear layer as one differentiable call: each node's features times the weights, and the bias.

use std::sync::Arc;

use kith_block::Block;
use kith_draw::Stream;
use tch::{Device, Kind, TchError, Tensor};

use crate::{
    bridge::{attach, filled, numbers},
    dropout::{Drop, Dropout},
    layer::{KeptInput, LayerDraws, LayerInput},
    layout::Layout,
    node_sums::{Nodes, column_sums, write_outputs},
    product::{KeptFactors, Product},
    simd::Lanes,
};

/// The first `n_rows` rows times the weights (dim × width), plus the bias. Without `draws` nothing is dropped and nothing can be
/// differentiated: that is evaluation. The rows are those of a block, which names them.
pub fn linear(
    input: LayerInput,
    n_rows: usize,
    (weight, bias): (&Tensor, Option<&Tensor>),
    draws: Option<(LayerDraws, &Arc<Block>)>,
) -> Result<Tensor, TchError> {
    let layout = Layout::new(1, weight.size()[1] as usize);
    let mut state = State {
        layout,
        n_rows,
        input: KeptInput::new(&input).expect("products are not multiplied again"),
        dropout: draws.and_then(|(draws, block)| Some((draws.input_dropout()?, Arc::clone(block)))),
        weights: layout.pack(numbers(&weight.contiguous())),
        kept: KeptFactors::Nothing,
    };
    let (products, kept) = state.product().forward();
    state.kept = kept;
    let zeros = vec![0.0; layout.features];
    let output = filled(&[n_rows as i64, layout.features as i64], |out| {
        write_outputs(Nodes { layout, rows: &products }, false, bias.map_or(&zeros, |bias| numbers(bias)), out);
    });
    if draws.is_some() {
        let nothing = tch::no_grad(|| Tensor::zeros([0], (Kind::Float, Device::Cpu)));
        let inputs = [input.hidden().unwrap_or(&nothing), weight, bias.unwrap_or(&nothing)];
        let has_bias = bias.is_some();
        attach(&inputs, &[&output], Box::new(move |gradients| Ok(state.backward(gradients, has_bias))))?;
    }
    Ok(output)
}

/// All that the layer holds between forward and backward.
struct State {
    layout: Layout,
    n_rows: usize,
    input: KeptInput,
    dropout: Option<((Dropout, Stream), Arc<Block>)>,
    weights: Vec<Lanes>,
    kept: KeptFactors,
}

impl State {
    fn product(&self) -> Product<'_> {
        Product {
            input: self.input.as_input(),
            n_rows: self.n_rows,
            dropout: self.dropout.as_ref().map(|((dropout, stream), block)| Drop {
                dropout: *dropout,
                stream: *stream,
                block,
            }),
            weights: &self.weights,
            width: self.layout.width(),
        }
    }

    /// The gradients of input, weight and bias, given that of the output.
    fn backward(&self, gradients: &[Option<Tensor>], has_bias: bool) -> Vec<Option<Tensor>> {
        let Some(Some(gradient)) = gradients.first() else { return vec![None, None, None] };
        let gradient = gradient.to_kind(Kind::Float).contiguous();
        let packed = self.layout.pack(numbers(&gradient));
        let product = self.product();
        let weight = self.layout.unpack(&product.weight_gradient(&self.kept, &packed));
        let weight = Tensor::from_slice(&weight).view([product.dim() as i64, self.layout.features as i64]);
        let input = self.input.tensor().map(|hidden| {
            let dim = product.dim();
            filled(&hidden.size(), |out| {
                let (own, others) = out.split_at_mut(self.n_rows * dim);
                product.input_gradient(&packed, own);
                others.fill(0.0); // Nodes without an output.
            })
        });
        let bias = has_bias.then(|| Tensor::from_slice(&column_sums(numbers(&gradient), self.layout.features)));
        vec![input, Some(weight), bias]
    }
}
