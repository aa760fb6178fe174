//! GATv2's scores, a·leaky_relu(t + h), and their gradients.

use super::SLOPE;
use crate::{simd::Lanes, weighted_rows::GroupRows};

/// The lane-wise sum of a·leaky_relu(t + h); adding up the lanes of a head gives the head's score.
#[inline(always)]
pub(super) fn dynamic_product(weights: &[Lanes], target: &[Lanes], row: &[Lanes]) -> Lanes {
    let mut sums = [Lanes::ZERO; 2];
    for (place, (weight, (target, row))) in weights.iter().zip(target.iter().zip(row)).enumerate() {
        let sum = &mut sums[place % 2];
        *sum = sum.plus_product(*weight, target.plus(*row).leaky_relu(SLOPE));
    }
    sums[0].plus(sums[1])
}

/// One end of several edges: its row, and the rows of the nodes at the other ends.
#[derive(Clone, Copy)]
pub(super) struct Ends<'a> {
    pub(super) own: &'a [Lanes],
    pub(super) rows: GroupRows<'a>,
    pub(super) nodes: &'a [u32],
}

impl Ends<'_> {
    /// t + h of the edge to one of the nodes.
    #[inline(always)]
    fn sum(self, node: u32, place: usize) -> Lanes {
        self.own[place].plus(self.rows.rows[node as usize * self.rows.width + self.rows.offset + place])
    }

    /// `sums += a · Σ gradients[k] · slope of leaky_relu at t + h`: the gradient of the row.
    #[inline(always)]
    pub(super) fn add_slopes<const HEADS: usize>(
        self,
        weights: &[Lanes],
        gradients: &[[f32; HEADS]],
        sums: &mut [Lanes],
    ) {
        for (place, (sum, weight)) in sums.iter_mut().zip(weights).enumerate() {
            let mut own = Lanes::ZERO;
            for (gradient, node) in gradients.iter().zip(self.nodes) {
                own = own.plus(Lanes::repeat(gradient).through_leaky_relu(self.sum(*node, place), SLOPE));
            }
            *sum = sum.plus_product(own, *weight);
        }
    }

    /// `sums += Σ gradients[k] · leaky_relu(t + h)`: the gradient of a.
    #[inline(always)]
    pub(super) fn add_values<const HEADS: usize>(self, gradients: &[[f32; HEADS]], sums: &mut [Lanes]) {
        for (place, sum) in sums.iter_mut().enumerate() {
            let mut own = Lanes::ZERO;
            for (gradient, node) in gradients.iter().zip(self.nodes) {
                own = own.plus_product(Lanes::repeat(gradient), self.sum(*node, place).leaky_relu(SLOPE));
            }
            *sum = sum.plus(own);
        }
    }
}
