//! Memory limits of inference.

use std::path::PathBuf;

/// Memory limits.
#[derive(Clone, Debug)]
pub struct Room {
    /// Bytes of one layer's products that stay in memory; more go to a file. `None`: all stay.
    pub memory: Option<u64>,
    /// Folder of such files; `None`: the system's temporary folder.
    pub scratch: Option<PathBuf>,
    /// Nodes that are taken at a time.
    pub n_together: u64,
    /// Neighbors of one node that are taken at a time; a longer neighbor list comes in pieces of about this length.
    pub n_neighbors: u64,
}

impl Default for Room {
    fn default() -> Room {
        Room { memory: None, scratch: None, n_together: 1 << 17, n_neighbors: 1 << 20 }
    }
}
