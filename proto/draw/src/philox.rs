//! Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

pub(crate) const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
pub(crate) const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
pub(crate) const N_ROUNDS: usize = 10;

/// The four words that belong to one counter under one key. For a fixed key this is a bijection of counters.
#[inline]
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..N_ROUNDS {
        let even = u64::from(counter[0]) * u64::from(MULTIPLIERS[0]);
        let odd = u64::from(counter[2]) * u64::from(MULTIPLIERS[1]);
        counter = [
            (odd >> 32) as u32 ^ counter[1] ^ key[0],
            odd as u32,
            (even >> 32) as u32 ^ counter[3] ^ key[1],
            even as u32,
        ];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

/// The words of `N` counters at once, word by word: what [`philox4x32`] gives for each, in a form that compilers turn
/// into vector instructions.
#[inline(always)]
pub fn philox4x32_lanes<const N: usize>(mut counters: [[u32; N]; 4], mut key: [u32; 2]) -> [[u32; N]; 4] {
    for _ in 0..N_ROUNDS {
        // Written out as one loop: closures may stay calls, which no compiler makes wide.
        let mut lane = 0;
        while lane < N {
            let even = counters[0][lane] as u64 * MULTIPLIERS[0] as u64;
            let odd = counters[2][lane] as u64 * MULTIPLIERS[1] as u64;
            counters[0][lane] = (odd >> 32) as u32 ^ counters[1][lane] ^ key[0];
            counters[1][lane] = odd as u32;
            counters[2][lane] = (even >> 32) as u32 ^ counters[3][lane] ^ key[1];
            counters[3][lane] = even as u32;
            lane += 1;
        }
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_give_the_words_of_each_counter() {
        let counters: [[u32; 5]; 4] = std::array::from_fn(|word| {
            std::array::from_fn(|lane| 0x9876_5431u32.wrapping_mul((7 * word + lane) as u32))
        });
        let words = philox4x32_lanes(counters, [3, 0xffff_fff0]);
        for lane in 0..5 {
            let alone = philox4x32(counters.map(|word| word[lane]), [3, 0xffff_fff0]);
            assert_eq!(words.map(|word| word[lane]), alone);
        }
    }

    /// The vectors published with Random123 (`kat_vectors`, philox4x32, 10 rounds).
    #[test]
    fn gives_the_published_words() {
        let vectors = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, words) in vectors {
            assert_eq!(philox4x32(counter, key), words);
        }
    }
}
