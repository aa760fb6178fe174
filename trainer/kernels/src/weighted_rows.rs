//! Weighted sums of rows, the main work of every layer.

use crate::simd::{Lanes, prefetch};

/// Rows of nodes, of which the heads of one group are read.
#[derive(Clone, Copy)]
pub(crate) struct GroupRows<'a> {
    pub(crate) rows: &'a [Lanes],
    /// Lanes of a row.
    pub(crate) width: usize,
    /// First lane of the group in a row; `group_width` is the number of its lanes.
    pub(crate) offset: usize,
    pub(crate) group_width: usize,
}

impl<'a> GroupRows<'a> {
    /// Rows that are read whole.
    #[inline(always)]
    pub(crate) fn whole(rows: &'a [Lanes], width: usize) -> GroupRows<'a> {
        GroupRows { rows, width, offset: 0, group_width: width }
    }

    #[inline(always)]
    pub(crate) fn of(self, node: usize) -> &'a [Lanes] {
        &self.rows[node * self.width + self.offset..][..self.group_width]
    }

    /// Asks for all groups of a row.
    #[inline(always)]
    pub(crate) fn prefetch(self, node: u32) {
        prefetch(&self.rows[node as usize * self.width..][..self.width]);
    }
}

/// `sums += Σ weights[k] * row of nodes[k]`: the products are added up in the order of k, and then to the sums.
#[inline(always)]
pub(crate) fn add_weighted<const HEADS: usize>(
    sums: &mut [Lanes],
    weights: &[[f32; HEADS]],
    rows: GroupRows,
    nodes: &[u32],
) {
    let n_fours = sums.len() / 4;
    let (fours, rest) = sums.as_chunks_mut::<4>();
    for (four, sums) in fours.iter_mut().enumerate() {
        let mut own = [Lanes::ZERO; 4];
        for (weight, node) in weights.iter().zip(nodes) {
            let start = *node as usize * rows.width + rows.offset + 4 * four;
            let row: &[Lanes; 4] = rows.rows[start..].first_chunk().expect("rows have one width");
            let weight = Lanes::repeat(weight);
            own[0] = own[0].plus_product(weight, row[0]);
            own[1] = own[1].plus_product(weight, row[1]);
            own[2] = own[2].plus_product(weight, row[2]);
            own[3] = own[3].plus_product(weight, row[3]);
        }
        for (sum, own) in sums.iter_mut().zip(own) {
            *sum = sum.plus(own);
        }
    }
    for (place, sum) in rest.iter_mut().enumerate() {
        let mut own = Lanes::ZERO;
        for (weight, node) in weights.iter().zip(nodes) {
            let lanes = rows.rows[*node as usize * rows.width + rows.offset + 4 * n_fours + place];
            own = own.plus_product(Lanes::repeat(weight), lanes);
        }
        *sum = sum.plus(own);
    }
}
