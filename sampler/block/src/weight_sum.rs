//! Sums of edge weights that do not depend on the order of the edges.

use std::ops::AddAssign;

/// A sum of weights in steps of 2^-40. Whole numbers are added in any order, on any number of ranks, with one result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightSum(i128);

/// Steps of 1.
const ONE: f64 = (1u64 << 40) as f64;

impl WeightSum {
    /// Adds a weight, which is finite and not negative.
    #[inline]
    pub fn add(&mut self, weight: f32) {
        *self += WeightSum((f64::from(weight) * ONE).round() as i128);
    }

    /// The sum without one weight of 1, which was added before.
    pub fn minus_one(self) -> WeightSum {
        WeightSum(self.0 - ONE as i128)
    }

    /// The sum as a degree.
    pub fn degree(self) -> f32 {
        (self.0 as f64 / ONE) as f32
    }

    /// Its bytes, for other ranks.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// Of the bytes of another rank.
    pub fn from_bytes(bytes: [u8; 16]) -> WeightSum {
        WeightSum(i128::from_le_bytes(bytes))
    }
}

impl AddAssign for WeightSum {
    #[inline]
    fn add_assign(&mut self, other: WeightSum) {
        self.0 = self.0.saturating_add(other.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_weights_does_not_matter() {
        let weights: Vec<f32> = (0..1000).map(|k| 1e9 / (k * k + 1) as f32).chain([1e12, 1e-30, 0.0]).collect();
        let (mut forward, mut backward) = (WeightSum::default(), WeightSum::default());
        weights.iter().for_each(|weight| forward.add(*weight));
        weights.iter().rev().for_each(|weight| backward.add(*weight));
        assert_eq!(forward, backward);
        assert_eq!(WeightSum::from_bytes(forward.to_bytes()), forward);
        let mut small = WeightSum::default();
        [0.5, 0.25, 1.0].iter().for_each(|weight| small.add(*weight));
        assert_eq!((small.degree(), small.minus_one().degree()), (1.75, 0.75));
    }
}
