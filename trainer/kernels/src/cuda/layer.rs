//! Shape of a layer, in the layout that kernels read.

use bytemuck::{Pod, Zeroable};
use kith_block::Form;

/// Computation of a layer between the product with its weights and its bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Attention.
    Attention(Form),
    /// Sum of neighbors, each divided by the root of both degrees.
    Convolution,
    /// Mean of neighbors.
    Mean,
    /// Sum of neighbors.
    Sum,
    /// The node itself.
    Own,
}

/// FORM_V2 in layer.cuh.
const V2: u32 = 7;

impl LayerKind {
    /// Its number in layer.cuh.
    fn code(self) -> u32 {
        match self {
            LayerKind::Attention(Form::Go) => 0,
            LayerKind::Attention(Form::Dp) => 1,
            LayerKind::Attention(Form::Sd) => 2,
            LayerKind::Attention(Form::Mx) => 3,
            LayerKind::Attention(Form::V2) => V2,
            LayerKind::Sum => 8,
            LayerKind::Convolution => 4,
            LayerKind::Mean => 5,
            LayerKind::Own => 6,
        }
    }

    /// True if the number is that of attention.
    pub(super) fn is_attention(code: u32) -> bool {
        code <= 3 || code == V2
    }

    /// The attention, if it has one.
    pub(super) fn attention(self) -> Option<Form> {
        match self {
            LayerKind::Attention(form) => Some(form),
            LayerKind::Convolution | LayerKind::Mean | LayerKind::Sum | LayerKind::Own => None,
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
    /// Start of the attention weights, if the attention has some: heads × 2 · features, or heads × features of a dynamic one.
    pub attention: usize,
    /// Start of the bias, if there is one.
    pub bias: Option<usize>,
    /// Weights of destinations of their own, for a dynamic attention.
    pub targets: Option<TargetPlan>,
    /// Edges that it leaves out.
    pub left_out: LeftOut,
}

/// Edges that a layer leaves out of its sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Self-loops.
    pub loops: bool,
    /// Some others, drawn in each step.
    pub dropped: bool,
}

/// Weights of destinations of their own, and where they stand among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetPlan {
    /// Start of the weights: dim × (heads · features).
    pub weight: usize,
    /// Start of the bias, if there is one: heads · features.
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
    pub(super) leaves_out: u32,
    pub(super) has_loops: u32,
}

impl Layer {
    /// True if outputs have no padding within a row, and no mean is taken of heads.
    pub(super) fn is_plain(&self) -> bool {
        self.is_mean == 0 && (self.heads == 1 || self.features == self.padded)
    }

    /// Blocks of a kernel with a thread for each number of `n_rows` products.
    pub(super) fn blocks_of_products(&self, n_rows: u32) -> u32 {
        let n = u64::from(n_rows) * u64::from(self.heads * self.features);
        n.div_ceil(N_THREADS.into()) as u32
    }

    /// The layer of the product of its destinations with weights of their own.
    pub(super) fn of_targets(&self, plan: TargetPlan) -> Layer {
        Layer { weight: plan.weight as u32, bias: place_of(plan.bias), is_mean: 0, ..*self }
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
        LayerPlan {
            dim,
            heads: 1,
            features: width,
            kind,
            is_mean: true,
            weight,
            attention: 0,
            bias,
            targets: None,
            left_out: LeftOut::default(),
        }
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
            bias: place_of(self.bias),
            n_weights: n_weights as u32,
            leaves_out: u32::from(self.left_out != LeftOut::default()),
            has_loops: u32::from(!self.left_out.loops),
        }
    }

    pub(super) fn n_outputs(&self) -> usize {
        if self.is_mean { self.features } else { self.heads * self.features }
    }
}

fn place_of(weight: Option<usize>) -> u32 {
    weight.map_or(NO_WEIGHT, |place| place as u32)
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
    use super::*;

    #[test]
    fn numbers_tell_attention_from_sums() {
        let sums = [LayerKind::Convolution, LayerKind::Mean, LayerKind::Sum, LayerKind::Own];
        assert!(sums.iter().all(|kind| !LayerKind::is_attention(kind.code())));
        let mut codes: Vec<u32> = sums.iter().map(|kind| kind.code()).collect();
        for form in Form::ALL {
            let code = LayerKind::Attention(form).code();
            assert!(LayerKind::is_attention(code), "{form:?}");
            codes.push(code);
        }
        codes.sort_unstable();
        assert_eq!(codes, (0..9).collect::<Vec<u32>>(), "each its own");
    }

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
