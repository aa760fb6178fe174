//! Errors of a log that cannot be started.

/// Error of a log that cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Levels that cannot be read.
    #[error("KITH_LOG: expected levels, as in info or warn,kith_client=debug, found {found}: {problem}")]
    Levels {
        /// The value of the variable.
        found: String,
        /// The problem.
        problem: String,
    },
    /// A format that there is not.
    #[error("KITH_LOG_FORMAT: expected text or json, found {found}")]
    Format {
        /// The value of the variable.
        found: String,
    },
    /// A collector that gets no spans.
    #[error("--otlp: expected an address such as http://localhost:4317, found {found}: {problem}")]
    Collector {
        /// The address.
        found: String,
        /// The problem.
        problem: String,
    },
}
