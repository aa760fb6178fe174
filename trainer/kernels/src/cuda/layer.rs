//! Shape of a layer, in the layout that kernels read.

use bytemuck::{Pod, Zeroable};
use kith_block::Form;

/// Computation of a layer between the product with its weights and its bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Attention: GO, DP, SD or MX.
    Attention(Form),
    /// Sum of neighbors, each divided by the root of both degrees.
    Convolution,
    /// Mean of neighbors.
    Mean,
    /// The node itself.
    Own,
}

impl LayerKind {
    /// Its number in layer.cuh.
    fn code(self) -> u32 {
        match self {
            LayerKind::Attention(form) => form as u32,
            LayerKind::Convolution => 4,
            LayerKind::Mean => 5,
            LayerKind::Own => 6,
        }
    }

    /// The attention, if it has one.
    pub(super) fn attention(self) -> Option<Form> {
        match self {
            LayerKind::Attention(form) => Some(form),
            LayerKind::Convolution | LayerKind::Mean | LayerKind::Own => None,
        }
    }
}

/// A layer, and where its weights stand among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerPlan {
    /// Width of what it reads.
    pub dim: usize,
    /// Heads, at most 32.
    pub heads: usize,
    /// Features per head.
    pub features: usize,
    /// Its kind.
    pub kind: LayerKind,
    /// True to average heads, false to concatenate them.
    pub is_mean: bool,
    /// Start of the weights: dim × (heads · features).
    pub weight: usize,
    /// Start of the attention weights, if the attention has some: heads × 2 · features.
    pub attention: usize,
    /// Start of the bias, if there is one.
    pub bias: Option<usize>,
}

/// As `struct Layer` in layer.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Layer {
    pub(super) index: u32,
    pub(super) dim: u32,
    pub(super) heads: u32,
    pub(super) features: u32,
    pub(super) padded: u32,
    pub(super) stride: u32,
    pub(super) lanes: u32,
    pub(super) vec: u32,
    pub(super) form: u32,
    pub(super) is_mean: u32,
    pub(super) weight: u32,
    pub(super) attention: u32,
    pub(super) bias: u32,
    pub(super) n_weights: u32,
}

impl Layer {
    /// True if outputs have no padding within a row, and no mean is taken of heads.
    pub(super) fn is_plain(&self) -> bool {
        self.is_mean == 0 && (self.heads == 1 || self.features == self.padded)
    }
}

/// No place among the weights; as in layer.cuh.
pub(super) const NO_WEIGHT: u32 = u32::MAX;

/// Threads of a warp.
const WARP: usize = 32;

/// Threads of a block of most kernels.
pub(super) const N_THREADS: u32 = 128;
pub(super) const WARPS: u32 = N_THREADS / 32;

/// Quads of numbers that a thread keeps of a row at most, unless the row is too long for a warp.
const MAX_VEC: usize = 2;

impl LayerPlan {
    /// Heads that one warp can look at.
    pub const MAX_HEADS: usize = WARP;

    /// A linear layer.
    pub(super) fn linear(dim: usize, width: usize, weight: usize, bias: Option<usize>) -> LayerPlan {
        let kind = LayerKind::Own;
        LayerPlan { dim, heads: 1, features: width, kind, is_mean: true, weight, attention: 0, bias }
    }

    pub(super) fn layer(&self, index: usize, n_weights: usize) -> Layer {
        assert!((1..=WARP).contains(&self.heads), "a warp looks at up to {WARP} heads");
        let padded = self.features.next_multiple_of(4);
        let (lanes, vec) = spread(self.heads, padded / 4);
        Layer {
            index: index as u32,
            dim: self.dim as u32,
            heads: self.heads as u32,
            features: self.features as u32,
            padded: padded as u32,
            stride: (self.heads * padded) as u32,
            lanes: lanes as u32,
            vec: vec as u32,
            form: self.kind.code(),
            is_mean: u32::from(self.is_mean),
            weight: self.weight as u32,
            attention: self.attention as u32,
            bias: self.bias.map_or(NO_WEIGHT, |place| place as u32),
            n_weights: n_weights as u32,
        }
    }

    pub(super) fn n_outputs(&self) -> usize {
        if self.is_mean { self.features } else { self.heads * self.features }
    }
}

/// Threads that share the quads of a head, and quads for each: as few threads as can be, since all of them work out the same
/// score, but no more than the heads leave of a warp.
fn spread(heads: usize, quads: usize) -> (usize, usize) {
    let most = WARP / heads.next_power_of_two();
    let powers = std::iter::successors(Some(1), |power| Some(2 * power)).take_while(|power| *power <= most);
    let lanes = powers.into_iter().find(|lanes| quads.div_ceil(*lanes) <= MAX_VEC).unwrap_or(most);
    (lanes, quads.div_ceil(lanes))
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn threads_share_the_numbers_of_a_head() {
        assert_eq!(spread(8, 4), (2, 2), "8 heads of 16");
        assert_eq!(spread(8, 2), (1, 2));
        assert_eq!(spread(1, 10), (8, 2), "one head of 40: not all have as much");
        assert_eq!(spread(6, 31), (4, 8), "121 classes: no thread is left");
        assert_eq!(spread(1, 64), (32, 2));
        assert_eq!(spread(16, 64), (2, 32), "too long for a warp");
        for heads in 1..=32 {
            for quads in 1..=64 {
                let (lanes, vec) = spread(heads, quads);
                assert!(lanes * heads.next_power_of_two() <= 32 && lanes * vec >= quads);
            }
        }
    }
}
