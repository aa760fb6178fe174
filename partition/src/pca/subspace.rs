//! Leading eigenvectors of a symmetric matrix that is only available through products with blocks.
//!
//! Subspace iteration: a random block is multiplied until its columns span the leading eigenvectors. Each round applies
//! a Chebyshev polynomial that is small below the block's smallest eigenvalue and grows fast above it. No gap is needed
//! between the eigenvalues kept and those left out.

use kith_draw::{Name, Purpose};
use nalgebra::{DMatrix, SymmetricEigen};
use rayon::prelude::*;

use super::{
    block::{Factor, lower_product, orthonormalize, product},
    centered::{Centered, Leading, STRIP},
};
use crate::{PartitionError, Result};

/// At least this many directions beyond those asked for.
const N_EXTRA: usize = 40;

/// Products in one round.
const DEGREE: usize = 6;

/// Rounds end when no eigenvalue is expected to be off by more than this part of itself.
const TOLERANCE: f64 = 1e-3;

/// Limit of rounds. Directions that have not converged by then belong to a cloud of nearly equal eigenvalues.
const MAX_ROUNDS: usize = 12;

/// All eigenvectors, of which the first `k` are kept.
pub(super) fn whole(centered: &Centered, k: usize) -> Result<Leading> {
    let side = centered.side();
    let square = centered.square_times(&DMatrix::identity(side, side));
    let (mut eigenvalues, vectors) = eigen(square)?;
    eigenvalues.truncate(k);
    Ok(Leading { vectors: vectors.columns(0, k).into_owned(), eigenvalues })
}

/// The first `k` eigenvectors, from a block that the seed names.
pub(super) fn leading(centered: &Centered, k: usize, run_key: u64) -> Result<Leading> {
    let n_columns = (k + N_EXTRA).next_multiple_of(STRIP);
    if n_columns >= centered.side() {
        return whole(centered, k);
    }
    let mut block = random_block(centered.side(), n_columns, run_key);
    for _ in 0..2 {
        block = orthonormalize(centered.square_times(&block));
    }
    let (mut before, mut change_before) = (Vec::new(), 1.0);
    for round in 0.. {
        let squared = centered.square_times(&block);
        let (mut eigenvalues, vectors) = eigen(lower_product(&block, &squared))?;
        let change = largest_change(&before, &eigenvalues[..k]);
        // Changes shrink by about the same factor from round to round: the next one is what is still missing.
        if change * (change / change_before) < TOLERANCE || round == MAX_ROUNDS {
            let vectors = product(&block, &vectors.columns(0, k).into_owned(), false);
            eigenvalues.truncate(k);
            return Ok(Leading { vectors, eigenvalues });
        }
        block = filter(centered, block, squared, eigenvalues[0], eigenvalues[n_columns - 1]);
        (before, change_before) = (eigenvalues, change);
    }
    unreachable!("the last round returns")
}

fn random_block(side: usize, n_columns: usize, run_key: u64) -> DMatrix<f64> {
    let stream = Name { run_key, purpose: Purpose::Projection, step: 0, layer: 0 }.stream();
    let mut block = DMatrix::zeros(side, n_columns);
    block.as_mut_slice().par_chunks_mut(side * STRIP).enumerate().for_each(|(strip, values)| {
        let width = values.len() / side;
        for row in 0..side {
            let mut draws = stream.draws(row as u64, strip as u64, 0);
            (0..width).for_each(|column| values[column * side + row] = draws.normal());
        }
    });
    block
}

/// The largest part by which an eigenvalue has changed; eigenvalues that are zero but for rounding do not count.
fn largest_change(before: &[f64], now: &[f64]) -> f64 {
    if before.is_empty() {
        return if now[0] > 0.0 { 1.0 } else { 0.0 };
    }
    let floor = now[0] * 1e-10;
    now.iter().zip(before).map(|(now, before)| (now - before).abs() / now.max(floor)).fold(0.0, f64::max)
}

/// Applies the Chebyshev polynomial of the first kind whose ripples cover 0 to `cut`, and makes the columns orthonormal.
/// `squared` is the first product, already known.
fn filter(centered: &Centered, block: DMatrix<f64>, squared: DMatrix<f64>, top: f64, cut: f64) -> DMatrix<f64> {
    let cut = cut.max(top * 1e-12);
    let growth = 4.0 * top / cut; // of the leading direction, in one product
    let (mut before, mut now) = (block, squared);
    now.zip_apply(&before, |now, before| *now = *now * (2.0 / cut) - before);
    let mut contrast = growth;
    for _ in 1..DEGREE {
        if contrast * growth > 1e6 {
            part_columns(&mut before, &mut now);
            contrast = 1.0;
        }
        let mut next = centered.square_times(&now);
        next.zip_zip_apply(&now, &before, |next, now, before| *next = *next * (4.0 / cut) - 2.0 * now - before);
        (before, now) = (now, next);
        contrast *= growth;
    }
    orthonormalize(now)
}

/// Keeps the columns from all becoming the leading direction: both blocks are multiplied by what makes the later one
/// nearly orthonormal, which the recurrence does not notice.
fn part_columns(before: &mut DMatrix<f64>, now: &mut DMatrix<f64>) {
    for _ in 0..3 {
        let factor = Factor::new(now);
        *before = product(before, &factor.inverse, true);
        *now = product(now, &factor.inverse, true);
        if factor.condition.is_finite() {
            break;
        }
    }
}

/// Eigenvalues, largest first and none negative, and their vectors. Reads the lower triangle only.
fn eigen(matrix: DMatrix<f64>) -> Result<(Vec<f64>, DMatrix<f64>)> {
    let n = matrix.nrows();
    let failed = || PartitionError::Option("the principal components of these rows cannot be found".into());
    let eigen = SymmetricEigen::try_new(matrix, f64::EPSILON, 100 * n + 100).ok_or_else(failed)?;
    let mut order = (0..n).collect::<Vec<_>>();
    order.sort_by(|a, b| eigen.eigenvalues[*b].total_cmp(&eigen.eigenvalues[*a]));
    let values = order.iter().map(|at| eigen.eigenvalues[*at].max(0.0)).collect();
    Ok((values, eigen.eigenvectors.select_columns(&order)))
}
