//! Files of runs, and messages between ranks.

pub(crate) mod checkpoint;
pub(crate) mod messages;
pub(crate) mod pieces;
pub(crate) mod report;
pub(crate) mod run_file;
