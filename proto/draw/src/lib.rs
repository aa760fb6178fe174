//! Named draws: everything random in Kith is a pure function of a name.
//!
//! A name is (run key; [`Purpose`]; step; layer or hop; a; b; attempt). No name holds a thread, a rank, a shard or
//! a time, so the same draws come out of any number of them. Only integer arithmetic decides a draw.
//!
//! ```
//! use kith_draw::{Name, Purpose};
//!
//! let stream = Name { run_key: 42, purpose: Purpose::Neighbor, step: 7, layer: 0 }.stream();
//! let slot = stream.draws(1_000_003, 0, 0).below(17); // what node 1,000,003 draws from its 17 neighbors
//! assert_eq!(slot, stream.draws(1_000_003, 0, 0).below(17));
//! ```

mod cuda;
mod draws;
mod elementary;
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
    instruction_set::{InstructionSet, instruction_set},
    name::{Name, Purpose, Stream},
    permutation::Permutation,
    philox::{philox4x32, philox4x32_lanes},
    vectorized::{Vectorized, prefetch, vectorized},
};
