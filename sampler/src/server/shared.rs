//! State shared by all calls.

use std::sync::{Arc, atomic::AtomicBool};

use crate::server::{access::Access, config::Checksums, metrics::Metrics, served::Served, tools::Tools, work::Work};

/// State shared by all calls.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) served: Arc<Served>,
    pub(crate) work: Work,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) access: Access,
    pub(crate) tools: Tools,
    pub(crate) is_draining: AtomicBool,
    pub(crate) checksums: Checksums,
}
