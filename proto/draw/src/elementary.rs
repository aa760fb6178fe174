//! Elementary functions that return the same bits on every machine.
//!
//! System math libraries differ in the last bits. The four arithmetic operations and the square root are exact
//! everywhere, and these functions use nothing else.

use std::f64::consts::{LN_2, LOG2_E, SQRT_2};

/// Natural logarithm of a normal positive number: ln(m * 2^e) = e * ln 2 + 2 * atanh((m - 1) / (m + 1)).
#[inline(always)]
pub fn ln(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    // Above the root of two the mantissa is halved. Without a jump: half of all numbers are above, in no order.
    let is_high = u64::from(bits & MANTISSA > SQRT_2.to_bits() & MANTISSA);
    let exponent = ((bits >> 52 & 0x7ff) + is_high) as i32 - 1023;
    let mantissa = f64::from_bits(bits & MANTISSA | (1023 - is_high) << 52);
    f64::from(exponent) * LN_2 + twice_atanh((mantissa - 1.0) / (mantissa + 1.0))
}

/// ln(1 + x) for x > -1, exact to the last digits where x is small.
pub fn ln_1p(x: f64) -> f64 {
    if x.abs() < 0.25 { twice_atanh(x / (2.0 + x)) } else { ln(1.0 + x) }
}

/// 2 * atanh(t) for |t| < 0.172: 12 terms reach 1e-19.
#[inline(always)]
fn twice_atanh(t: f64) -> f64 {
    2.0 * t * polynomial(ATANH_TERMS, t * t)
}

const ATANH_TERMS: [f64; 16] = {
    let mut terms = [0.0; 16];
    let mut k = 0;
    while k < 12 {
        terms[k] = 1.0 / (2 * k + 1) as f64;
        k += 1;
    }
    terms
};

/// e^x for -700 < x < 700: the power of two next to it, times a series for the rest.
#[inline(always)]
pub fn exp(x: f64) -> f64 {
    const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1; // 33 bits: its products with small integers are exact
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let power = (x * LOG2_E + if x < 0.0 { -0.5 } else { 0.5 }) as i64;
    let rest = x - power as f64 * LN_2_HIGH - power as f64 * LN_2_LOW; // at most ln 2 / 2: 16 terms reach 1e-20
    polynomial(EXP_TERMS, rest) * f64::from_bits(((power + 1023) as u64) << 52)
}

const EXP_TERMS: [f64; 16] = {
    let mut terms = [1.0; 16];
    let mut k = 1;
    while k < terms.len() {
        terms[k] = terms[k - 1] / k as f64;
        k += 1;
    }
    terms
};

/// Terms are added in pairs, pairs in pairs and so on: four sums wait for each other, not sixteen.
#[inline(always)]
fn polynomial(mut terms: [f64; 16], x: f64) -> f64 {
    let mut power = x;
    for n_sums in [8, 4, 2, 1] {
        for k in 0..n_sums {
            terms[k] = terms[2 * k] + terms[2 * k + 1] * power;
        }
        power *= power;
    }
    terms[0]
}

/// Sine and cosine of an angle between -4 and 4: 17 terms reach 1e-16.
pub fn sin_cos(angle: f64) -> (f64, f64) {
    let square = angle * angle;
    let series = |first: i32| {
        let term = |sum: f64, k: i32| 1.0 - sum * square / f64::from((2 * k + first) * (2 * k + first + 1));
        (0..17).rev().fold(1.0, term)
    };
    (angle * series(2), series(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_is_the_logarithm() {
        for x in [1e-300, 1e-16, 0.1, 0.5, std::f64::consts::FRAC_1_SQRT_2, 1.0, 1.5, 2.0, 1e10] {
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(1.0), "ln {x}: {} and {}", ln(x), x.ln());
        }
        for x in [-0.999, -0.3, -0.25, -0.2, -1e-3, -1e-17, 0.0, 1e-300, 1e-9, 0.24, 0.26, 3.0] {
            assert!((ln_1p(x) - x.ln_1p()).abs() <= 1e-15 * x.ln_1p().abs(), "ln_1p {x}: {}", ln_1p(x));
        }
    }

    #[test]
    fn exponential_is_the_exponential() {
        for k in -6990..=6990 {
            let x = f64::from(k) * 0.1 + 0.01;
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-15, "exp {x}: {} and {}", exp(x), x.exp());
        }
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn sine_and_cosine_are_theirs() {
        for k in -400..=400 {
            let angle = f64::from(k) * 0.01;
            let (sin, cos) = sin_cos(angle);
            assert!((sin - angle.sin()).abs() < 4e-15 && (cos - angle.cos()).abs() < 4e-15, "{angle}: {sin} {cos}");
        }
    }
}
