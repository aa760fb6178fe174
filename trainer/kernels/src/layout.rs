//! Memory layout of a row: heads innermost, so that one register holds all heads of a feature.

use rayon::prelude::*;

use crate::simd::{Lanes, N_LANES};

/// Rows that a thread takes at once.
const N_TOGETHER: usize = 256;

/// A row of `heads × features` numbers as lanes. Up to 16 heads form one group, padded to a power of two; number
/// (head, feature) of a group stands at `feature * lane_heads + head`, padded with zeros to whole lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) heads: usize,
    pub(crate) features: usize,
    /// Heads of a group, padding included; a power of two.
    pub(crate) lane_heads: usize,
    pub(crate) n_groups: usize,
    /// Lanes of one group.
    pub(crate) group_width: usize,
}

impl Layout {
    pub(crate) fn new(heads: usize, features: usize) -> Layout {
        assert!(heads > 0 && features > 0, "a layer has heads and features");
        let lane_heads = heads.next_power_of_two().min(N_LANES);
        let group_width = (features * lane_heads).div_ceil(N_LANES);
        Layout { heads, features, lane_heads, n_groups: heads.div_ceil(N_LANES), group_width }
    }

    /// Lanes of a row.
    pub(crate) fn width(&self) -> usize {
        self.n_groups * self.group_width
    }

    /// Numbers that hold one value per head, padding included.
    pub(crate) fn padded_heads(&self) -> usize {
        self.n_groups * self.lane_heads
    }

    /// Position of number (head, feature) within a row.
    pub(crate) fn place(&self, head: usize, feature: usize) -> usize {
        let (group, head) = (head / N_LANES, head % N_LANES);
        group * self.group_width * N_LANES + feature * self.lane_heads + head
    }

    /// Rows of a matrix with columns `head * features + feature`, as lanes.
    pub(crate) fn pack(&self, matrix: &[f32]) -> Vec<Lanes> {
        let n_columns = self.heads * self.features;
        let mut packed = vec![Lanes::ZERO; matrix.len() / n_columns * self.width()];
        packed.par_chunks_mut(N_TOGETHER * self.width()).zip(matrix.par_chunks(N_TOGETHER * n_columns)).for_each(
            |(packed, matrix)| {
                let packed: &mut [f32] = bytemuck::cast_slice_mut(packed);
                let rows = matrix.chunks_exact(n_columns).zip(packed.chunks_exact_mut(self.width() * N_LANES));
                for (row, packed) in rows {
                    for (head, row) in row.chunks_exact(self.features).enumerate() {
                        let places = packed[self.place(head, 0)..].iter_mut().step_by(self.lane_heads);
                        places.zip(row).for_each(|(place, value)| *place = *value);
                    }
                }
            },
        );
        packed
    }

    /// The inverse of [`Layout::pack`].
    pub(crate) fn unpack(&self, packed: &[Lanes]) -> Vec<f32> {
        let n_columns = self.heads * self.features;
        let mut matrix = vec![0.0; packed.len() / self.width() * n_columns];
        matrix.par_chunks_mut(N_TOGETHER * n_columns).zip(packed.par_chunks(N_TOGETHER * self.width())).for_each(
            |(matrix, packed)| {
                let packed: &[f32] = bytemuck::cast_slice(packed);
                let rows = matrix.chunks_exact_mut(n_columns).zip(packed.chunks_exact(self.width() * N_LANES));
                for (row, packed) in rows {
                    for (head, row) in row.chunks_exact_mut(self.features).enumerate() {
                        let places = packed[self.place(head, 0)..].iter().step_by(self.lane_heads);
                        row.iter_mut().zip(places).for_each(|(value, place)| *value = *place);
                    }
                }
            },
        );
        matrix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_is_undone_by_unpacking() {
        for heads in [1, 2, 3, 5, 8, 11, 16, 17, 40] {
            for features in [1, 2, 7, 8, 16, 40, 121, 256] {
                let layout = Layout::new(heads, features);
                let matrix: Vec<f32> = (0..3 * heads * features).map(|number| number as f32 + 1.0).collect();
                let packed = layout.pack(&matrix);
                assert_eq!(packed.len(), 3 * layout.width());
                assert_eq!(layout.unpack(&packed), matrix, "{heads} heads of {features}");
            }
        }
    }

    #[test]
    fn lanes_of_one_head_repeat() {
        let layout = Layout::new(3, 5);
        assert_eq!((layout.lane_heads, layout.group_width), (4, 2));
        for head in 0..3 {
            for feature in 0..5 {
                assert_eq!(layout.place(head, feature) % N_LANES % layout.lane_heads, head);
            }
        }
    }
}
