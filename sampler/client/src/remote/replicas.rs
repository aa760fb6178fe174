//! Replicas: servers of the same shards. All give equal answers, so any of them can be asked.

mod wait;
mod ways;

use std::{mem, sync::Arc};

use tokio::time::Instant;

use self::{
    wait::{Hedged, Raced, Wait},
    ways::{MIN_PATIENCE, STALLED, Ways},
};
use crate::remote::{
    answers::Read,
    error::RemoteProblem,
    hedge::{Buffer, HedgeCounts},
    progress::Progress,
    transport::{Attempt, Question, Transport},
};

/// Failed hedges of a stalled call after which it moves on to another server.
const MAX_FAILED: u32 = 2;

/// Ways to several servers, of which one is used until it fails or is slow.
#[derive(Debug)]
pub(crate) struct Replicas(Arc<Ways>);

impl Replicas {
    /// `first` is the way that is used first.
    pub(crate) fn new(ways: Vec<Arc<dyn Transport>>, first: usize) -> Replicas {
        Replicas(Arc::new(Ways::new(ways, first)))
    }

    pub(crate) fn counts(&self) -> HedgeCounts {
        self.0.counts()
    }

    async fn ask_one(
        &self,
        question: &Question,
        answer: &mut (dyn Read + Send),
        progress: &Progress,
    ) -> Result<(), RemoteProblem> {
        let ways = &self.0;
        ways.probe(question, answer.max_bytes());
        let mut is_damaged = vec![false; ways.ways.len()];
        loop {
            let turn = ways.turn_to_whole(&is_damaged);
            let leaving = Leaving { ways, turn };
            let asked = self.race(turn, question, answer, progress).await;
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

    /// Asks a server, and another one too if that takes long. The first answer counts; the other attempt is cancelled.
    async fn race(
        &self,
        turn: usize,
        question: &Question,
        answer: &mut (dyn Read + Send),
        progress: &Progress,
    ) -> Result<(), RemoteProblem> {
        let ways = &self.0;
        ways.budget.call();
        let way = ways.way(turn);
        let usual = ways.usual.p95(question).unwrap_or(STALLED).max(MIN_PATIENCE);
        let (started, max_bytes) = (Instant::now(), answer.max_bytes());
        let wait = Wait { ways, turn, question, usual, started, max_bytes, progress };
        let mut buffer = Buffer::new(question, answer);
        let mut n_before = progress.n_received();
        let mut first = way.transport.ask(question, answer, progress);
        let (mut n_hedges, mut n_failed) = (0, 0);
        let (permit, hedged) = loop {
            let permit = match wait.patience(&mut first, n_hedges).await {
                Hedged::No(asked) => return asked.inspect(|()| wait.answered(false)),
                Hedged::Yes(permit) => permit,
            };
            let hedged = Instant::now();
            let is_won = match wait.hedge(&mut first, n_hedges, &mut buffer).await {
                Raced::First(asked) => return asked.inspect(|()| wait.answered(true)),
                Raced::Second => true,
                Raced::Failed => {
                    n_failed += 1;
                    let n_first = (progress.n_received() - n_before).saturating_sub(buffer.n_bytes as u64);
                    buffer.is_full && n_first < buffer.n_bytes as u64
                }
                Raced::Stalled => false,
            };
            if is_won {
                break (permit, hedged);
            }
            if n_failed > MAX_FAILED && permit.is_rescue() {
                // Rows of the next attempt count, also if it breaks off.
                return Err(RemoteProblem::Lost("it stalls, and hedges fail".to_owned()));
            }
            n_hedges += 1;
            n_before += buffer.n_bytes as u64;
            buffer.empty();
        };
        drop(first);
        let is_full = buffer.is_full;
        buffer.read_into(question, answer)?;
        ways.lost(turn, is_full || permit.is_rescue());
        if is_full {
            // The rest is asked of the other one.
            return Err(RemoteProblem::Lost("another server is faster".to_owned()));
        }
        answer.finish()?;
        ways.usual.took(question, hedged.elapsed());
        Ok(())
    }
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
