//! What a run is, without tensors: its run file, presets and config, the recipe that chooses a model, and what is written of
//! a run while it goes and at its end. `kith` needs no more than this to start, watch and report runs.

pub mod choice;
pub mod clock;
pub mod config;
pub mod exit_code;
pub mod file_error;
pub mod files;
pub mod measured;
pub mod model_kind;
mod near;
pub mod phase;
pub mod prediction;
pub mod preset;
pub mod rank_tls;
pub mod recipe;
pub mod report;
pub mod run_file;
pub mod search;
pub mod stop;
