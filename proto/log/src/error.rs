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
    /// An unknown format.
    #[error("KITH_LOG_FORMAT: expected text or json, found {found}")]
    Format {
        /// The value of the variable.
        found: String,
    },
    /// A collector that gets no spans.
    #[error("{given_by}: expected an address such as http://localhost:4317, found {found}: {problem}")]
    Collector {
        /// The option or the variable.
        given_by: &'static str,
        /// The address.
        found: String,
        /// The problem.
        problem: String,
    },
}
