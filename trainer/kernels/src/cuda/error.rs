//! Errors of a GPU.

use std::fmt;

/// Error of a GPU, its driver or its compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuError {
    /// No room.
    NoMemory {
        /// Bytes that were asked for.
        asked: u64,
        /// Purpose of the memory.
        what: &'static str,
        /// Bytes that were free.
        free: u64,
    },
    /// The driver or a library of CUDA is missing.
    Missing(String),
    /// The GPU cannot compute this input: a sentence that says why.
    Refused(String),
    /// The kernels could not be compiled.
    Compile(String),
    /// The driver refused.
    Driver {
        /// Operation that failed.
        what: &'static str,
        /// Its own name for the error.
        error: String,
    },
}

impl fmt::Display for GpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuError::NoMemory { asked, what, free } => {
                let mib = |bytes: &u64| bytes.div_ceil(1 << 20);
                write!(f, "no room for {what} on the GPU: {} MiB are needed, {} MiB are free", mib(asked), mib(free))
            }
            GpuError::Missing(sentence) | GpuError::Refused(sentence) => write!(f, "{sentence}"),
            GpuError::Compile(log) => write!(f, "the kernels could not be compiled: {log}"),
            GpuError::Driver { what, error } => write!(f, "the GPU's driver could not {what}: {error}"),
        }
    }
}

impl std::error::Error for GpuError {}
