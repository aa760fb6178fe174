//! Files of runs.

pub(crate) mod report;
pub(crate) mod run_file;
