//! Sequence of random numbers of one name: words, bounded integers, normal numbers.

use crate::{name::Stream, normal::inverse_normal};

/// The numbers that belong to one name, in order.
#[derive(Clone, Debug)]
pub struct Draws {
    stream: Stream,
    a: u64,
    b: u64,
    attempt: u16,
    n_words: u32,
    words: [u32; 4],
}

impl Stream {
    /// The draws named (a, b, attempt): a sequence of up to 2^18 words.
    #[inline]
    pub fn draws(self, a: u64, b: u64, attempt: u16) -> Draws {
        Draws { stream: self, a, b, attempt, n_words: 0, words: [0; 4] }
    }
}

impl Draws {
    /// The next 32 random bits.
    #[inline]
    pub fn word(&mut self) -> u32 {
        let place = (self.n_words % 4) as usize;
        if place == 0 {
            let block = u16::try_from(self.n_words / 4).expect("a name has at most 2^18 words");
            self.words = self.stream.words(self.a, self.b, self.attempt, block);
        }
        self.n_words += 1;
        self.words[place]
    }

    /// The next 64 random bits.
    #[inline]
    pub fn double_word(&mut self) -> u64 {
        let low = u64::from(self.word());
        low | u64::from(self.word()) << 32
    }

    /// Uniform in `0..n`, without bias (Lemire's method: the few words that would favor small numbers are skipped).
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "nothing to draw from");
        match u32::try_from(n) {
            Ok(n) => u64::from(self.below_u32(n)),
            Err(_) => self.below_u64(n),
        }
    }

    #[inline]
    fn below_u32(&mut self, n: u32) -> u32 {
        let mut product = u64::from(self.word()) * u64::from(n);
        if (product as u32) < n {
            let n_biased = n.wrapping_neg() % n; // 2^32 mod n
            while (product as u32) < n_biased {
                product = u64::from(self.word()) * u64::from(n);
            }
        }
        (product >> 32) as u32
    }

    fn below_u64(&mut self, n: u64) -> u64 {
        let mut product = u128::from(self.double_word()) * u128::from(n);
        if (product as u64) < n {
            let n_biased = n.wrapping_neg() % n; // 2^64 mod n
            while (product as u64) < n_biased {
                product = u128::from(self.double_word()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// Uniform in the open interval (0, 1), a multiple of 2^-54.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        ((self.double_word() >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
    }

    /// Standard normal, by inversion: the same bits on every machine.
    pub fn normal(&mut self) -> f64 {
        inverse_normal(self.uniform())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Name, Purpose};

    fn stream() -> crate::Stream {
        Name { run_key: 7, purpose: Purpose::Neighbor, step: 0, layer: 0 }.stream()
    }

    #[test]
    fn bounded_integers_are_uniform() {
        for n in [1u64, 2, 3, 6, 7, 10] {
            let mut count = vec![0f64; n as usize];
            let n_draws = 60_000;
            for a in 0..n_draws {
                count[stream().draws(a, 0, 0).below(n) as usize] += 1.0;
            }
            let expected = n_draws as f64 / n as f64;
            let chi2: f64 = count.iter().map(|c| (c - expected).powi(2) / expected).sum();
            assert!(chi2 < 4.0 * n as f64 + 20.0, "n = {n}: chi2 {chi2}");
        }
    }

    /// With n = 3 * 2^30 a plain multiply-shift lands on multiples of 3 twice as often.
    #[test]
    fn bounded_integers_have_no_bias_near_the_word_size() {
        for n in [3u64 << 30, 3u64 << 62] {
            let n_draws = 30_000u64;
            let mut count = [0f64; 3];
            for a in 0..n_draws {
                count[(stream().draws(a, 1, 0).below(n) % 3) as usize] += 1.0;
            }
            for c in count {
                assert!((c - 10_000.0).abs() < 500.0, "n = {n}: {count:?}");
            }
        }
    }

    #[test]
    fn bounds_hold_at_the_edges() {
        for n in [1, u64::from(u32::MAX), 1 << 32, (1 << 32) + 1, u64::MAX] {
            for a in 0..1000 {
                assert!(stream().draws(a, 2, 0).below(n) < n);
            }
        }
    }

    #[test]
    fn normal_numbers_have_their_moments() {
        let mut draws = stream().draws(0, 3, 0);
        let n = 100_000;
        let values: Vec<f64> = (0..n).map(|_| draws.normal()).collect();
        let mean = values.iter().sum::<f64>() / f64::from(n);
        let moment = |power: i32| values.iter().map(|v| v.powi(power)).sum::<f64>() / f64::from(n);
        assert!(mean.abs() < 0.02, "mean {mean}");
        assert!((moment(2) - 1.0).abs() < 0.03, "variance {}", moment(2));
        assert!((moment(4) - 3.0).abs() < 0.2, "fourth moment {}", moment(4));
    }

    #[test]
    #[should_panic(expected = "nothing to draw from")]
    fn an_empty_range_is_refused() {
        stream().draws(0, 0, 0).below(0);
    }
}
