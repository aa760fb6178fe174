//! Loops over the rows of a transition.

use kith_draw::Vectorized;

use super::{
    activation::Function,
    state::{NormKind, NormWeights, State, scale_and_shift},
};
use crate::{
    product::{N_COLUMNS, row_factors},
    simd::{Lanes, N_LANES},
};

/// dy = `factor` · dz − `of_normed` · x̂ − `constant`.
#[derive(Clone, Copy)]
pub(super) struct Back {
    pub(super) factor: f32,
    pub(super) of_normed: f32,
    pub(super) constant: f32,
}

/// Sums over nodes, by feature.
pub(super) struct GradientSums {
    /// Of dz.
    pub(super) plain: Vec<f32>,
    /// Of dz · x̂.
    pub(super) scaled: Vec<f32>,
    /// Of the gradient of the learned slope, over all features.
    pub(super) slope: f64,
}

impl GradientSums {
    pub(super) fn zeros(width: usize) -> GradientSums {
        GradientSums { plain: vec![0.0; width], scaled: vec![0.0; width], slope: 0.0 }
    }

    pub(super) fn add(&mut self, other: &GradientSums) {
        self.plain.iter_mut().zip(&other.plain).for_each(|(sum, part)| *sum += part);
        self.scaled.iter_mut().zip(&other.scaled).for_each(|(sum, part)| *sum += part);
        self.slope += other.slope;
    }
}

/// Some rows of a transition.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) state: &'a State,
    pub(super) columns: &'a [(f32, f32)],
    /// Number of the first.
    pub(super) first: usize,
    pub(super) input: &'a [f32],
}

impl Rows<'_> {
    /// x̂ of a row; the row itself without a norm. Returns the scale of a layer norm.
    #[inline(always)]
    fn normed(&self, row: &[f32], out: &mut [f32]) -> f32 {
        match self.state.norm {
            NormKind::None => {
                out.copy_from_slice(row);
                1.0
            }
            NormKind::Layer => {
                let (mean, variance) = moments(row);
                let (scale, shift) = scale_and_shift(mean, variance);
                for (out, y) in out.iter_mut().zip(row) {
                    *out = y.mul_add(scale, -shift);
                }
                scale
            }
            NormKind::Nodes => {
                for ((out, y), (scale, shift)) in out.iter_mut().zip(row).zip(self.columns) {
                    *out = y.mul_add(*scale, -shift);
                }
                1.0
            }
        }
    }

    /// z of a row, given x̂.
    #[inline(always)]
    fn affine(&self, normed: &[f32], out: &mut [f32]) {
        if self.state.norm == NormKind::None {
            out.copy_from_slice(normed);
            return;
        }
        let NormWeights { gamma, beta, .. } = &self.state.weights;
        for ((out, x), (gamma, beta)) in out.iter_mut().zip(normed).zip(gamma.iter().zip(beta)) {
            *out = x.mul_add(*gamma, *beta);
        }
    }

    /// Multiplies a row by its dropout factors.
    #[inline(always)]
    fn drop(&self, row: usize, values: &mut [f32]) {
        let Some(drop) = self.state.drop() else { return };
        for (part, values) in values.chunks_mut(N_COLUMNS).enumerate() {
            let factors = row_factors(drop, self.first + row, part);
            for (value, factor) in values.iter_mut().zip(&factors) {
                *value *= factor;
            }
        }
    }
}

/// The sum of some numbers, in sixteen interleaved parts.
#[inline(always)]
fn sum(values: &[f32]) -> f32 {
    let mut sums = [0.0f32; N_LANES];
    let (whole, rest) = values.split_at(values.len() / N_LANES * N_LANES);
    for values in whole.chunks_exact(N_LANES) {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += value;
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += value;
    }
    Lanes(sums).sum()
}

/// The sum of products, in sixteen interleaved parts.
#[inline(always)]
fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut sums = [0.0f32; N_LANES];
    let n = left.len() / N_LANES * N_LANES;
    let (whole, rest) = (left[..n].chunks_exact(N_LANES).zip(right[..n].chunks_exact(N_LANES)), n..left.len());
    for (left, right) in whole {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum = left.mul_add(*right, *sum);
        }
    }
    for ((sum, left), right) in sums.iter_mut().zip(&left[rest.clone()]).zip(&right[rest]) {
        *sum = left.mul_add(*right, *sum);
    }
    Lanes(sums).sum()
}

