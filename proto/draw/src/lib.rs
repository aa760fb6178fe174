//! Named draws: everything random in Kith is a pure function of a name.
//!
//! A name is (seed of the run; [`Purpose`]; step; layer or hop; a; b; attempt). It holds no thread, rank, shard or
//! time, so the draws do not depend on how the work is distributed. Only integer arithmetic decides a draw, and for
//! weighted draws the four operations on doubles, which are as exact.
//!
//! ```
//! use kith_draw::{Name, Purpose};
//!
//! let stream = Name { run_key: 42, purpose: Purpose::Neighbor, step: 7, layer: 0 }.stream();
//! let slot = stream.draws(1_000_003, 0, 0).below(17); // the neighbor, of 17, that node 1,000,003 draws
//! assert_eq!(slot, stream.draws(1_000_003, 0, 0).below(17));
//! ```

mod cuda;
mod draws;
mod elementary;
mod exponential;
mod instruction_set;
mod name;
mod normal;
mod permutation;
mod philox;
mod vectorized;

pub use crate::{
    cuda::cuda_header,
    draws::Draws,
    elementary::{exp, ln, ln_1p, sin_cos},
    exponential::{N_EXPONENTIALS, exponential_of, exponentials, uniforms},
    instruction_set::{InstructionSet, arithmetic, instruction_set},
    name::{Name, Purpose, Stream},
    permutation::Permutation,
    philox::{philox4x32, philox4x32_lanes},
    vectorized::{Vectorized, prefetch, vectorized},
};
