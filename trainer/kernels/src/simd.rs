//! Sixteen numbers at a time. One of the homes of `unsafe`.
//!
//! Every product and sum is spelled out lane by lane, so that each instruction set gives the same bits.
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
