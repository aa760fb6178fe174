//! `kith train`: arguments. `kith-trainer` runs it.

mod args;
mod choose;
mod ranks;
mod starts;

pub use self::{
    args::{Args, SettingArgs, run_keys},
    choose::{NOTHING, Named, Typed, apply, config_without_graph, find, named, run_file, typed},
    ranks::RankArgs,
    starts::count as count_start,
};
