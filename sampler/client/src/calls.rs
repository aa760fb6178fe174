//! Counts of calls to the servers of a graph.

use std::sync::Arc;

use kith_proto::Call;

use crate::remote::{HedgeCounts, RemoteCounts, RemoteSampler};

/// Calls to the servers of a graph, as metrics show them. Does not hold the graph.
#[derive(Clone, Debug)]
pub struct RemoteCalls(Vec<Arc<RemoteSampler>>);

impl RemoteCalls {
    /// Each server once.
    pub(crate) fn new<'s>(servers: impl Iterator<Item = &'s Arc<RemoteSampler>>) -> RemoteCalls {
        let mut each: Vec<Arc<RemoteSampler>> = Vec::new();
        for server in servers {
            if !each.iter().any(|other| Arc::ptr_eq(other, server)) {
                each.push(Arc::clone(server));
            }
        }
        RemoteCalls(each)
    }

    /// Counts of a call, of all servers together.
    pub fn counts(&self, call: Call) -> RemoteCounts {
        let mut counts = RemoteCounts::default();
        self.0.iter().for_each(|server| counts += server.counts(call));
        counts
    }

    /// Counts of hedged calls, of all servers together.
    pub fn hedges(&self) -> HedgeCounts {
        self.0.iter().map(|server| server.hedge_counts()).fold(HedgeCounts::default(), HedgeCounts::plus)
    }
}
