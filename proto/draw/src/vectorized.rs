//! Runs a loop with the widest vector instructions of this machine. One of the files that may use `unsafe`.
//!
//! A loop is written once, over arrays of numbers, and compiled once per instruction set. Integer arithmetic and fused
//! multiply-adds are exact, so every instruction set gives the same bits.
#![allow(unsafe_code)]

use crate::instruction_set::{InstructionSet, instruction_set};

/// A loop over arrays. `run` must be `#[inline(always)]`, and so must everything it calls in its innermost loops: only
/// what is inlined into the functions below is compiled with their instructions.
pub trait Vectorized {
    /// Result of the loop.
    type Output;
    /// The loop.
    fn run(self) -> Self::Output;
}

/// Runs the loop with the widest instructions there are.
#[inline]
pub fn vectorized<V: Vectorized>(work: V) -> V::Output {
    match instruction_set() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `instruction_set` returns only instruction sets detected on this machine.
        InstructionSet::Avx512 => unsafe { run_avx512(work) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        InstructionSet::Avx2 => unsafe { run_avx2(work) },
        _ => work.run(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn run_avx512<V: Vectorized>(work: V) -> V::Output {
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<V: Vectorized>(work: V) -> V::Output {
    work.run()
}

/// Asks for memory that will be read soon; changes nothing but the time.
#[inline(always)]
pub fn prefetch<T>(item: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of a live reference reads nothing and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = item;
}
