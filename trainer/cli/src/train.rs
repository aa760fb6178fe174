//! `kith train`: what can be typed. `kith-trainer` does it.

mod args;
mod choose;
mod ranks;
mod starts;

pub use self::{
    args::{Args, run_keys},
    choose::{Named, Typed, named, resolve, run_file, typed},
    ranks::RankArgs,
    starts::count as count_start,
};
