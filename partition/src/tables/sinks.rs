//! Sinks for edges. Edges without weights come with weight 1.

use crate::{Result, tables::files::Trouble};

/// Takes edges whose ends are numbers.
pub(super) trait NumberSink: Send {
    fn edge(&mut self, source: u64, destination: u64, weight: f32) -> Result<(), Trouble>;
}

/// Takes edges whose ends are texts.
pub(super) trait TextSink: Send {
    fn edge(&mut self, source: &str, destination: &str, weight: f32) -> Result<(), Trouble>;
}
