//! Replicas: servers of the same shards. All give equal answers, so any of them can be asked.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::{
    remote::{
        answers::Read,
        error::RemoteProblem,
        hedge::{Budget, Buffer, Discarded, HedgeCounts, Permit},
        progress::Progress,
        transport::{Attempt, Question, Transport},
        usual::Usual,
    },
    session::session,
};

/// Hedges that a server may lose in a row.
const MAX_LOST: u32 = 3;

/// The time between two probes of a slow server.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The shortest wait before a hedge: timers tick in milliseconds.
const MIN_PATIENCE: Duration = Duration::from_millis(1);

/// A clear outlier, in times of the usual.
const OUTLIER: u32 = 4;

/// Ways to several servers, of which one is used until it fails or is slow.
#[derive(Debug)]
pub(crate) struct Replicas(Arc<Ways>);

#[derive(Debug)]
struct Ways {
    ways: Vec<Way>,
    /// The way that is used first, and again when it is fast again.
    home: usize,
    /// Counts on: which way it is, is the rest of dividing by their number.
    turn: AtomicUsize,
    usual: Usual,
    budget: Budget,
    started: Instant,
    n_left: AtomicU64,
    n_probes: AtomicU64,
}

#[derive(Debug)]
struct Way {
    transport: Arc<dyn Transport>,
    /// Hedges lost in a row.
    n_lost: AtomicU32,
    is_slow: AtomicBool,
    /// Milliseconds from the start to the next probe, while it is slow.
    next_probe: AtomicU64,
}

impl Replicas {
    /// `first` is the way that is used first.
    pub(crate) fn new(ways: Vec<Arc<dyn Transport>>, first: usize) -> Replicas {
        let way = |transport| {
            let (n_lost, is_slow, next_probe) = (AtomicU32::new(0), AtomicBool::new(false), AtomicU64::new(0));
            Way { transport, n_lost, is_slow, next_probe }
        };
        let (home, turn) = (first % ways.len(), AtomicUsize::new(first));
        let [n_left, n_probes] = [const { AtomicU64::new(0) }; 2];
        let (usual, budget, started) = (Usual::new(), Budget::default(), Instant::now());
        let ways = ways.into_iter().map(way).collect();
        Replicas(Arc::new(Ways { ways, home, turn, usual, budget, started, n_left, n_probes }))
    }

    pub(crate) fn counts(&self) -> HedgeCounts {
        let Ways { budget, n_left, n_probes, .. } = &*self.0;
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (calls, hedges, won) = (number(&budget.n_calls), number(&budget.n_hedges), number(&budget.n_won));
        HedgeCounts { calls, hedges, won, left: number(n_left), probes: number(n_probes) }
    }

    async fn ask_one(
        &self,
        question: &Question,
        answer: &mut (dyn Read + Send),
        progress: &Progress,
    ) -> Result<(), RemoteProblem> {
        let ways = &*self.0;
        self.probe(question, answer.max_bytes());
        let mut is_damaged = vec![false; ways.ways.len()];
        loop {
            let turn = ways.turn_to_whole(&is_damaged);
            let leaving = Leaving { ways, turn };
            let asked = ways.race(turn, question, answer, progress).await;
            match &asked {
                Err(problem) if problem.is_damage() => {
                    is_damaged[turn % ways.ways.len()] = true;
                    if is_damaged.iter().all(|is_damaged| *is_damaged) {
                        return asked;
                    }
                    drop(leaving);
                    answer.begin(question.rows.clone());
                }
                Err(problem) if problem.may_pass() => return asked,
                _ => {
                    mem::forget(leaving);
                    return asked;
                }
            }
        }
    }

