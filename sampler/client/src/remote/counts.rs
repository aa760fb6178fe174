//! Counts of requests and bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use kith_proto::Call;

/// Requests of a client to one server so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteCounts {
    /// Attempts of calls.
    pub requests: u64,
    /// Of these, those that did not end well.
    pub errors: u64,
    /// Of these, those after which the call was attempted again.
    pub retries: u64,
    /// Bytes of requests.
    pub sent_bytes: u64,
    /// Bytes of answers.
    pub received_bytes: u64,
}

impl std::ops::AddAssign for RemoteCounts {
    fn add_assign(&mut self, other: RemoteCounts) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.retries += other.retries;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
    }
}

/// Counters by call.
#[derive(Debug, Default)]
pub(crate) struct Counters([CallCounters; Call::ALL.len()]);

#[derive(Debug, Default)]
struct CallCounters {
    requests: AtomicU64,
    errors: AtomicU64,
    retries: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn sent(&self, call: Call, n_bytes: usize) {
        let of = &self.0[call as usize];
        of.requests.fetch_add(1, Ordering::Relaxed);
        of.sent_bytes.fetch_add(n_bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, call: Call, n_bytes: u64) {
        self.0[call as usize].received_bytes.fetch_add(n_bytes, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, call: Call) {
        self.0[call as usize].errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn tries_again(&self, call: Call) {
        self.0[call as usize].retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, call: Call) -> RemoteCounts {
        let CallCounters { requests, errors, retries, sent_bytes, received_bytes } = &self.0[call as usize];
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RemoteCounts {
            requests: number(requests),
            errors: number(errors),
            retries: number(retries),
            sent_bytes: number(sent_bytes),
            received_bytes: number(received_bytes),
        }
    }
}
