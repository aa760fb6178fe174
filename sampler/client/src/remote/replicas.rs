//! Servers of the same shards. All of them answer a question alike, so it does not matter which is asked.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use kith_proto::Call;
use tokio::time::Instant;

use crate::remote::{
    answers::Read,
    error::RemoteProblem,
    transport::{Asked, Transport},
};

/// Ways to several servers, of which one is used until it fails.
#[derive(Debug)]
pub(crate) struct Replicas {
    ways: Vec<Arc<dyn Transport>>,
    /// Counts on: which way it is, is the rest of dividing by their number.
    turn: AtomicUsize,
}

impl Replicas {
    /// `first` is the way that is used first.
    pub(crate) fn new(ways: Vec<Arc<dyn Transport>>, first: usize) -> Replicas {
        Replicas { ways, turn: AtomicUsize::new(first) }
    }

    async fn ask_one(
        &self,
        call: Call,
        request: Bytes,
        answer: &mut (dyn Read + Send),
        deadline: Instant,
    ) -> Result<(), RemoteProblem> {
        let turn = self.turn.load(Ordering::Relaxed);
        let leaving = Leaving { replicas: self, turn };
        let asked = self.ways[turn % self.ways.len()].ask(call, request, answer, deadline).await;
        if !asked.as_ref().is_err_and(RemoteProblem::may_pass) {
            mem::forget(leaving);
        }
        asked
    }
}

/// Goes on to the next way, also where nobody waits for the answer any more. Of many calls that fail together, one does.
struct Leaving<'a> {
    replicas: &'a Replicas,
    turn: usize,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let next = self.turn.wrapping_add(1);
        let _ = self.replicas.turn.compare_exchange(self.turn, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Transport for Replicas {
    fn ask<'a>(
        &'a self,
        call: Call,
        request: Bytes,
        answer: &'a mut (dyn Read + Send),
        deadline: Instant,
    ) -> Asked<'a> {
        Box::pin(self.ask_one(call, request, answer, deadline))
    }
}
