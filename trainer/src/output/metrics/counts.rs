//! Counts of a rank, from which its metrics are made.

use std::{sync::Arc, time::Instant};

use kith_client::{RemoteCalls, RowCounts};
use kith_run::{
    clock::{CurrentPhase, Phases},
    measured::Measured,
};

use crate::distributed::world::Heartbeats;

/// Counts of a rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) loss: f64,
    pub(super) n_seeds: u64,
    pub(super) rows: RowCounts,
    pub(super) phases: Phases,
    pub(super) measured: Option<Measured>,
    /// The phase of the run that is trained now.
    pub(super) current: Option<Arc<CurrentPhase>>,
    /// Time and step of the last checkpoint that is written; of the start, before the first. Only of a rank that writes some.
    pub(super) saved: Option<(Instant, u64)>,
    /// Heartbeats of other ranks.
    pub(super) heartbeats: Heartbeats,
    /// Calls to sampling servers, of a graph that may have some.
    pub(super) calls: Option<RemoteCalls>,
}
