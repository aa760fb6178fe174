//! Edge loss of negative pairs (pairs without an edge). Forward and the backward pass by source both compute it: that
//! is cheaper than storing the results and looking them up.

use super::{
    Attention,
    dynamic::{Ends, dynamic_product},
    score::{N_AHEAD, Products, product},
    terms::Terms,
    window::{PerEdge, Window, Windows},
};
use crate::{
    simd::{Lanes, N_LANES, softplus},
    weighted_rows::{GroupRows, add_weighted},
};

/// The negatives of some nodes, as their destinations or as their sources.
#[derive(Clone, Copy)]
pub(super) struct Negatives<'a> {
    pub(super) attention: &'a Attention<'a>,
    /// Start of each node's pairs; `others` holds the nodes at their other ends.
    pub(super) indptr: &'a [usize],
    pub(super) others: &'a [u32],
    /// Rows of the node itself, and of the others.
    pub(super) rows: [GroupRows<'a>; 2],
    /// a₁·h and a₂·h, first that of the node itself, then that of the other; empty unless the form has halves.
    pub(super) terms: [&'a [f32]; 2],
}

/// Slopes of the loss at a window's pairs, and the loss so far.
pub(super) struct NegativeLoss {
    products: Products,
    logits: PerEdge<1>,
    pub(super) slopes: PerEdge<1>,
    pub(super) values: [f64; N_LANES],
}

impl NegativeLoss {
    pub(super) const ZERO: NegativeLoss =
        NegativeLoss { products: Products::ZERO, logits: PerEdge::ZERO, slopes: PerEdge::ZERO, values: [0.0; N_LANES] };
}

impl<'a> Negatives<'a> {
    pub(super) fn windows(self, nodes: std::ops::Range<usize>) -> Windows<'a> {
        Windows::new(self.indptr, nodes)
    }

    /// The loss of a window's pairs, and its slopes.
    #[inline(always)]
    pub(super) fn look_at<T: Terms>(self, window: &Window, loss: &mut NegativeLoss) {
        let [own_rows, rows] = self.rows;
        let padded_heads = self.attention.layout.padded_heads();
        let scale = self.attention.product_scale();
        for node in window.rows.clone() {
            let own = own_rows.of(node);
            for place in window.part(self.indptr, node).places {
                let pair = window.edges.start + place;
                let other = self.others[pair] as usize;
                if T::PRODUCTS {
                    if let Some(ahead) = self.others.get(pair + N_AHEAD) {
                        rows.prefetch(*ahead);
                    }
                    loss.products.0[place] = match T::DYNAMIC {
                        true => dynamic_product(self.attention.weights[0], own, rows.of(other)),
                        false => product(own, rows.of(other)),
                    };
                } else {
                    let mut sum = 0.0;
                    for head in 0..padded_heads {
                        sum += self.terms[0][node * padded_heads + head] + self.terms[1][other * padded_heads + head];
                    }
                    loss.logits.0[place][0] = sum;
                }
            }
        }
        let n = window.len();
        if T::PRODUCTS {
            loss.products.over_heads(n, scale, &mut loss.logits);
        }
        for place in 0..n.div_ceil(N_LANES) {
            let (values, slopes) = bce::<false>(loss.logits.lanes(place), 1.0 / self.attention.layout.heads as f32);
            loss.slopes.set_lanes(place, slopes);
            for lane in 0..N_LANES {
                let is_pair = N_LANES * place + lane < n;
                loss.values[lane] += f64::from(if is_pair { values.0[lane] } else { 0.0 });
            }
        }
    }

    /// Adds slope × gradient of the logit by the node's row, for each of a node's pairs in a window.
    #[inline(always)]
    pub(super) fn add_rows<T: Terms>(self, window: &Window, node: usize, loss: &NegativeLoss, sums: &mut [Lanes]) {
        let ([own, rows], nodes) = (self.rows, self.others_of(window, node));
        let slopes = self.slopes(window, node, loss);
        if T::DYNAMIC {
            Ends { own: own.of(node), rows, nodes }.add_slopes(self.attention.weights[0], slopes, sums);
        } else if !nodes.is_empty() {
            add_weighted(sums, slopes, rows, nodes);
        }
    }

    /// The other nodes of a node's pairs in a window.
    #[inline(always)]
    pub(super) fn others_of(self, window: &Window, node: usize) -> &'a [u32] {
        let places = window.part(self.indptr, node).places;
        &self.others[window.edges.start + places.start..window.edges.start + places.end]
    }

    /// Slopes of a node's pairs in a window.
    #[inline(always)]
    pub(super) fn slopes<'l>(self, window: &Window, node: usize, loss: &'l NegativeLoss) -> &'l [[f32; 1]] {
        &loss.slopes.0[window.part(self.indptr, node).places]
    }

    /// The sum of the slopes of a node's pairs in a window.
    #[inline(always)]
    pub(super) fn slope_sum(self, window: &Window, node: usize, loss: &NegativeLoss) -> f32 {
        let mut sum = 0.0;
        for slope in self.slopes(window, node, loss) {
            sum += slope[0];
        }
        sum
    }
}

/// Binary cross-entropy of logits times `scale` and its slope, for pairs with or without an edge.
#[inline(always)]
pub(super) fn bce<const IS_EDGE: bool>(logits: Lanes, scale: f32) -> (Lanes, Lanes) {
    let (mut values, mut slopes) = (Lanes::ZERO, Lanes::ZERO);
    for pair in 0..N_LANES {
        let logit = logits.0[pair] * scale;
        let (value, slope) = softplus(if IS_EDGE { -logit } else { logit });
        values.0[pair] = value;
        slopes.0[pair] = if IS_EDGE { -slope } else { slope };
    }
    (values, slopes)
}
