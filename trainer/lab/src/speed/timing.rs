//! The speed of a case.

/// Time and memory of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Of a step, or of all epochs.
    pub milliseconds: f64,
    /// Of a measurement of all runs; zero where it is in the time of the epochs.
    pub measure_milliseconds: f64,
    /// Bytes on the GPU.
    pub memory_bytes: u64,
}
