//! Timing of a benchmark.

/// Time and memory of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Time of one step, or of all epochs.
    pub milliseconds: f64,
    /// Time of one evaluation of all runs; zero if it was not timed on its own.
    pub measure_milliseconds: f64,
    /// GPU memory, in bytes.
    pub memory_bytes: u64,
}
