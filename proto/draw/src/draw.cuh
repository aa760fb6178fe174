// Named draws, as the Rust of this package makes them: see name.rs, draws.rs, permutation.rs.
typedef unsigned int u32;
typedef unsigned long long u64;

struct Words {
    u32 word[4];
};

/// All draws of one run key, purpose, step and layer.
struct Stream {
    u32 key[2];
};

__device__ __forceinline__ Words philox4x32(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
#pragma unroll
    for (int round = 0; round < KITH_PHILOX_ROUNDS; round++) {
        u64 even = (u64)c0 * KITH_PHILOX_MULTIPLIER_0;
        u64 odd = (u64)c2 * KITH_PHILOX_MULTIPLIER_1;
        c0 = (u32)(odd >> 32) ^ c1 ^ k0;
        c1 = (u32)odd;
        c2 = (u32)(even >> 32) ^ c3 ^ k1;
        c3 = (u32)even;
        k0 += KITH_PHILOX_KEY_STEP_0;
        k1 += KITH_PHILOX_KEY_STEP_1;
    }
    Words words = {{c0, c1, c2, c3}};
    return words;
}

__device__ __forceinline__ Stream stream_of(u64 run_key, u32 purpose, u64 step, u32 layer) {
    Words words = philox4x32(purpose, layer, (u32)step, (u32)(step >> 32), (u32)run_key, (u32)(run_key >> 32));
    Stream stream = {{words.word[0], words.word[1]}};
    return stream;
}

/// Four words of the sequence named (a, b, attempt).
__device__ __forceinline__ Words words_of(Stream stream, u64 a, u64 b, u32 attempt, u32 block) {
    return philox4x32(
        (u32)a, (u32)(a >> 32) | attempt << 16, (u32)b, (u32)(b >> 32) | block << 16, stream.key[0], stream.key[1]);
}

/// The numbers that belong to one name, in order.
struct Draws {
    Stream stream;
    u64 a, b;
    u32 attempt, n_words;
    Words words;
};

__device__ __forceinline__ Draws draws_of(Stream stream, u64 a, u64 b, u32 attempt) {
    Draws draws = {stream, a, b, attempt, 0, {{0, 0, 0, 0}}};
    return draws;
}

__device__ __forceinline__ u32 next_word(Draws *draws) {
    u32 place = draws->n_words % 4;
    if (place == 0) draws->words = words_of(draws->stream, draws->a, draws->b, draws->attempt, draws->n_words / 4);
    draws->n_words++;
    // Selected, not indexed: an index would put the words into memory.
    u32 low = place == 0 ? draws->words.word[0] : draws->words.word[1];
    u32 high = place == 2 ? draws->words.word[2] : draws->words.word[3];
    return place < 2 ? low : high;
}

/// Uniform in 0..n, without bias.
__device__ __forceinline__ u32 below(Draws *draws, u32 n) {
    u64 product = (u64)next_word(draws) * n;
    if ((u32)product < n) {
        u32 n_biased = (0u - n) % n; // 2^32 mod n
        while ((u32)product < n_biased) product = (u64)next_word(draws) * n;
    }
    return (u32)(product >> 32);
}

/// Sum of terms[k] * x^k, terms added in pairs, pairs in pairs and so on: as in elementary.rs, without contraction.
__device__ __forceinline__ double atanh_series(double x) {
    const double inverse[12] = {1.0,        1.0 / 3.0,  1.0 / 5.0,  1.0 / 7.0,  1.0 / 9.0,  1.0 / 11.0,
                                1.0 / 13.0, 1.0 / 15.0, 1.0 / 17.0, 1.0 / 19.0, 1.0 / 21.0, 1.0 / 23.0};
    double terms[16];
#pragma unroll
    for (int k = 0; k < 16; k++) terms[k] = k < 12 ? inverse[k] : 0.0;
    double power = x;
#pragma unroll
    for (int n_sums = 8; n_sums > 0; n_sums /= 2) {
#pragma unroll
        for (int k = 0; k < n_sums; k++) terms[k] = __dadd_rn(terms[2 * k], __dmul_rn(terms[2 * k + 1], power));
        power = __dmul_rn(power, power);
    }
    return terms[0];
}

