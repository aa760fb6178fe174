//! Runs a loop with the widest instructions of this machine. One of the homes of `unsafe`.
//!
//! A loop is written once, on [`Lanes`], and compiled once per instruction set. Every product and sum is spelled out
//! lane by lane and fused multiply-adds are exact everywhere, so each set gives the same bits.
#![allow(unsafe_code)]

mod lanes;

use std::sync::OnceLock;

pub(crate) use lanes::{Lanes, N_LANES, exp, lanes, softplus};

// SAFETY: lanes are numbers and nothing else: 64 bytes, no padding, every pattern of bits a value.
unsafe impl bytemuck::Zeroable for Lanes {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Lanes {}

/// A loop over lanes. `run` must be `#[inline(always)]`, and so must everything it calls in its innermost loops: only
/// what is inlined into the functions below is compiled with their instructions.
pub(crate) trait Vectorized {
    type Output;
    fn run(self) -> Self::Output;
}

/// Runs the loop with the widest instructions there are.
#[inline]
pub(crate) fn vectorized<V: Vectorized>(work: V) -> V::Output {
    match width() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `width` has found these instructions on this machine.
        Width::Avx512 => unsafe { run_avx512(work) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Width::Avx2 => unsafe { run_avx2(work) },
        Width::Any => work.run(),
    }
}

#[derive(Clone, Copy)]
enum Width {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Any,
}

fn width() -> Width {
    static WIDTH: OnceLock<Width> = OnceLock::new();
    *WIDTH.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let has_avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq");
            // The names are those that libtorch's own switch takes.
            let asked = std::env::var("ATEN_CPU_CAPABILITY").unwrap_or_default();
            match asked.as_str() {
                "default" => {}
                "avx2" if has_avx2 => return Width::Avx2,
                _ if has_avx2 && has_avx512 => return Width::Avx512,
                _ if has_avx2 => return Width::Avx2,
                _ => {}
            }
        }
        Width::Any
    })
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

/// Asks for lanes that will be read soon; changes nothing but the time.
#[inline(always)]
pub(crate) fn prefetch(row: &[Lanes]) {
    #[cfg(target_arch = "x86_64")]
    for lanes in row {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of a live reference reads nothing and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(lanes).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}
