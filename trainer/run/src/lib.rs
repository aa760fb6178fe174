//! Definition of a run, without tensors: run file, presets and config, the recipe that chooses a model, step records
//! and the report. `kith` needs only this crate to start, watch and report runs.

pub mod checkpoint;
pub mod choice;
pub mod clock;
pub mod config;
pub mod exit_code;
mod fanouts;
pub mod file_error;
pub mod files;
pub mod graph_size;
pub mod measured;
pub mod memory_plan;
pub mod model_kind;
mod near;
pub mod phase;
pub mod prediction;
pub mod preset;
pub mod rank_tls;
pub mod recipe;
pub mod report;
pub mod run_file;
pub mod seal;
pub mod search;
pub mod slices;
mod step_spans;
pub mod stop;
