//! Limits of a server that were reached.

use std::{error::Error, fmt, sync::Arc};

use prometheus_client::metrics::{counter::Counter, family::Family};
use tonic::Status;

/// A limit, by the option that sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    MaxConnections,
    MaxPerAddress,
    RequestMemory,
    MaxMessage,
    MaxFrontier,
    MaxFanout,
    MaxCall,
}

impl Limit {
    const ALL: [Limit; 7] = [
        Limit::MaxConnections,
        Limit::MaxPerAddress,
        Limit::RequestMemory,
        Limit::MaxMessage,
        Limit::MaxFrontier,
        Limit::MaxFanout,
        Limit::MaxCall,
    ];

    /// Name of the option.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Limit::MaxConnections => "max-connections",
            Limit::MaxPerAddress => "max-per-address",
            Limit::RequestMemory => "request-memory",
            Limit::MaxMessage => "max-message",
            Limit::MaxFrontier => "max-frontier",
            Limit::MaxFanout => "max-fanout",
            Limit::MaxCall => "max-call",
        }
    }

    /// The status of a call that reached this limit.
    pub(crate) fn status(self, mut status: Status) -> Status {
        status.set_source(Arc::new(ByLimit(self)));
        status
    }

    /// The limit that a call reached, if its status is due to one.
    pub(crate) fn of(status: &Status) -> Option<Limit> {
        status.source()?.downcast_ref::<ByLimit>().map(|by| by.0)
    }
}

/// Source of a status that is due to a limit.
#[derive(Debug)]
struct ByLimit(Limit);

impl fmt::Display for ByLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{}", self.0.name())
    }
}

impl Error for ByLimit {}

/// Counts of the times that each limit was reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitCounts([Counter; Limit::ALL.len()]);

impl LimitCounts {
    /// All of them, as members of a family of metrics.
    pub(crate) fn new(family: &Family<[(&'static str, &'static str); 1], Counter>) -> LimitCounts {
        LimitCounts(Limit::ALL.map(|limit| family.get_or_create_owned(&[("limit", limit.name())])))
    }

    pub(crate) fn reached(&self, limit: Limit) {
        self.0[limit as usize].inc();
    }

    #[cfg(test)]
    pub(crate) fn of(&self, limit: Limit) -> u64 {
        self.0[limit as usize].get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_knows_its_limit() {
        for limit in Limit::ALL {
            let status = limit.status(Status::resource_exhausted("too much"));
            assert_eq!((Limit::of(&status), status.message()), (Some(limit), "too much"));
        }
        assert_eq!(Limit::of(&Status::resource_exhausted("too much")), None);
    }
}
