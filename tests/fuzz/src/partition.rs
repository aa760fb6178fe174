//! Readers of stores, of raw formats, of tables and of archives.

pub(crate) mod archives;
pub(crate) mod arrays;
pub(crate) mod column;
pub(crate) mod html;
pub(crate) mod lines;
pub(crate) mod listing;
pub(crate) mod manifest;
pub(crate) mod npz;
pub(crate) mod pickle;
pub(crate) mod tables;

/// The most that a file may unpack to.
const LIMIT_BYTES: u64 = 1 << 20;
