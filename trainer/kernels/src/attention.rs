//! One attention layer over the edges of a block, forward and backward.
//!
//! With h_i the transformed features x_i·W, in each head (see [`Form`] for e and s):
//!
//! ```text
//! z_ij = leaky_relu(e_ij) (V2: e_ij)      α_ij = exp(z_ij − max_i) / (Σ_j exp(z_ij − max_i) + 1e-16)
//! o_i  = Σ_j α_ij d_ij h_j                d_ij: attention dropout, 0 or 1 / (1 − p)
//! loss = mean over pairs of bce(t_ij, is edge)          t_ij = mean over heads of s_ij
//! ```
//!
//! Forward is one pass by destination. Backward is one pass by source, for the gradients of every score and of the
//! source features, and one by destination, for the destination features. With g the gradient of o:
//!
//! ```text
//! ∂z_ij = α_ij (d_ij g_i·h_j − g_i·o_i)
//! ```
//!
//! Nothing of size edges × heads × features is stored. Sums over the edges of a node are split into chunks of 64, the
//! edges of a window (see `window.rs`).

mod by_destination;
mod by_source;
mod dynamic;
mod forward;
mod grouped;
mod mask;
mod negatives;
mod piece;
mod score;
mod terms;
mod window;

use kith_block::{Block, Form, Pairs};

pub(crate) use self::{
    by_destination::{Pulled, pull_to_destinations},
    by_source::push_to_sources,
    forward::{forward, forward_piece},
    grouped::Grouped,
    mask::Mask,
    piece::{Carried, Piece},
};
use crate::{buffer::Buffer, edge_mask::EdgeMask, layout::Layout, simd::Lanes, weighted_rows::GroupRows};

/// Slope of the leaky ReLU below zero.
const SLOPE: f32 = 0.2;
/// Score of an edge that is left out: below every other, and yet finite.
const LOWEST: f32 = -1e30;
/// Keeps a softmax over nothing from dividing by zero.
const EPSILON: f32 = 1e-16;

/// Inputs shared by all passes of one layer.
#[derive(Clone, Copy)]
pub(crate) struct Attention<'a> {
    pub(crate) block: &'a Block,
    pub(crate) layout: Layout,
    pub(crate) form: Form,
    /// Rows after the product, by source.
    pub(crate) rows: &'a [Lanes],
    /// a₁ and a₂ in the layout of a row, or a alone in the place of a₁; empty unless the form has them.
    pub(crate) weights: [&'a [Lanes]; 2],
    /// t by destination; empty unless the form is dynamic.
    pub(crate) targets: &'a [Lanes],
    /// a₁·h by destination and a₂·h by source, one number per padded head; empty unless the form has them.
    pub(crate) left: &'a [f32],
    pub(crate) right: &'a [f32],
    pub(crate) mask: Option<&'a Mask>,
    pub(crate) left_out: Option<&'a EdgeMask>,
    pub(crate) pairs: Option<GroupedPairs<'a>>,
}

/// The pairs of the edge loss; negatives by destination and by source.
#[derive(Clone, Copy)]
pub(crate) struct GroupedPairs<'a> {
    pub(crate) pairs: &'a Pairs,
    pub(crate) negatives: &'a Grouped,
}

/// Results of forward, saved for backward.
pub(crate) struct Saved {
    /// Σ α d h by destination, before bias.
    pub(crate) outputs: Buffer,
    /// By destination: left, max, 1 / denominator, and room for g·o; each one number per padded head.
    pub(crate) records: Buffer,
    /// Slope of the loss at each edge's logit; zero where not kept.
    pub(crate) edge_slopes: Buffer,
    /// By destination, the sum over its negatives of slope × gradient of the logit by the destination's row (forms with products).
    pub(crate) pulls: Buffer,
    /// By unit of destinations, the sum over their negatives of slope × gradient of the logit by a (dynamic forms).
    pub(crate) attention_pulls: Buffer,
    /// By destination, the sum of its negatives' slopes (forms without products).
    pub(crate) slope_sums: Vec<f32>,
    /// The sum of the losses of all pairs.
    pub(crate) loss: f64,
}

