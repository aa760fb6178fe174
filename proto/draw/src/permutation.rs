//! Random permutation of `0..n` in constant memory: each position and its inverse are computed on their own.

use crate::name::Stream;

pub(crate) const N_ROUNDS: usize = 8;

/// A keyed permutation of `0..n`: a Feistel network over pairs (left below a, right below b) with a·b just above n,
/// followed until it lands inside.
#[derive(Clone, Debug)]
pub struct Permutation {
    n: u64,
    n_left: u64,
    n_right: u64,
    round_keys: [u64; N_ROUNDS],
}

impl Permutation {
    /// The permutation of `0..n` that belongs to one name.
    pub fn new(stream: Stream, a: u64, n: u64) -> Permutation {
        let n_left = n.isqrt().max(1);
        let mut draws = stream.draws(a, 0, 0);
        let round_keys = std::array::from_fn(|_| draws.double_word());
        Permutation { n, n_left, n_right: n.div_ceil(n_left), round_keys }
    }

    /// Image of `place`.
    #[inline]
    pub fn at(&self, place: u64) -> u64 {
        self.walk(place, |wide| self.encrypt(wide))
    }

    /// Images of several places, as [`Permutation::at`] computes them. Compilers turn its loops into vector instructions.
    #[inline(always)]
    pub fn at_each<const N: usize>(&self, places: [u64; N]) -> [u64; N] {
        let (mut left, mut right) = ([0; N], [0; N]);
        for lane in 0..N {
            assert!(places[lane] < self.n, "place {} is outside 0..{}", places[lane], self.n);
            (left[lane], right[lane]) = (places[lane] / self.n_right, places[lane] % self.n_right);
        }
        for keys in self.round_keys.as_chunks::<2>().0 {
            for lane in 0..N {
                left[lane] = plus(left[lane], mix(right[lane], keys[0], self.n_left), self.n_left);
                right[lane] = plus(right[lane], mix(left[lane], keys[1], self.n_right), self.n_right);
            }
        }
        let mut wide = [0; N];
        for lane in 0..N {
            wide[lane] = left[lane] * self.n_right + right[lane];
        }
        for image in wide.iter_mut().filter(|image| **image >= self.n) {
            while *image >= self.n {
                *image = self.encrypt(*image);
            }
        }
        wide
    }

    /// Preimage of `place`.
    #[inline]
    pub fn inverse(&self, place: u64) -> u64 {
        self.walk(place, |wide| self.decrypt(wide))
    }

    // The network permutes 0..a*b, which is hardly more than n: following it until it is back inside 0..n is again a
    // permutation, and nearly always takes one step.
    #[inline]
    fn walk(&self, place: u64, step: impl Fn(u64) -> u64) -> u64 {
        assert!(place < self.n, "place {place} is outside 0..{}", self.n);
        let mut wide = step(place);
        while wide >= self.n {
            wide = step(wide);
        }
        wide
    }

    #[inline]
    fn encrypt(&self, wide: u64) -> u64 {
        let (mut left, mut right) = (wide / self.n_right, wide % self.n_right);
        for keys in self.round_keys.as_chunks::<2>().0 {
            left = plus(left, mix(right, keys[0], self.n_left), self.n_left);
            right = plus(right, mix(left, keys[1], self.n_right), self.n_right);
        }
        left * self.n_right + right
    }

    #[inline]
    fn decrypt(&self, wide: u64) -> u64 {
        let (mut left, mut right) = (wide / self.n_right, wide % self.n_right);
        for keys in self.round_keys.as_chunks::<2>().0.iter().rev() {
            right = minus(right, mix(left, keys[1], self.n_right), self.n_right);
            left = minus(left, mix(right, keys[0], self.n_left), self.n_left);
        }
        left * self.n_right + right
    }
}

/// A number below `n` (at most 2^32) that depends on every bit of the other half and of the round's key.
#[inline(always)]
fn mix(half: u64, key: u64, n: u64) -> u64 {
    let product = (half ^ key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let folded = (product ^ product >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    ((folded >> 32) * n) >> 32
}

#[inline(always)]
fn plus(half: u64, shift: u64, n: u64) -> u64 {
    let sum = half + shift;
    if sum >= n { sum - n } else { sum }
}

#[inline]
fn minus(half: u64, shift: u64, n: u64) -> u64 {
    if half >= shift { half - shift } else { half + n - shift }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::{Name, Purpose};

    fn permutation(a: u64, n: u64) -> Permutation {
        let stream = Name { run_key: 1, purpose: Purpose::Generator, step: 0, layer: 0 }.stream();
        Permutation::new(stream, a, n)
    }

    #[test]
    fn is_a_permutation_with_its_inverse() {
        for n in [1u64, 2, 3, 4, 5, 16, 17, 1000, 4097] {
            let permutation = permutation(n, n);
            let mut seen = vec![false; n as usize];
            for place in 0..n {
                let to = permutation.at(place);
                assert!(!std::mem::replace(&mut seen[to as usize], true), "{to} comes twice of {n}");
                assert_eq!(permutation.inverse(to), place);
                let places = [place, 0, n - 1];
                assert_eq!(permutation.at_each(places), places.map(|place| permutation.at(place)));
            }
        }
        let wide = permutation(0, 1 << 40);
        assert_eq!(wide.inverse(wide.at(123_456_789_012)), 123_456_789_012);
    }

    #[test]
    fn all_orders_of_four_are_equally_likely() {
        let n_keys = 48_000;
        let mut count = HashMap::new();
        for a in 0..n_keys {
            let permutation = permutation(a, 4);
            *count.entry([0, 1, 2, 3].map(|place| permutation.at(place))).or_insert(0u32) += 1;
        }
        assert_eq!(count.len(), 24);
        let chi2: f64 = count.values().map(|c| (f64::from(*c) - 2000.0).powi(2) / 2000.0).sum();
        assert!(chi2 < 60.0, "chi2 {chi2} with 23 degrees of freedom");
    }

    #[test]
    fn neighbors_in_place_part() {
        let n = 1 << 20;
        let permutation = permutation(9, n);
        let n_close = (1..n).filter(|place| permutation.at(*place).abs_diff(permutation.at(place - 1)) < 64).count();
        assert!((64..320).contains(&n_close), "{n_close} neighbors stayed close, about 128 expected");
    }
}
