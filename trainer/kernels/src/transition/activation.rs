//! Activation functions and their slopes.

use crate::simd::exp;

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// x.
    Identity,
    /// x above zero, e^x − 1 below.
    Elu,
    /// x above zero, 0 below.
    Relu,
    /// x · Φ(x), with the distribution function of the normal distribution.
    Gelu,
    /// x above zero, this multiple of x below.
    LeakyRelu(f32),
}

/// A function that a loop over numbers is compiled for.
pub(super) trait Function: Copy + Sync {
    fn value(self, x: f32) -> f32;

    /// Its derivative.
    fn slope(self, x: f32) -> f32;
}

#[derive(Clone, Copy)]
pub(super) struct Identity;

impl Function for Identity {
    #[inline(always)]
    fn value(self, x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn slope(self, _x: f32) -> f32 {
        1.0
    }
}

#[derive(Clone, Copy)]
pub(super) struct Elu;

impl Function for Elu {
    #[inline(always)]
    fn value(self, x: f32) -> f32 {
        if x > 0.0 { x } else { exp(x) - 1.0 }
    }

    #[inline(always)]
    fn slope(self, x: f32) -> f32 {
        if x > 0.0 { 1.0 } else { exp(x) }
    }
}

/// Leaky ReLU with this slope below zero; ReLU if it is 0.
#[derive(Clone, Copy)]
pub(super) struct Leaky(pub(super) f32);

impl Function for Leaky {
    #[inline(always)]
    fn value(self, x: f32) -> f32 {
        if x > 0.0 { x } else { self.0 * x }
    }

    #[inline(always)]
    fn slope(self, x: f32) -> f32 {
        if x > 0.0 { 1.0 } else { self.0 }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Gelu;

/// Φ(x) by formula 7.1.26 of Abramowitz and Stegun, right to 1e-7, and e^(−x²/2).
#[inline(always)]
fn normal(x: f32) -> (f32, f32) {
    let bell = exp(-0.5 * x * x);
    let t = 1.0 / (0.327_591_1f32 * std::f32::consts::FRAC_1_SQRT_2).mul_add(x.abs(), 1.0);
    let mut series = 1.061_405_4f32;
    series = series.mul_add(t, -1.453_152);
    series = series.mul_add(t, 1.421_413_8);
    series = series.mul_add(t, -0.284_496_74);
    series = series.mul_add(t, 0.254_829_6);
    let tail = 0.5 * series * t * bell;
    (if x > 0.0 { 1.0 - tail } else { tail }, bell)
}

impl Function for Gelu {
    #[inline(always)]
    fn value(self, x: f32) -> f32 {
        x * normal(x).0
    }

    #[inline(always)]
    fn slope(self, x: f32) -> f32 {
        let (below, bell) = normal(x);
        (x * 0.398_942_3).mul_add(bell, below)
    }
}

/// Calls a function with the type of an activation.
macro_rules! by_function {
    ($activation:expr, $function:ident => $call:expr) => {
        match $activation {
            Activation::Identity => {
                let $function = crate::transition::activation::Identity;
                $call
            }
            Activation::Elu => {
                let $function = crate::transition::activation::Elu;
                $call
            }
            Activation::Relu => {
                let $function = crate::transition::activation::Leaky(0.0);
                $call
            }
            Activation::Gelu => {
                let $function = crate::transition::activation::Gelu;
                $call
            }
            Activation::LeakyRelu(slope) => {
                let $function = crate::transition::activation::Leaky(slope);
                $call
            }
        }
    };
}
pub(super) use by_function;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_and_its_slope_are_right() {
        // Φ by a long sum of the density, in doubles.
        let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let (mut below, step) = (0.0, 1e-4);
        for place in -60_000..60_000 {
            let x = f64::from(place) * step;
            if place % 1000 == 0 {
                let (value, slope) = (Gelu.value(x as f32), Gelu.slope(x as f32));
                assert!((f64::from(value) - x * below).abs() < 1e-6, "gelu({x}): {value}");
                assert!((f64::from(slope) - below - x * density(x)).abs() < 1e-6, "slope of gelu({x}): {slope}");
            }
            below += step * density(x + 0.5 * step);
        }
    }
}
