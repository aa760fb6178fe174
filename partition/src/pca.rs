//! Principal components of features: mean-centered, not whitened, not scaled afterwards.
//!
//! A component's sign is chosen so that its loading of largest magnitude is positive. Sparse features stay sparse: the
//! mean is subtracted from products, never from the features.

mod block;
mod centered;
mod subspace;

use rayon::prelude::*;

use self::centered::{Centered, PIECE};
use crate::{PartitionError, Result, raw::RawRows};

/// Rows reduced to their principal components.
#[derive(Clone, Debug, PartialEq)]
pub struct Pca {
    /// One dense row per node, a component per value.
    pub rows: RawRows,
    /// The variance of each component, largest first (divided by n - 1).
    pub explained: Vec<f64>,
    /// The variance of all columns of the rows together.
    pub total_variance: f64,
}

/// Up to this many columns (or rows, if they are fewer) all eigenvectors are computed; beyond, only the leading ones.
const WHOLE_LIMIT: usize = 1024;

/// Reduces rows to `n_components` values each.
///
/// With n rows, dim columns, s = min(n, dim) and l = n_components + about 50, it needs 5 blocks of s * l numbers and
/// (n + dim) * 32 numbers for each thread, 8 bytes each; twice the result; and for sparse rows once more their size.
pub fn pca(rows: &RawRows, n_components: u32, run_key: u64) -> Result<Pca> {
    check(rows, n_components)?;
    let centered = Centered::new(rows);
    let k = n_components as usize;
    let leading = if centered.side() <= WHOLE_LIMIT {
        subspace::whole(&centered, k)?
    } else {
        subspace::leading(&centered, k, run_key)?
    };
    let values = join_strips(&centered.scores(&leading), centered.n_rows(), k);
    let freedom = (centered.n_rows() - 1).max(1) as f64;
    Ok(Pca {
        rows: RawRows::Dense { dim: n_components, values },
        explained: leading.eigenvalues.iter().map(|value| value / freedom).collect(),
        total_variance: centered.squares() / freedom,
    })
}

fn check(rows: &RawRows, n_components: u32) -> Result<()> {
    let (n_rows, dim) = (rows.n_rows(), rows.dim());
    let most = n_rows.min(dim as usize);
    if most == 0 {
        return Err(PartitionError::Option(format!("{n_rows} rows of {dim} values have no principal components")));
    }
    if n_components == 0 || n_components as usize > most {
        return Err(PartitionError::Option(format!(
            "{n_rows} rows of {dim} values have 1 to {most} principal components, not {n_components}"
        )));
    }
    match rows.values().iter().enumerate().find(|(_, value)| !value.is_finite()) {
        Some((at, value)) => Err(PartitionError::Option(format!(
            "principal components need finite rows, but value {at} of those stored is {value}"
        ))),
        None => Ok(()),
    }
}

/// From strips of 32 columns, each row after row, to whole rows.
fn join_strips(strips: &[Vec<f32>], n_rows: usize, dim: usize) -> Vec<f32> {
    let width = centered::STRIP;
    let mut values = vec![0f32; n_rows * dim];
    values.par_chunks_mut(PIECE * dim).enumerate().for_each(|(piece, rows)| {
        for (row, values) in rows.chunks_exact_mut(dim).enumerate() {
            let from = (piece * PIECE + row) * width;
            for (to, strip) in values.chunks_mut(width).zip(strips) {
                to.copy_from_slice(&strip[from..from + to.len()]);
            }
        }
    });
    values
}

#[cfg(test)]
mod tests {
    use nalgebra::SymmetricEigen;
    use proptest::prelude::*;

    use nalgebra::DMatrix;

    use super::*;

    /// Numbers that look random, for test matrices.
    fn number(at: u64) -> f64 {
        let mixed = (at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed >> 40) as f64 / (1u64 << 24) as f64
    }

    fn dense(n_rows: usize, dim: usize, value: impl Fn(usize, usize) -> f64) -> RawRows {
        let values = (0..n_rows * dim).map(|at| value(at / dim, at % dim) as f32).collect();
        RawRows::Dense { dim: dim as u32, values }
    }

    fn sparse(rows: &RawRows) -> RawRows {
        let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in rows.values().chunks_exact(rows.dim() as usize) {
            for (column, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
                indices.push(column as u32);
                values.push(*value);
            }
            indptr.push(indices.len() as u64);
        }
        RawRows::Sparse { dim: rows.dim(), indptr, indices, values }
    }

    /// A sparse matrix with slowly falling singular values, as bags of words have.
    fn words(n_rows: usize, dim: usize, offset: u64) -> RawRows {
        let kept = |row: usize, column: usize| {
            let likely =
                0.3 / (1.0 + column as f64 / 40.0) + if (row / 7 + column).is_multiple_of(13) { 0.3 } else { 0.0 };
            number((row * dim + column) as u64 + offset) < likely
        };
        dense(n_rows, dim, |row, column| f64::from(kept(row, column)))
    }

