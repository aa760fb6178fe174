//! Sixteen numbers side by side, and the functions that the kernels apply to them.

/// Numbers in one register, or in as many as the machine needs for them.
pub(crate) const N_LANES: usize = 16;

/// Sixteen numbers, on a cache line of their own.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct Lanes(pub(crate) [f32; N_LANES]);

// Loops over lanes are written out: only what is surely inlined is compiled with wide instructions, and closures are not.
macro_rules! lanes {
    ($lane:ident => $value:expr) => {{
        let mut out = [0.0; $crate::simd::N_LANES];
        let mut $lane = 0;
        while $lane < $crate::simd::N_LANES {
            out[$lane] = $value;
            $lane += 1;
        }
        Lanes(out)
    }};
}
pub(crate) use lanes;

impl Lanes {
    pub(crate) const ZERO: Lanes = Lanes([0.0; N_LANES]);

    #[inline(always)]
    pub(crate) fn all(value: f32) -> Lanes {
        Lanes([value; N_LANES])
    }

    #[inline(always)]
    pub(crate) fn plus(self, other: Lanes) -> Lanes {
        lanes!(lane => self.0[lane] + other.0[lane])
    }

    #[inline(always)]
    pub(crate) fn minus(self, other: Lanes) -> Lanes {
        lanes!(lane => self.0[lane] - other.0[lane])
    }

    #[inline(always)]
    pub(crate) fn times(self, other: Lanes) -> Lanes {
        lanes!(lane => self.0[lane] * other.0[lane])
    }

    #[inline(always)]
    pub(crate) fn scaled(self, factor: f32) -> Lanes {
        lanes!(lane => self.0[lane] * factor)
    }

    /// `self + a * b`, rounded once.
    #[inline(always)]
    pub(crate) fn plus_product(self, a: Lanes, b: Lanes) -> Lanes {
        lanes!(lane => a.0[lane].mul_add(b.0[lane], self.0[lane]))
    }

    /// e^x, to about 1e-7 of it; below e^-87 it stays there.
    #[inline(always)]
    pub(crate) fn exp(self) -> Lanes {
        lanes!(lane => exp(self.0[lane]))
    }

    /// 1 / (1 + e^-x).
    #[inline(always)]
    pub(crate) fn sigmoid(self) -> Lanes {
        lanes!(lane => 1.0 / (1.0 + exp(-self.0[lane])))
    }

    /// `self` where it is zero, the other elsewhere.
    #[inline(always)]
    pub(crate) fn where_zero(self, other: Lanes) -> Lanes {
        lanes!(lane => if self.0[lane] == 0.0 { 0.0 } else { other.0[lane] })
    }

    /// x above zero, `slope` · x below.
    #[inline(always)]
    pub(crate) fn leaky_relu(self, slope: f32) -> Lanes {
        lanes!(lane => if self.0[lane] > 0.0 { self.0[lane] } else { slope * self.0[lane] })
    }

    /// `self` times the slope of the leaky ReLU at x.
    #[inline(always)]
    pub(crate) fn through_leaky_relu(self, x: Lanes, slope: f32) -> Lanes {
        lanes!(lane => if x.0[lane] > 0.0 { self.0[lane] } else { slope * self.0[lane] })
    }

    /// The sum of all lanes, in halves.
    #[inline(always)]
    pub(crate) fn sum(self) -> f32 {
        let mut lanes = self.0;
        let mut half = N_LANES / 2;
        while half > 0 {
            let mut lane = 0;
            while lane < half {
                lanes[lane] += lanes[lane + half];
                lane += 1;
            }
            half /= 2;
        }
        lanes[0]
    }

    /// In each lane the sum of all lanes that belong to its head, where heads repeat every `HEADS` lanes.
    #[inline(always)]
    pub(crate) fn sum_by_head<const HEADS: usize>(self) -> Lanes {
        let mut sum = self;
        if HEADS <= 8 {
            sum = lanes!(lane => sum.0[lane] + sum.0[lane ^ 8]);
        }
        if HEADS <= 4 {
            sum = lanes!(lane => sum.0[lane] + sum.0[lane ^ 4]);
        }
        if HEADS <= 2 {
            sum = lanes!(lane => sum.0[lane] + sum.0[lane ^ 2]);
        }
        if HEADS <= 1 {
            sum = lanes!(lane => sum.0[lane] + sum.0[lane ^ 1]);
        }
        sum
    }