/// Natural logarithm of a normal positive number: the bits of `ln` in elementary.rs.
__device__ __forceinline__ double exact_ln(double x) {
    const u64 MANTISSA = (1ull << 52) - 1;
    u64 bits = (u64)__double_as_longlong(x);
    u64 is_high = (bits & MANTISSA) > (KITH_SQRT_2_BITS & MANTISSA) ? 1 : 0;
    int exponent = (int)((bits >> 52 & 0x7ff) + is_high) - 1023;
    double mantissa = __longlong_as_double((long long)((bits & MANTISSA) | (1023 - is_high) << 52));
    double t = __ddiv_rn(__dadd_rn(mantissa, -1.0), __dadd_rn(mantissa, 1.0));
    double twice_atanh = __dmul_rn(__dmul_rn(2.0, t), atanh_series(__dmul_rn(t, t)));
    return __dadd_rn(__dmul_rn((double)exponent, __longlong_as_double((long long)KITH_LN_2_BITS)), twice_atanh);
}

/// The exponential number of mean 1 that is named (a, b): see exponential.rs.
__device__ __forceinline__ double exponential_of(Stream stream, u64 a, u64 b) {
    Words words = words_of(stream, a, b / 2, 0, 0);
    u32 low = b % 2 == 0 ? words.word[0] : words.word[2], high = b % 2 == 0 ? words.word[1] : words.word[3];
    u64 bits = 1023ull << 52 | (u64)high << 20 | (u64)low >> 12;
    double uniform = __dadd_rn(__dadd_rn(__longlong_as_double((long long)bits), -1.0), 1.1102230246251565e-16);
    return -exact_ln(uniform);
}

/// A keyed permutation of 0..n.
struct Permutation {
    u64 n;
    u32 n_left, n_right;
    u64 round_keys[KITH_PERMUTATION_ROUNDS];
};

__device__ inline Permutation permutation_of(Stream stream, u64 a, u64 n) {
    Permutation permutation;
    u64 root = (u64)sqrt((double)n);
    while (root * root > n) root--;
    while ((root + 1) * (root + 1) <= n) root++;
    permutation.n = n;
    permutation.n_left = (u32)(root > 1 ? root : 1);
    permutation.n_right = (u32)((n + permutation.n_left - 1) / permutation.n_left);
    Draws draws = draws_of(stream, a, 0, 0);
    for (int round = 0; round < KITH_PERMUTATION_ROUNDS; round++) {
        u64 low = next_word(&draws);
        permutation.round_keys[round] = low | (u64)next_word(&draws) << 32;
    }
    return permutation;
}

__device__ __forceinline__ u32 mix(u32 half, u64 key, u32 n) {
    u64 product = ((u64)half ^ key) * 0x9E3779B97F4A7C15ull;
    u64 folded = (product ^ product >> 32) * 0xD6E8FEB86659FD93ull;
    return (u32)(((folded >> 32) * n) >> 32);
}

__device__ __forceinline__ u32 minus_within(u32 half, u32 shift, u32 n) {
    return half >= shift ? half - shift : half + n - shift;
}

/// Where `place` comes from.
__device__ inline u64 inverse_of(const Permutation *permutation, u64 place) {
    u32 n_left = permutation->n_left, n_right = permutation->n_right;
    do {
        u32 left = (u32)(place / n_right), right = (u32)(place % n_right);
        for (int round = KITH_PERMUTATION_ROUNDS - 2; round >= 0; round -= 2) {
            right = minus_within(right, mix(left, permutation->round_keys[round + 1], n_right), n_right);
            left = minus_within(left, mix(right, permutation->round_keys[round], n_left), n_left);
        }
        place = (u64)left * n_right + right;
    } while (place >= permutation->n);
    return place;
}
