//! Statistics over nodes, feature by feature: in groups of 64 rows with floats, the groups with doubles, in pieces of 4,096 rows.

use kith_draw::{Vectorized, vectorized};
use rayon::prelude::*;

use crate::cut::PIECE_ROWS;

/// Rows that are added with floats.
const N_FLOAT_ROWS: usize = 64;

/// Statistics of rows, feature by feature.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnStatistics {
    /// Number of rows.
    pub n_rows: usize,
    /// Mean.
    pub mean: Vec<f32>,
    /// Mean square of the distance to the mean, or to a multiple of it.
    pub variance: Vec<f32>,
}

/// Statistics of the rows of a matrix. `mean_scale` has the factors of the means that variances are measured from; 1 without.
pub fn column_statistics(matrix: &[f32], width: usize, mean_scale: Option<&[f32]>) -> ColumnStatistics {
    let n_rows = matrix.len() / width.max(1);
    let divided = |sums: Vec<f64>| sums.into_iter().map(|sum| (sum / n_rows.max(1) as f64) as f32).collect::<Vec<_>>();
    let mean = divided(sums::<false>(matrix, &vec![0.0; width]));
    let center = match mean_scale {
        Some(scales) => mean.iter().zip(scales).map(|(mean, scale)| mean * scale).collect(),
        None => mean.clone(),
    };
    let variance = divided(sums::<true>(matrix, &center));
    ColumnStatistics { n_rows, mean, variance }
}

/// Sum of each column, or of squared distances to a center.
fn sums<const IS_SQUARED: bool>(matrix: &[f32], center: &[f32]) -> Vec<f64> {
    let width = center.len();
    let parts: Vec<Vec<f64>> = matrix
        .par_chunks(PIECE_ROWS * width.max(1))
        .map(|rows| {
            let mut sums = vec![0.0; width];
            vectorized(Sums::<IS_SQUARED> { rows, center, sums: &mut sums });
            sums
        })
        .collect();
    let mut sums = vec![0.0; width];
    for part in parts {
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    sums
}

struct Sums<'a, const IS_SQUARED: bool> {
    rows: &'a [f32],
    center: &'a [f32],
    sums: &'a mut [f64],
}

impl<const IS_SQUARED: bool> Vectorized for Sums<'_, IS_SQUARED> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let width = self.center.len();
        let mut floats = vec![0.0f32; width];
        for rows in self.rows.chunks(N_FLOAT_ROWS * width) {
            floats.fill(0.0);
            for row in rows.chunks_exact(width) {
                for ((sum, value), center) in floats.iter_mut().zip(row).zip(self.center) {
                    if IS_SQUARED {
                        let distance = value - center;
                        *sum = distance.mul_add(distance, *sum);
                    } else {
                        *sum += value;
                    }
                }
            }
            for (sum, part) in self.sums.iter_mut().zip(&floats) {
                *sum += f64::from(*part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_right_far_from_zero_and_on_any_threads() {
        let (n, width) = (9000, 3);
        let value = |row: usize, column: usize| 1000.0 + column as f32 + ((row * 7919) % 1009) as f32 / 1009.0;
        let matrix: Vec<f32> = (0..n * width).map(|place| value(place / width, place % width)).collect();
        let found = column_statistics(&matrix, width, None);
        for column in 0..width {
            let numbers: Vec<f64> = (0..n).map(|row| f64::from(value(row, column))).collect();
            let mean = numbers.iter().sum::<f64>() / n as f64;
            let variance = numbers.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64;
            assert!((f64::from(found.mean[column]) - mean).abs() < 1e-4, "{found:?}");
            assert!((f64::from(found.variance[column]) - variance).abs() < 1e-5, "{variance} {found:?}");
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        assert_eq!(pool.install(|| column_statistics(&matrix, width, None)), found);
    }
}