    /// Asks slow servers the same, once per second and beside all else: the answer says when they are fast again.
    fn probe(&self, question: &Question, max_bytes: u64) {
        let slow = self.0.ways.iter().enumerate().filter(|(_, way)| way.is_slow.load(Ordering::Relaxed));
        for (number, way) in slow {
            let now = self.0.started.elapsed().as_millis() as u64;
            let due = way.next_probe.load(Ordering::Relaxed);
            let Some(usual) = self.0.usual.p95(question).filter(|_| now >= due) else { continue };
            let next = now + PROBE_EVERY.as_millis() as u64;
            if way.next_probe.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                continue; // Another call does it.
            }
            self.0.n_probes.fetch_add(1, Ordering::Relaxed);
            let (ways, question) = (Arc::clone(&self.0), question.clone());
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

impl Ways {
    fn way(&self, turn: usize) -> &Way {
        &self.ways[turn % self.ways.len()]
    }

    /// The turn, or the first after it that is not one of a damaged server: other calls may have gone back to that one.
    fn turn_to_whole(&self, is_damaged: &[bool]) -> usize {
        let turn = self.turn.load(Ordering::Relaxed);
        let mut turns = (0..is_damaged.len()).map(|n| turn.wrapping_add(n));
        turns.find(|turn| !is_damaged[turn % is_damaged.len()]).unwrap_or(turn)
    }

    /// The next turn that is not a slow server's; the next one if all others are slow.
    fn next(&self, turn: usize) -> usize {
        let others = (1..self.ways.len()).map(|n| turn.wrapping_add(n));
        let fast = others.clone().find(|turn| !self.way(*turn).is_slow.load(Ordering::Relaxed));
        fast.unwrap_or_else(|| turn.wrapping_add(1))
    }

    /// Goes on to the next way. Of many calls that fail together, one does.
    fn leave(&self, turn: usize) {
        let _ = self.turn.compare_exchange(turn, self.next(turn), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A server lost a hedge.
    fn lost(&self, turn: usize, is_certain: bool) {
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

    /// A slow server is fast again.
    fn is_fast(&self, number: usize) {
        self.ways[number].n_lost.store(0, Ordering::Relaxed);
        self.ways[number].is_slow.store(false, Ordering::Relaxed);
        info!(server = self.ways[number].transport.address(), session = session(), "a slow server is fast again");
        if number == self.home {
            let n_ways = self.ways.len();
            let home = |turn: usize| Some(turn.wrapping_add((number + n_ways - turn % n_ways) % n_ways));
            let _ = self.turn.fetch_update(Ordering::Relaxed, Ordering::Relaxed, home);
        }
    }

    /// Asks a server, and another one too if that takes long. The first answer counts; the other attempt is cancelled.
    async fn race(
        &self,
        turn: usize,
        question: &Question,
        answer: &mut (dyn Read + Send),
        progress: &Progress,
    ) -> Result<(), RemoteProblem> {
        self.budget.call();
        let way = self.way(turn);
        let started = Instant::now();
        let mut buffer = Buffer::new(question, answer);
        let n_before = progress.n_received();
        let mut first = way.transport.ask(question, answer, progress);
        let took = |started: Instant| self.usual.took(question, started.elapsed());
        let Some(permit) = self.patience(turn, question, started, &mut first).await else {
            let asked = first.await;
            if asked.is_ok() {
                took(started);
            }
            return asked;
        };
        let permit = match permit {
            Hedged::No(asked) => {
                if asked.is_ok() {
                    took(started);
                }
                return asked;
            }
            Hedged::Yes(permit) => permit,
        };
        let hedged = Instant::now();
        let other = &self.way(self.next(turn)).transport;
        let (call, session) = (question.call.name(), session());
        info!(
            server = way.transport.address(),
            other = other.address(),
            call,
            session,
            "a call is slow: asking another server too"
        );
        let mut second = other.ask(question, &mut buffer, progress);
        let won = tokio::select! {
            biased;
            asked = &mut first => match asked {
                Ok(()) => {
                    way.n_lost.store(0, Ordering::Relaxed);
                    took(started);
                    return Ok(());
                }
                Err(problem) if problem.may_pass() || problem.is_damage() => {
                    // The other one has begun already.
                    self.leave(turn);
                    if (&mut second).await.is_err() {
                        return Err(problem);
                    }
                    true
                }
                Err(problem) => return Err(problem),
            },
            asked = &mut second => asked.is_ok(),
        };
        drop(second);
        let n_first = (progress.n_received() - n_before).saturating_sub(buffer.n_bytes as u64);
        let is_ahead = buffer.is_full && n_first < buffer.n_bytes as u64;
        if !won && !is_ahead {
            drop((permit, buffer));
            return first.await;
        }
        drop(first);
        let is_full = buffer.is_full;
        buffer.read_into(question, answer)?;
        self.lost(turn, is_full);
        if is_full {
            // The rest is asked of the other one.
            return Err(RemoteProblem::Lost("another server is faster".to_owned()));
        }
        answer.finish()?;
        took(hedged);
        Ok(())
    }

    /// Waits for an answer as long as is usual. `None` if it is to be waited for on.
    async fn patience<'a>(
        &'a self,
        turn: usize,
        question: &Question,
        started: Instant,
        first: &mut Attempt<'_>,
    ) -> Option<Hedged<'a>> {
        let usual = self.usual.p95(question)?.max(MIN_PATIENCE);
        tokio::select! {
            biased;
            asked = &mut *first => return Some(Hedged::No(asked)),
            () = sleep(usual) => {}
        }
        if !self.budget.has_plenty() {
            let patience = usual.saturating_mul(OUTLIER).saturating_sub(started.elapsed());
            tokio::select! {
                biased;
                asked = &mut *first => return Some(Hedged::No(asked)),
                () = sleep(patience) => {}
            }
        }
        let other = self.way(self.next(turn));
        if other.is_slow.load(Ordering::Relaxed) { None } else { self.budget.take().map(Hedged::Yes) }
    }
}

/// An answer that came as usual, or leave to hedge.
enum Hedged<'a> {
    No(Result<(), RemoteProblem>),
    Yes(Permit<'a>),
}

/// Goes on to the next way, also where nobody waits for the answer any more.
struct Leaving<'a> {
    ways: &'a Ways,
    turn: usize,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.ways.leave(self.turn);
    }
}

impl Transport for Replicas {
    fn ask<'a>(
        &'a self,
        question: &'a Question,
        answer: &'a mut (dyn Read + Send),
        progress: &'a Progress,
    ) -> Attempt<'a> {
        Box::pin(self.ask_one(question, answer, progress))
    }
}
