//! Products of features and weights outside a layer: evaluation of a large graph multiplies the features of every node
//! once, and layers then pick products by id.

use kith_block::Block;
use rayon::prelude::*;
use tch::Tensor;

use crate::{
    bridge::numbers,
    buffer::Buffer,
    layer::{KeptInput, LayerInput},
    layout::Layout,
    product::Product,
    simd::N_LANES,
};

/// Rows that a thread takes at once.
const N_TOGETHER: usize = 256;

/// Numbers of one product, as layers keep it: heads side by side, and padding.
pub fn product_len(heads: usize, features: usize) -> usize {
    Layout::new(heads, features).width() * N_LANES
}

/// Rows times the weights of a layer (dim × (heads · features)), [`product_len`] numbers for each. Nothing is dropped, and
/// the bits of a row do not depend on the others.
pub fn multiply(input: LayerInput, weight: &Tensor, (heads, features): (usize, usize)) -> Vec<f32> {
    let layout = Layout::new(heads, features);
    let input = KeptInput::new(&input).expect("products are not multiplied again");
    let weights = layout.pack(numbers(&weight.contiguous()));
    let (n_rows, width) = (input.n_rows(), layout.width());
    let product = Product { input: input.as_input(), n_rows, dropout: None, weights: &weights, width };
    product.forward().0.numbers().to_vec()
}

/// Products as a plain matrix with columns `head * features + feature`.
pub fn plain_products(products: &[f32], (heads, features): (usize, usize)) -> Vec<f32> {
    let layout = Layout::new(heads, features);
    let mut lanes = Buffer::dirty_numbers(products.len());
    lanes.numbers_mut().copy_from_slice(products);
    layout.unpack(&lanes)
}

/// The products of a block's sources, the first of each node's `stride` numbers.
pub(crate) fn pick(products: &[f32], stride: usize, block: &Block, layout: Layout) -> Buffer {
    let len = layout.width() * N_LANES;
    let mut picked = Buffer::dirty(block.n_sources() * layout.width());
    picked.numbers_mut().par_chunks_mut(N_TOGETHER * len).enumerate().for_each(|(part, picked)| {
        for (row, picked) in picked.chunks_exact_mut(len).enumerate() {
            let id = block.id(part * N_TOGETHER + row) as usize;
            picked.copy_from_slice(&products[id * stride..][..len]);
        }
    });
    picked
}
