//! Damaged copies of files, for tests of their readers: every flipped bit, every truncation, and drawn mutations.

mod every;
mod mutation;
mod scratch;

pub use crate::{
    every::{Bits, Outcomes, check_bytes, check_file},
    mutation::{each_mutation, mutate},
    scratch::scratch,
};
