//! Blocks: tall matrices with one column per direction. Their products and orthonormalization.

use nalgebra::{Cholesky, DMatrix, DMatrixViewMut};
use rayon::prelude::*;

use super::centered::PIECE;

/// Columns of a product that one task makes.
const STRIP: usize = 64;

/// The lower triangle of A'B (what is above the strips' diagonal is left zero), rows summed by pieces.
pub(super) fn lower_product(a: &DMatrix<f64>, b: &DMatrix<f64>) -> DMatrix<f64> {
    let (side, n_columns) = a.shape();
    let transposed = a.transpose();
    let mut product = DMatrix::zeros(n_columns, n_columns);
    product.as_mut_slice().par_chunks_mut(n_columns * STRIP).enumerate().for_each(|(strip, product)| {
        let first = strip * STRIP;
        let width = product.len() / n_columns;
        let mut sum = DMatrix::zeros(n_columns - first, width);
        for row in (0..side).step_by(PIECE) {
            let height = PIECE.min(side - row);
            let left = transposed.view((first, row), (n_columns - first, height));
            let mut piece = DMatrix::zeros(n_columns - first, width);
            piece.gemm(1.0, &left, &b.view((row, first), (height, width)), 0.0);
            sum += piece;
        }
        for (to, from) in product.chunks_exact_mut(n_columns).zip(sum.column_iter()) {
            to[first..].copy_from_slice(from.as_slice());
        }
    });
    product
}

/// A times B; where `is_upper`, what B holds below its diagonal is known to be zero.
pub(super) fn product(a: &DMatrix<f64>, b: &DMatrix<f64>, is_upper: bool) -> DMatrix<f64> {
    let mut product = DMatrix::zeros(a.nrows(), b.ncols());
    product.as_mut_slice().par_chunks_mut(a.nrows() * STRIP).enumerate().for_each(|(strip, product)| {
        let first = strip * STRIP;
        let width = product.len() / a.nrows();
        let depth = if is_upper { first + width } else { a.ncols() };
        let mut product = DMatrixViewMut::from_slice(product, a.nrows(), width);
        product.gemm(1.0, &a.columns(0, depth), &b.view((0, first), (depth, width)), 0.0);
    });
    product
}

/// Makes the columns unit vectors at right angles that span the same space.
pub(super) fn orthonormalize(mut block: DMatrix<f64>) -> DMatrix<f64> {
    for _ in 0..5 {
        let factor = Factor::new(&block);
        block = product(&block, &factor.inverse, true);
        if factor.condition < 100.0 {
            break; // what is left is about 1e-16 * 100^2
        }
    }
    block
}

/// Matrix that makes the columns of one block nearly orthonormal when multiplied from the right.
pub(super) struct Factor {
    /// An upper triangle.
    pub(super) inverse: DMatrix<f64>,
    /// About how far from orthonormal the columns were: largest length over smallest.
    pub(super) condition: f64,
}

impl Factor {
    /// By the Cholesky factor of the block's Gram matrix. Where the columns are too dependent for one, the Gram
    /// matrix's diagonal is raised a little: the next pass finds them less so.
    pub(super) fn new(block: &DMatrix<f64>) -> Factor {
        let gram = lower_product(block, block);
        let n = gram.nrows();
        let mut factor = Cholesky::new(gram.clone());
        let is_dependent = factor.is_none();
        let mut shift = (gram.trace() * 1e-14).max(f64::MIN_POSITIVE);
        for _ in 0..20 {
            if factor.is_some() {
                break;
            }
            factor = Cholesky::new(&gram + DMatrix::from_diagonal_element(n, n, shift));
            shift *= 10.0;
        }
        let lower = factor.map_or_else(|| DMatrix::identity(n, n), Cholesky::unpack);
        let lengths = lower.diagonal();
        let condition = if is_dependent { f64::INFINITY } else { lengths.max() / lengths.min() };
        let mut inverse = DMatrix::identity(n, n);
        lower.solve_lower_triangular_unchecked_mut(&mut inverse);
        inverse.transpose_mut();
        Factor { inverse, condition }
    }
}