    /// Lanes that repeat `HEADS` numbers.
    #[inline(always)]
    pub(crate) fn repeat<const HEADS: usize>(numbers: &[f32; HEADS]) -> Lanes {
        lanes!(lane => numbers[lane % HEADS])
    }
}

/// e^x by halves of a power of two: x = n·ln 2 + r, a series for e^r, and n added to the exponent.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const TO_INTEGER: f32 = 12_582_912.0; // 1.5 · 2^23: adding it rounds to an integer, which the low bits then hold.
    const LN_2_HIGH: f32 = 0.693_359_4; // The nearest float is 0.693359375, whose products with small integers are exact.
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = if x > 88.0 { 88.0 } else { x };
    let x = if x > -87.0 { x } else { -87.0 };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, TO_INTEGER);
    let n = shifted - TO_INTEGER;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    let mut series = 1.987_569_1e-4f32;
    series = series.mul_add(r, 1.398_199_9e-3);
    series = series.mul_add(r, 8.333_452e-3);
    series = series.mul_add(r, 4.166_579_6e-2);
    series = series.mul_add(r, 1.666_666_5e-1);
    series = series.mul_add(r, 0.5);
    let near_one = (series * r).mul_add(r, r) + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    near_one * power
}

/// ln(1 + e^x) without overflow, and its slope, the sigmoid of x.
#[inline(always)]
pub(crate) fn softplus(x: f32) -> (f32, f32) {
    let small = exp(-x.abs());
    // ln(1 + u) = 2 atanh(s) with s = u / (2 + u), at most 1/3.
    let s = small / (2.0 + small);
    let s2 = s * s;
    let mut series = 1.0f32 / 13.0;
    for term in [1.0f32 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0] {
        series = series.mul_add(s2, term);
    }
    let positive = if x > 0.0 { x } else { 0.0 };
    let numerator = if x > 0.0 { 1.0 } else { small };
    ((2.0 * s).mul_add(series, positive), numerator / (1.0 + small))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_right_to_the_last_digits() {
        for step in -8600..8700 {
            let x = step as f32 / 100.0;
            let expected = f64::from(x).exp();
            let error = (f64::from(exp(x)) - expected).abs() / expected;
            assert!(error < 2e-7, "exp({x}): {error}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NEG_INFINITY) < 2e-38);
        assert!(exp(1000.0).is_finite());
    }

    #[test]
    fn softplus_and_its_slope_are_right() {
        for step in -4000..4000 {
            let x = step as f32 / 100.0;
            let (value, slope) = softplus(x);
            let expected = f64::from(x).exp().ln_1p();
            let sigmoid = 1.0 / (1.0 + (-f64::from(x)).exp());
            assert!(
                (f64::from(value) - expected).abs() < 3e-7 * expected.max(1.0),
                "softplus({x}): {value} {expected}"
            );
            assert!((f64::from(slope) - sigmoid).abs() < 3e-7, "sigmoid({x}): {slope} {sigmoid}");
        }
    }

    #[test]
    fn sums_go_to_their_heads() {
        let lanes = Lanes(std::array::from_fn(|lane| lane as f32));
        assert_eq!(lanes.sum(), 120.0);
        assert_eq!(lanes.sum_by_head::<16>(), lanes);
        assert_eq!(lanes.sum_by_head::<8>().0[..3], [8.0, 10.0, 12.0]);
        assert_eq!(lanes.sum_by_head::<8>().0[8..11], [8.0, 10.0, 12.0]);
        assert_eq!(lanes.sum_by_head::<2>().0[..4], [56.0, 64.0, 56.0, 64.0]);
        assert_eq!(lanes.sum_by_head::<1>(), Lanes::all(120.0));
        assert_eq!(Lanes::repeat(&[1.0, 2.0]).0[..4], [1.0, 2.0, 1.0, 2.0]);
    }
}