/// Numbers per padded head in a record.
pub(crate) const N_RECORD: usize = 4;

impl<'a> Attention<'a> {
    /// Rows as the heads of one group see them.
    #[inline(always)]
    fn group(&self, rows: &'a [Lanes], group: usize) -> GroupRows<'a> {
        let Layout { group_width, .. } = self.layout;
        GroupRows { rows, width: self.layout.width(), offset: group * group_width, group_width }
    }

    /// Rows of destinations in scores, as the heads of one group see them.
    #[inline(always)]
    fn targets(&self, group: usize) -> GroupRows<'a> {
        self.group(if self.form.is_dynamic() { self.targets } else { self.rows }, group)
    }

    /// a of the heads of one group.
    #[inline(always)]
    fn dynamic_weights(&self, group: usize) -> &'a [Lanes] {
        let Layout { group_width, .. } = self.layout;
        &self.weights[0][group * group_width..][..group_width]
    }

    /// Rows with all heads, for sums that do not tell them apart.
    #[inline(always)]
    fn all_groups(&self, rows: &'a [Lanes]) -> GroupRows<'a> {
        GroupRows::whole(rows, self.layout.width())
    }

    /// Factor applied to dot products: 1/√features for SD, 1 otherwise.
    fn product_scale(&self) -> f32 {
        match self.form {
            Form::Sd => (1.0 / (self.layout.features as f64).sqrt()) as f32,
            _ => 1.0,
        }
    }

    /// Numbers per padded head that backward keeps of an edge.
    fn n_edge_gradients(&self) -> usize {
        if self.form == Form::Mx { 2 } else { 1 }
    }
}

/// Runs a loop that knows the padded heads of a layout as a constant.
macro_rules! vectorized_by_heads {
    ($layout:expr, $work:ident($($part:expr),* $(,)?)) => {
        match $layout.lane_heads {
            1 => ::kith_draw::vectorized($work::<1>($($part),*)),
            2 => ::kith_draw::vectorized($work::<2>($($part),*)),
            4 => ::kith_draw::vectorized($work::<4>($($part),*)),
            8 => ::kith_draw::vectorized($work::<8>($($part),*)),
            _ => ::kith_draw::vectorized($work::<16>($($part),*)),
        }
    };
}
pub(crate) use vectorized_by_heads;

/// Runs a loop that knows, as constants, the padded heads of a layout and the terms of scores.
macro_rules! vectorized_by_form {
    ($attention:expr, $work:ident($part:expr)) => {
        match $attention.form {
            ::kith_block::Form::Go => vectorized_by_form!($attention, $work($part), Halves),
            ::kith_block::Form::Dp | ::kith_block::Form::Sd => vectorized_by_form!($attention, $work($part), Dots),
            ::kith_block::Form::Mx => vectorized_by_form!($attention, $work($part), GatedHalves),
            ::kith_block::Form::V2 => vectorized_by_form!($attention, $work($part), Dynamic),
        }
    };
    ($attention:expr, $work:ident($part:expr), $terms:ident) => {
        match $attention.layout.lane_heads {
            1 => ::kith_draw::vectorized($work::<1, super::terms::$terms>($part, ::std::marker::PhantomData)),
            2 => ::kith_draw::vectorized($work::<2, super::terms::$terms>($part, ::std::marker::PhantomData)),
            4 => ::kith_draw::vectorized($work::<4, super::terms::$terms>($part, ::std::marker::PhantomData)),
            8 => ::kith_draw::vectorized($work::<8, super::terms::$terms>($part, ::std::marker::PhantomData)),
            _ => ::kith_draw::vectorized($work::<16, super::terms::$terms>($part, ::std::marker::PhantomData)),
        }
    };
}
use vectorized_by_form;