    /// All eigenvalues and components the plain way: center, multiply, decompose.
    fn plain(rows: &RawRows) -> (Vec<f64>, DMatrix<f64>, DMatrix<f64>) {
        let mut x = DMatrix::from_row_iterator(
            rows.n_rows(),
            rows.dim() as usize,
            rows.values().iter().map(|value| f64::from(*value)),
        );
        for mut column in x.column_iter_mut() {
            let mean = column.mean();
            column.add_scalar_mut(-mean);
        }
        let eigen = SymmetricEigen::new(x.transpose() * &x);
        let mut order = (0..x.ncols()).collect::<Vec<_>>();
        order.sort_by(|a, b| eigen.eigenvalues[*b].total_cmp(&eigen.eigenvalues[*a]));
        let freedom = (rows.n_rows() - 1).max(1) as f64;
        let values = order.iter().map(|at| eigen.eigenvalues[*at] / freedom).collect();
        (values, eigen.eigenvectors.select_columns(&order), x)
    }

    /// Compares variances to `tolerance`, and scores where a component's variance is apart from its neighbors'.
    fn assert_plain(rows: &RawRows, found: &Pca, tolerance: f64) {
        let (values, vectors, x) = plain(rows);
        let k = found.explained.len();
        let total = values.iter().sum::<f64>();
        assert!((found.total_variance - total).abs() <= 1e-9 * total.abs(), "{} of {total}", found.total_variance);
        for (at, (found, exact)) in found.explained.iter().zip(&values).enumerate() {
            let error = (found - exact).abs();
            assert!(error <= tolerance * exact.abs() + 1e-10 * values[0], "component {at}: {found} not {exact}");
        }
        for at in (0..k).filter(|at| values[*at] > 1e-6 * values[0]) {
            let apart =
                |other: usize| (values[at] - values.get(other).copied().unwrap_or(0.0)).abs() > 0.05 * values[at];
            let loading = vectors.column(at).iter().fold(0f64, |best, v| if v.abs() > best.abs() { *v } else { best });
            let n_large = vectors.column(at).iter().filter(|v| v.abs() > 0.99 * loading.abs()).count();
            if !apart(at + 1) || at > 0 && !apart(at - 1) || n_large > 1 {
                continue;
            }
            let scores = &x * vectors.column(at) * loading.signum();
            for (row, score) in scores.iter().enumerate() {
                let found = f64::from(found.rows.values()[row * k + at]);
                let scale = values[at].sqrt() * (rows.n_rows() as f64).sqrt();
                assert!((found - score).abs() < (1e-5 + tolerance.sqrt()) * scale, "row {row}, component {at}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn small_matrices_have_their_exact_components(
            (n_rows, dim, k) in (2usize..40, 1usize..40).prop_flat_map(|(n, d)| (Just(n), Just(d), 1..=n.min(d))),
            zeros in 0.0..0.95f64,
            scale in prop::sample::select(vec![1e-20, 1.0, 1e20]),
            offset in any::<u32>(),
        ) {
            let value = |row: usize, column: usize| {
                let at = 2 * (row * dim + column) as u64 + u64::from(offset);
                if number(at) < zeros { 0.0 } else { (number(at + 1) * 4.0 - 1.0) * scale / (1 + column % 5) as f64 }
            };
            let rows = dense(n_rows, dim, value);
            let found = pca(&rows, k as u32, 1).unwrap();
            assert_plain(&rows, &found, 1e-7);
            let from_sparse = pca(&sparse(&rows), k as u32, 1).unwrap();
            assert_plain(&rows, &from_sparse, 1e-7);
        }
    }

    #[test]
    fn leading_components_are_the_exact_ones() {
        for (n_rows, dim) in [(300, 210), (210, 300)] {
            let rows = words(n_rows, dim, 5);
            for rows in [rows.clone(), sparse(&rows)] {
                let centered = Centered::new(&rows);
                let leading = subspace::leading(&centered, 30, 3).unwrap();
                let exact = subspace::whole(&centered, 30).unwrap();
                for (found, exact) in leading.eigenvalues.iter().zip(&exact.eigenvalues) {
                    assert!((found - exact).abs() < 1e-3 * exact, "{found} instead of {exact}");
                }
                let right_angles = block::lower_product(&leading.vectors, &leading.vectors);
                let identity = DMatrix::<f64>::identity(30, 30).lower_triangle();
                assert!((right_angles.lower_triangle() - identity).amax() < 1e-12);
            }
        }
    }

    /// A direction with ten million times the variance of the others must not hide them.
    #[test]
    fn a_huge_component_leaves_room_for_the_others() {
        let value = |row: usize, column: usize| {
            let noise = number((row * 200 + column) as u64) / (1.0 + column as f64 / 20.0);
            if column == 77 { 1e3 * number(row as u64 + 1_000_000) } else { noise }
        };
        let rows = dense(400, 200, value);
        let centered = Centered::new(&rows);
        let leading = subspace::leading(&centered, 20, 3).unwrap();
        let exact = subspace::whole(&centered, 20).unwrap();
        for (found, exact) in leading.eigenvalues.iter().zip(&exact.eigenvalues) {
            assert!((found - exact).abs() < 1e-2 * exact, "{found} instead of {exact}");
        }
    }

    /// Asking for more components than there are directions gives zeros, not noise.
    #[test]
    fn components_beyond_the_rank_are_zero() {
        let row_of = |row: usize, column: usize| number((row % 9 * 300 + column) as u64);
        for rows in [dense(200, 300, row_of), dense(400, 300, row_of)] {
            let centered = Centered::new(&rows);
            let leading = subspace::leading(&centered, 20, 1).unwrap();
            assert!(leading.eigenvalues[7] > 1e-3 * leading.eigenvalues[0]);
            assert!(leading.eigenvalues[8..].iter().all(|value| *value < 1e-10 * leading.eigenvalues[0]));
            assert!(leading.vectors.iter().all(|value| value.is_finite()));
            assert_plain(&rows, &pca(&rows, 20, 1).unwrap(), 1e-7);
        }
        for (n_rows, dim) in [(200, 300), (300, 200), (1, 5), (5, 1), (1, 1)] {
            let k = n_rows.min(dim).min(20);
            let same = dense(n_rows, dim, |_, _| 0.75);
            let leading = subspace::leading(&Centered::new(&same), k, 1).unwrap();
            assert_eq!(leading.eigenvalues, vec![0.0; k]);
            let found = pca(&same, k as u32, 1).unwrap();
            assert!(found.rows.values().iter().all(|value| *value == 0.0), "{n_rows} equal rows of {dim}");
            assert_eq!(found.total_variance, 0.0);
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let full = dense(9000, 40, |row, column| number((row * 40 + column) as u64) + (row % (column + 2)) as f64);
        assert_plain(&full, &pca(&full, 24, 9).unwrap(), 1e-7);
        for rows in [sparse(&words(5000, 1100, 0)), sparse(&words(1100, 1300, 0)), full] {
            let on = |n_threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
                pool.install(|| pca(&rows, 24, 9).unwrap())
            };
            let one = on(1);
            for n_threads in [2, 5] {
                assert!(on(n_threads) == one, "{n_threads} threads give other bits than one");
            }
        }
    }

    /// Of real rows, against variances computed by a dense decomposition elsewhere.
    #[test]
    fn real_rows_have_their_exact_variances() {
        let Some(folder) = crate::dataset::real_files("chameleon") else { return };
        let file = std::fs::read(folder.join("musae_chameleon_features.json")).unwrap();
        let words: std::collections::HashMap<u32, Vec<u32>> = serde_json::from_slice(&file).unwrap();
        let (mut indptr, mut indices) = (vec![0], Vec::new());
        for node in 0..2277 {
            let mut row = words[&node].clone();
            row.sort_unstable();
            indices.extend(row);
            indptr.push(indices.len() as u64);
        }
        let values = vec![1.0; indices.len()];
        let found = pca(&RawRows::Sparse { dim: 13183, indptr, indices, values }, 500, 1).unwrap();
        let exact = [(0, 0.751566591139), (9, 0.129238029620), (99, 0.0394851288821), (499, 0.0113038005462)];
        for (at, exact) in exact {
            assert!((found.explained[at] / exact - 1.0).abs() < 1e-3, "{at}: {} not {exact}", found.explained[at]);
        }
        assert!((found.explained.iter().sum::<f64>() / 16.5635634525 - 1.0).abs() < 1e-5);
        assert!((found.total_variance / 20.8102280542 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn impossible_requests_give_a_sentence() {
        let refused = |rows: &RawRows, k| pca(rows, k, 1).unwrap_err().to_string();
        let rows = dense(5, 3, |row, column| (row * column) as f64);
        assert_eq!(refused(&rows, 4), "5 rows of 3 values have 1 to 3 principal components, not 4");
        assert_eq!(refused(&rows, 0), "5 rows of 3 values have 1 to 3 principal components, not 0");
        let none = RawRows::Sparse { dim: 3, indptr: vec![], indices: vec![], values: vec![] };
        assert_eq!(refused(&none, 1), "0 rows of 3 values have no principal components");
        let hole = dense(2, 2, |row, column| if row + column == 2 { f64::NAN } else { 1.0 });
        assert!(refused(&hole, 1).ends_with("value 3 of those stored is NaN"), "{}", refused(&hole, 1));
    }
}