/// Mean and variance of a row.
#[inline(always)]
fn moments(row: &[f32]) -> (f32, f32) {
    let n = row.len() as f32;
    let mean = sum(row) / n;
    let mut sums = [0.0f32; N_LANES];
    for values in row.chunks(N_LANES) {
        for (sum, value) in sums.iter_mut().zip(values) {
            let distance = value - mean;
            *sum = distance.mul_add(distance, *sum);
        }
    }
    (mean, Lanes(sums).sum() / n)
}

/// Writes the outputs of some rows.
pub(super) struct Outputs<'a, F> {
    pub(super) rows: Rows<'a>,
    pub(super) function: F,
    pub(super) out: &'a mut [f32],
}

impl<F: Function> Vectorized for Outputs<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let width = self.rows.state.width;
        let mut normed = vec![0.0; width];
        for (row, (out, y)) in self.out.chunks_exact_mut(width).zip(self.rows.input.chunks_exact(width)).enumerate() {
            self.rows.normed(y, &mut normed);
            self.rows.affine(&normed, out);
            for out in out.iter_mut() {
                *out = self.function.value(*out);
            }
            self.rows.drop(row, out);
        }
    }
}

/// Writes the gradient of z, or of y for a layer norm, and adds up sums.
pub(super) struct Gradients<'a, F> {
    pub(super) rows: Rows<'a>,
    pub(super) function: F,
    /// Gradient of x.
    pub(super) gradient: &'a [f32],
    pub(super) out: &'a mut [f32],
    pub(super) sums: &'a mut GradientSums,
}

impl<F: Function> Vectorized for Gradients<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Gradients { rows, function, gradient, out, sums } = self;
        let State { norm, weights, has_slope, .. } = rows.state;
        let width = rows.state.width;
        let (mut normed, mut z) = (vec![0.0; width], vec![0.0; width]);
        let all = out.chunks_exact_mut(width).zip(rows.input.chunks_exact(width)).zip(gradient.chunks_exact(width));
        for (row, ((out, y), gradient)) in all.enumerate() {
            let scale = rows.normed(y, &mut normed);
            rows.affine(&normed, &mut z);
            out.copy_from_slice(gradient);
            rows.drop(row, out);
            if *has_slope {
                let mut below = 0.0;
                for (out, z) in out.iter().zip(&z) {
                    below += if *z > 0.0 { 0.0 } else { *out * *z };
                }
                sums.slope += f64::from(below);
            }
            for (out, z) in out.iter_mut().zip(&z) {
                *out *= function.slope(*z);
            }
            if *norm == NormKind::None {
                continue;
            }
            for ((plain, scaled), (dz, x)) in sums.plain.iter_mut().zip(&mut sums.scaled).zip(out.iter().zip(&normed)) {
                *plain += dz;
                *scaled = dz.mul_add(*x, *scaled);
            }
            if *norm == NormKind::Layer {
                for (dz, gamma) in out.iter_mut().zip(&weights.gamma) {
                    *dz *= gamma;
                }
                let (mean, along) = (sum(out) / width as f32, dot(out, &normed) / width as f32);
                for (out, x) in out.iter_mut().zip(&normed) {
                    *out = scale * (*out - mean - x * along);
                }
            }
        }
    }
}

/// Takes the gradient of z back through a norm over nodes, in place.
pub(super) struct ThroughNodes<'a> {
    pub(super) back: &'a [Back],
    pub(super) columns: &'a [(f32, f32)],
    pub(super) input: &'a [f32],
    pub(super) gradient: &'a mut [f32],
}

impl Vectorized for ThroughNodes<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let width = self.back.len();
        for (gradient, y) in self.gradient.chunks_exact_mut(width).zip(self.input.chunks_exact(width)) {
            let features = self.back.iter().zip(self.columns);
            for ((gradient, y), (back, (scale, shift))) in gradient.iter_mut().zip(y).zip(features) {
                let normed = y.mul_add(*scale, -shift);
                *gradient = gradient.mul_add(back.factor, -normed.mul_add(back.of_normed, back.constant));
            }
        }
    }
}
