//! Ways to replicas: which one is used, and which are slow.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::{
    remote::{
        hedge::{Budget, Discarded, HedgeCounts},
        progress::Progress,
        transport::{Question, Transport},
        usual::Usual,
    },
    session::session,
};

/// Hedges that a server may lose in a row.
const MAX_LOST: u32 = 3;

/// The time between two probes of a slow server.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The shortest wait before a hedge: timers tick in milliseconds.
pub(super) const MIN_PATIENCE: Duration = Duration::from_millis(1);

/// Time without a byte, beyond the usual duration, after which a call is stalled: it is hedged beyond the budget, and also to slow servers.
pub(super) const STALLED: Duration = Duration::from_secs(1);

/// Ways to several servers, and what is known of their speed.
#[derive(Debug)]
pub(super) struct Ways {
    pub(super) ways: Vec<Way>,
    /// The way that is used first, and again when it is fast again.
    home: usize,
    /// Counter; the current way is `turn % ways.len()`.
    turn: AtomicUsize,
    pub(super) usual: Usual,
    pub(super) budget: Budget,
    started: Instant,
    n_left: AtomicU64,
    n_probes: AtomicU64,
}

/// A way to a server.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) transport: Arc<dyn Transport>,
    /// Hedges lost in a row.
    pub(super) n_lost: AtomicU32,
    is_slow: AtomicBool,
    /// Milliseconds from the start to the next probe, while it is slow.
    next_probe: AtomicU64,
}

impl Way {
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }
}

impl Ways {
    /// `first` is the way that is used first.
    pub(super) fn new(ways: Vec<Arc<dyn Transport>>, first: usize) -> Ways {
        let way = |transport| {
            let (n_lost, is_slow, next_probe) = (AtomicU32::new(0), AtomicBool::new(false), AtomicU64::new(0));
            Way { transport, n_lost, is_slow, next_probe }
        };
        let (home, turn) = (first % ways.len(), AtomicUsize::new(first));
        let [n_left, n_probes] = [const { AtomicU64::new(0) }; 2];
        let (usual, budget, started) = (Usual::new(), Budget::new(), Instant::now());
        let ways = ways.into_iter().map(way).collect();
        Ways { ways, home, turn, usual, budget, started, n_left, n_probes }
    }

    pub(super) fn counts(&self) -> HedgeCounts {
        let Ways { budget, n_left, n_probes, .. } = self;
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (calls, hedges, rescues) = (number(&budget.n_calls), number(&budget.n_hedges), number(&budget.n_rescues));
        let [won, left, probes] = [&budget.n_won, n_left, n_probes].map(number);
        HedgeCounts { calls, hedges, rescues, won, left, probes }
    }

    pub(super) fn way(&self, turn: usize) -> &Way {
        &self.ways[turn % self.ways.len()]
    }

    /// The turn, or the first after it that is not one of a damaged server: other calls may have gone back to that one.
    pub(super) fn turn_to_whole(&self, is_damaged: &[bool]) -> usize {
        let turn = self.turn.load(Ordering::Relaxed);
        let mut turns = (0..is_damaged.len()).map(|n| turn.wrapping_add(n));
        turns.find(|turn| !is_damaged[turn % is_damaged.len()]).unwrap_or(turn)
    }

    /// Turns of the other servers, slow ones last.
    pub(super) fn others(&self, turn: usize) -> Vec<usize> {
        let mut others: Vec<usize> = (1..self.ways.len()).map(|n| turn.wrapping_add(n)).collect();
        others.sort_by_key(|turn| self.way(*turn).is_slow());
        others
    }

    /// Goes on to the next way. Of many calls that fail together, one does.
    pub(super) fn leave(&self, turn: usize) {
        if let Some(next) = self.others(turn).first() {
            let _ = self.turn.compare_exchange(turn, *next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Counts a lost hedge of a server.
    pub(super) fn lost(&self, turn: usize, is_certain: bool) {
        self.budget.n_won.fetch_add(1, Ordering::Relaxed);
        let way = self.way(turn);
        if way.n_lost.fetch_add(1, Ordering::Relaxed) + 1 < MAX_LOST && !is_certain {
            return;
        }
        if !way.is_slow.swap(true, Ordering::Relaxed) {
            self.n_left.fetch_add(1, Ordering::Relaxed);
            warn!(
                server = way.transport.address(),
                session = session(),
                "a server is slow: asking others of its shards"
            );
            let next = self.started.elapsed() + PROBE_EVERY;
            way.next_probe.store(next.as_millis() as u64, Ordering::Relaxed);
        }
        self.leave(turn);
    }

    /// Marks a slow server as fast.
    pub(super) fn is_fast(&self, number: usize) {
        self.ways[number].n_lost.store(0, Ordering::Relaxed);
        self.ways[number].is_slow.store(false, Ordering::Relaxed);
        info!(server = self.ways[number].transport.address(), session = session(), "a slow server is fast again");
        if number == self.home {
            let n_ways = self.ways.len();
            let home = |turn: usize| Some(turn.wrapping_add((number + n_ways - turn % n_ways) % n_ways));
            let _ = self.turn.fetch_update(Ordering::Relaxed, Ordering::Relaxed, home);
        }
    }

    /// Sends slow servers the same question, once per second and without waiting: the answer shows when they are fast again.
    pub(super) fn probe(self: &Arc<Self>, question: &Question, max_bytes: u64) {
        let slow = self.ways.iter().enumerate().filter(|(_, way)| way.is_slow());
        for (number, way) in slow {
            let now = self.started.elapsed().as_millis() as u64;
            let due = way.next_probe.load(Ordering::Relaxed);
            let Some(usual) = self.usual.p95(question).filter(|_| now >= due) else { continue };
            let next = now + PROBE_EVERY.as_millis() as u64;
            if way.next_probe.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                continue; // Another call does it.
            }
            self.n_probes.fetch_add(1, Ordering::Relaxed);
            let (ways, question) = (Arc::clone(self), question.clone());
            tokio::spawn(async move {
                let (mut discarded, progress) = (Discarded(max_bytes), Progress::new());
                let asked = ways.ways[number].transport.ask(&question, &mut discarded, &progress);
                if let Ok(Ok(())) = timeout(usual.max(MIN_PATIENCE), asked).await {
                    ways.is_fast(number);
                }
            });
        }
    }
}
