//! SIMD arithmetic on sixteen numbers at a time. Contains `unsafe` code.
//!
//! Every product and sum is written out lane by lane, so that all instruction sets give the same bits.
#![allow(unsafe_code)]

mod lanes;

pub(crate) use lanes::{Lanes, N_LANES, exp, lanes, softplus};

// SAFETY: lanes are numbers and nothing else: 64 bytes, no padding, every pattern of bits a value.
unsafe impl bytemuck::Zeroable for Lanes {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Lanes {}

/// Asks for rows that will be read soon.
#[inline(always)]
pub(crate) fn prefetch(row: &[Lanes]) {
    for lanes in row {
        kith_draw::prefetch(lanes);
    }
}
