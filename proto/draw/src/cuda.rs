//! CUDA C++ source of the draws. Its constants are generated from the Rust ones, and tests compare the words of both.

use std::f64::consts::{LN_2, SQRT_2};

use crate::{
    name::Purpose,
    permutation,
    philox::{KEY_STEPS, MULTIPLIERS, N_ROUNDS},
};

/// Source text that defines the draws of this package for kernels. Parts of names and bounds are below 2^32 there: a
/// device holds no larger graph.
pub fn cuda_header() -> String {
    let purposes = [
        ("NEGATIVE", Purpose::Negative),
        ("PAIR_SUBSET", Purpose::PairSubset),
        ("INPUT_DROPOUT", Purpose::InputDropout),
        ("HIDDEN_DROPOUT", Purpose::HiddenDropout),
        ("ATTENTION_DROPOUT", Purpose::AttentionDropout),
        ("EDGE_DROPOUT", Purpose::EdgeDropout),
        ("NEIGHBOR", Purpose::Neighbor),
        ("WEIGHTED_NEIGHBOR", Purpose::WeightedNeighbor),
    ];
    let mut text = String::new();
    let mut define = |name: &str, value: u64| text.push_str(&format!("#define KITH_{name} {value}u\n"));
    purposes.iter().for_each(|(name, purpose)| define(name, *purpose as u64));
    define("PHILOX_MULTIPLIER_0", MULTIPLIERS[0].into());
    define("PHILOX_MULTIPLIER_1", MULTIPLIERS[1].into());
    define("PHILOX_KEY_STEP_0", KEY_STEPS[0].into());
    define("PHILOX_KEY_STEP_1", KEY_STEPS[1].into());
    define("PHILOX_ROUNDS", N_ROUNDS as u64);
    define("PERMUTATION_ROUNDS", permutation::N_ROUNDS as u64);
    for (name, value) in [("SQRT_2_BITS", SQRT_2), ("LN_2_BITS", LN_2)] {
        text.push_str(&format!("#define KITH_{name} {}ull\n", value.to_bits()));
    }
    text + include_str!("draw.cuh")
}
