//! Exponential numbers of a stream: the keys of weighted draws.

use crate::{Stream, elementary::ln};

/// Numbers of [`exponentials`] that are computed together: 16 Philox blocks, which compilers turn into vector instructions (not 8).
pub const N_EXPONENTIALS: usize = 32;

/// Exponential numbers of mean 1 that are named (a, b), (a, b + 1) and so on, where b is a multiple of
/// [`N_EXPONENTIALS`]. Two numbers share four words. Only the four operations on doubles decide them, so that all
/// machines and devices agree.
#[inline(always)]
pub fn exponentials(stream: Stream, a: u64, b: u64) -> [f64; N_EXPONENTIALS] {
    let mut numbers = uniforms(stream, a, b);
    numbers.iter_mut().for_each(|number| *number = exponential_of(*number));
    numbers
}

/// The exponential number that belongs to a uniform one.
#[inline(always)]
pub fn exponential_of(uniform: f64) -> f64 {
    -ln(uniform)
}

/// The uniform numbers, between 0 and 1, that [`exponentials`] are made of.
#[inline(always)]
pub fn uniforms(stream: Stream, a: u64, b: u64) -> [f64; N_EXPONENTIALS] {
    const HALF: usize = N_EXPONENTIALS / 2;
    let mut pairs = [b / 2; HALF];
    let mut k = 0;
    while k < HALF {
        pairs[k] += k as u64;
        k += 1;
    }
    let words = stream.words_of([a; HALF], pairs, 0, 0);
    let mut numbers = [0.0; N_EXPONENTIALS];
    for k in 0..HALF {
        numbers[2 * k] = uniform(words[0][k], words[1][k]);
        numbers[2 * k + 1] = uniform(words[2][k], words[3][k]);
    }
    numbers
}

/// An odd multiple of 2^-53 between 0 and 1, by the upper 52 bits of two words.
#[inline(always)]
fn uniform(low: u32, high: u32) -> f64 {
    const ONE: u64 = 1023 << 52;
    const HALF_STEP: f64 = 1.0 / (1u64 << 53) as f64;
    let bits = u64::from(high) << 20 | u64::from(low) >> 12;
    // Both steps are exact.
    f64::from_bits(ONE | bits) - 1.0 + HALF_STEP
}

#[cfg(test)]
mod tests {
    use std::f64::consts::LN_2;

    use super::*;
    use crate::{Name, Purpose};

    fn stream() -> Stream {
        Name { run_key: 42, purpose: Purpose::WeightedNeighbor, step: 3, layer: 1 }.stream()
    }

    /// Golden: these numbers are in every published result.
    #[test]
    fn names_keep_their_numbers() {
        let first = exponentials(stream(), 5, 0);
        let bits: Vec<u64> = first[..3].iter().map(|number| number.to_bits()).collect();
        assert_eq!(bits, GOLDEN);
        assert_ne!(exponentials(stream(), 5, 32)[0], first[0]);
    }

    const GOLDEN: [u64; 3] = [4601001653242425988, 4604033113485077992, 4613522091086257114];

    #[test]
    fn uniform_numbers_stay_between_zero_and_one() {
        assert_eq!(uniform(0, 0), 1.0 / (1u64 << 53) as f64);
        assert_eq!(uniform(u32::MAX, u32::MAX), 1.0 - 1.0 / (1u64 << 53) as f64);
        assert_eq!(uniform(0, 1 << 31), 0.5 + 1.0 / (1u64 << 53) as f64);
    }

    #[test]
    fn exponential_numbers_have_their_moments() {
        let n = 20_000u64;
        let numbers: Vec<f64> = (0..n).flat_map(|a| exponentials(stream(), a, 32)).collect();
        let moment = |power: i32| numbers.iter().map(|x| x.powi(power)).sum::<f64>() / numbers.len() as f64;
        for (power, expected) in [(1, 1.0), (2, 2.0), (3, 6.0)] {
            assert!((moment(power) / expected - 1.0).abs() < 0.03, "moment {power}: {}", moment(power));
        }
        // Above ln 2 lies one half, above 2 ln 2 one quarter.
        for (least, share) in [(LN_2, 0.5), (2.0 * LN_2, 0.25)] {
            let found = numbers.iter().filter(|x| **x > least).count() as f64 / numbers.len() as f64;
            assert!((found - share).abs() < 0.005, "{found} above {least}");
        }
    }
}
