//! Statistics over nodes, feature by feature: in groups of 64 rows with floats, the groups with doubles, in pieces of 4,096 rows.

use std::{borrow::Cow, convert::Infallible, ops::Range};

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
    let all = |_: Range<usize>| Ok::<_, Infallible>(Cow::Borrowed(matrix));
    let Ok(statistics) = column_statistics_of((n_rows, n_rows), width, mean_scale, all);
    statistics
}

/// Statistics of `n_rows` rows, of which `rows` gives about `n_together` at a time, in order, and all twice. The number changes no bit.
pub fn column_statistics_of<'a, E>(
    (n_rows, n_together): (usize, usize),
    width: usize,
    mean_scale: Option<&[f32]>,
    mut rows: impl FnMut(Range<usize>) -> Result<Cow<'a, [f32]>, E>,
) -> Result<ColumnStatistics, E> {
    let n_together = n_together.next_multiple_of(PIECE_ROWS).max(PIECE_ROWS);
    let mut average = |is_squared: bool, center: &[f32]| -> Result<Vec<f32>, E> {
        let mut sums = vec![0.0; width];
        for first in (0..n_rows).step_by(n_together) {
            let rows = rows(first..n_rows.min(first + n_together))?;
            if is_squared { add::<true>(&rows, center, &mut sums) } else { add::<false>(&rows, center, &mut sums) }
        }
        Ok(sums.into_iter().map(|sum| (sum / n_rows.max(1) as f64) as f32).collect())
    };
    let mean = average(false, &vec![0.0; width])?;
    let center = match mean_scale {
        Some(scales) => mean.iter().zip(scales).map(|(mean, scale)| mean * scale).collect(),
        None => mean.clone(),
    };
    let variance = average(true, &center)?;
    Ok(ColumnStatistics { n_rows, mean, variance })
}

/// Adds each column, or its squared distances to a center, to `sums`.
fn add<const IS_SQUARED: bool>(matrix: &[f32], center: &[f32], sums: &mut [f64]) {
    let width = center.len();
    let parts: Vec<Vec<f64>> = matrix
        .par_chunks(PIECE_ROWS * width.max(1))
        .map(|rows| {
            let mut sums = vec![0.0; width];
            vectorized(Sums::<IS_SQUARED> { rows, center, sums: &mut sums });
            sums
        })
        .collect();
    for part in parts {
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
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
        for n_together in [0_usize, 1, 4096, 5000, 100_000] {
            let rows = |rows: Range<usize>| {
                assert!(rows.len() <= n_together.next_multiple_of(4096).max(4096));
                Ok::<_, Infallible>(Cow::Borrowed(&matrix[rows.start * width..rows.end * width]))
            };
            assert_eq!(column_statistics_of((n, n_together), width, None, rows), Ok(found.clone()), "{n_together}");
        }
    }
}
