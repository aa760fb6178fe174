//! A call to one of several servers: its wait, and hedges of it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout_at};
use tracing::info;

use super::ways::{STALLED, Ways};
use crate::{
    remote::{
        error::RemoteProblem,
        hedge::{Buffer, Permit},
        progress::Progress,
        transport::{Attempt, Question},
    },
    session::session,
};

/// Multiple of the usual duration from which on a call is an outlier.
const OUTLIER: u32 = 4;

/// Longest time between two looks at whether a hedge may begin.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A call to a server while it is waited for.
#[derive(Debug)]
pub(super) struct Wait<'a> {
    pub(super) ways: &'a Arc<Ways>,
    pub(super) turn: usize,
    pub(super) question: &'a Question,
    pub(super) usual: Duration,
    pub(super) started: Instant,
    pub(super) max_bytes: u64,
    pub(super) progress: &'a Progress,
}

impl<'a> Wait<'a> {
    /// Waits for an answer as long as is usual, and on until a hedge may begin; longer after each hedge.
    pub(super) async fn patience(&self, first: &mut Attempt<'_>, n_hedges: usize) -> Hedged<'a> {
        let Wait { ways, turn, usual, started, .. } = *self;
        if ways.ways.len() == 1 {
            return Hedged::No(first.await);
        }
        let mut until = match n_hedges {
            0 => started + usual,
            n => Instant::now() + LOOK_EVERY * n as u32,
        };
        let (mut look_in, mut n_received, mut moved) =
            (usual.min(LOOK_EVERY), self.progress.n_received(), started + usual);
        loop {
            if let Ok(asked) = timeout_at(until, &mut *first).await {
                return Hedged::No(asked);
            }
            let now = Instant::now();
            if self.progress.n_received() != n_received {
                (n_received, moved) = (self.progress.n_received(), now);
            }
            let is_outlier = now - started >= usual.saturating_mul(OUTLIER);
            let is_fast = ways.others(turn).iter().any(|other| !ways.way(*other).is_slow());
            let mut permit = None;
            if is_fast && (is_outlier || ways.budget.has_plenty()) {
                permit = ways.budget.take();
            }
            if now.saturating_duration_since(moved) >= STALLED {
                permit = permit.or_else(|| ways.budget.rescue());
            }
            if let Some(permit) = permit {
                return Hedged::Yes(permit);
            }
            // Slow servers may be fast by the next look.
            ways.probe(self.question, self.max_bytes);
            until = now + look_in;
            look_in = (2 * look_in).min(LOOK_EVERY);
        }
    }

    /// Asks another server too, until one of both has answered or the hedge stalls as well.
    pub(super) async fn hedge(&self, first: &mut Attempt<'_>, n_hedges: usize, buffer: &mut Buffer) -> Raced {
        let Wait { ways, turn, question, usual, progress, .. } = *self;
        let others = ways.others(turn);
        let other = &ways.way(others[n_hedges % others.len()]).transport;
        info!(
            server = ways.way(turn).transport.address(),
            other = other.address(),
            call = question.call.name(),
            session = session(),
            "a call is slow: asking another server too"
        );
        let mut second = other.ask(question, buffer, progress);
        let problem = tokio::select! {
            biased;
            asked = first => match asked {
                Err(problem) if problem.may_pass() || problem.is_damage() => problem,
                asked => return Raced::First(asked),
            },
            asked = &mut second => return if asked.is_ok() { Raced::Second } else { Raced::Failed },
            () = stall(usual + STALLED, progress), if others.len() > 1 => return Raced::Stalled,
        };
        // The other one has begun already.
        ways.leave(turn);
        tokio::select! {
            biased;
            asked = second => if asked.is_ok() { Raced::Second } else { Raced::First(Err(problem)) },
            () = stall(usual + STALLED, progress) => Raced::First(Err(problem)),
        }
    }

    /// Records that the server's own answer came first: in the usual time, or before that of a hedge.
    pub(super) fn answered(&self, is_hedged: bool) {
        let took = self.started.elapsed();
        if is_hedged || took <= self.usual {
            self.ways.way(self.turn).n_lost.store(0, Ordering::Relaxed);
        }
        self.ways.usual.took(self.question, took);
    }
}

/// An answer that came before a hedge might begin, or permission to hedge.
pub(super) enum Hedged<'a> {
    No(Result<(), RemoteProblem>),
    Yes(Permit<'a>),
}

/// The end of a hedge.
pub(super) enum Raced {
    /// The first server's answer, or the error to try again after.
    First(Result<(), RemoteProblem>),
    /// The other server answered.
    Second,
    /// The other server failed, or its answer is too long to keep.
    Failed,
    /// Neither server sent a byte for a while.
    Stalled,
}

/// Waits until no byte comes for this long.
async fn stall(limit: Duration, progress: &Progress) {
    loop {
        let n_received = progress.n_received();
        sleep(limit).await;
        if progress.n_received() == n_received {
            return;
        }
    }
}
