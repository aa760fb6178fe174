//! Hedged calls: a question that waits longer than usual goes to a second server, and the first answer wins.

use std::{
    ops::Range,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use bytes::Buf;
use kith_proto::Message;
use tokio::time::Instant;

use crate::remote::{
    answers::{AnswerError, Read},
    chunks::Chunks,
    transport::Question,
};

/// Calls that pay for one hedge: at most 5 % are added.
const CALLS_PER_HEDGE: u32 = 20;

/// Hedges that can be saved up: a line that gets slow for all is not asked twice for long.
const MAX_SAVED: u32 = 16;

/// Hedges that only clear outliers may take. Of calls on a line like any other, 5 % are slower than their p95: they alone
/// would spend everything.
const RESERVE: u32 = 4;

/// Hedges at a time.
const MAX_AT_ONCE: u32 = 4;

/// The time between two hedges of stalled calls.
const RESCUE_EVERY: Duration = Duration::from_millis(250);

/// The most bytes of a hedge's answer. A hedge that has received them and is ahead takes over; one that is behind ends.
pub(crate) const MAX_BUFFER_BYTES: usize = 8 << 20;

/// Counts of hedged calls and their outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HedgeCounts {
    /// Attempts of calls, hedges and probes aside.
    pub calls: u64,
    /// Attempts that were added: at most 5 % of calls, and the rescues.
    pub hedges: u64,
    /// Hedges of stalled calls: at most 4 per second.
    pub rescues: u64,
    /// Hedges whose answer counted.
    pub won: u64,
    /// Times that a server was left because it was slow.
    pub left: u64,
    /// Questions to slow servers, to see if they are fast again.
    pub probes: u64,
}

impl HedgeCounts {
    /// Both together.
    pub(crate) fn plus(self, other: HedgeCounts) -> HedgeCounts {
        HedgeCounts {
            calls: self.calls + other.calls,
            hedges: self.hedges + other.hedges,
            rescues: self.rescues + other.rescues,
            won: self.won + other.won,
            left: self.left + other.left,
            probes: self.probes + other.probes,
        }
    }
}

/// The share of calls that may be hedged.
#[derive(Debug)]
pub(crate) struct Budget {
    started: Instant,
    /// Calls that no hedge has used up.
    saved: AtomicU32,
    /// Milliseconds from the start to the next hedge of a stalled call.
    next_rescue: AtomicU64,
    n_running: AtomicU32,
    pub(crate) n_calls: AtomicU64,
    pub(crate) n_hedges: AtomicU64,
    pub(crate) n_rescues: AtomicU64,
    pub(crate) n_won: AtomicU64,
}

/// A hedge that runs.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    budget: &'a Budget,
    is_rescue: bool,
}

impl Permit<'_> {
    /// True for a hedge of a stalled call.
    pub(crate) fn is_rescue(&self) -> bool {
        self.is_rescue
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.budget.n_running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Budget {
    pub(crate) fn new() -> Budget {
        let [saved, n_running] = [const { AtomicU32::new(0) }; 2];
        let [next_rescue, n_calls, n_hedges, n_rescues, n_won] = [const { AtomicU64::new(0) }; 5];
        Budget { started: Instant::now(), saved, next_rescue, n_running, n_calls, n_hedges, n_rescues, n_won }
    }

    /// A call that is no hedge.
    pub(crate) fn call(&self) {
        self.n_calls.fetch_add(1, Ordering::Relaxed);
        let more = |saved: u32| (saved < MAX_SAVED * CALLS_PER_HEDGE).then_some(saved + 1);
        let _ = self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// True if an ordinary slow call may be hedged; if not, a clear outlier still may.
    pub(crate) fn has_plenty(&self) -> bool {
        self.saved.load(Ordering::Relaxed) > RESERVE * CALLS_PER_HEDGE
    }

    /// Takes a hedge, if there is one.
    pub(crate) fn take(&self) -> Option<Permit<'_>> {
        let permit = self.begin(false)?;
        let less = |saved: u32| saved.checked_sub(CALLS_PER_HEDGE);
        self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        self.n_hedges.fetch_add(1, Ordering::Relaxed);
        Some(permit)
    }

    /// Takes a hedge for a stalled call, which no other calls pay for: at most 4 per second.
    pub(crate) fn rescue(&self) -> Option<Permit<'_>> {
        let permit = self.begin(true)?;
        let now = self.started.elapsed().as_millis() as u64;
        let next = |due: u64| (now >= due).then_some(now + RESCUE_EVERY.as_millis() as u64);
        self.next_rescue.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        self.n_hedges.fetch_add(1, Ordering::Relaxed);
        self.n_rescues.fetch_add(1, Ordering::Relaxed);
        Some(permit)
    }

    fn begin(&self, is_rescue: bool) -> Option<Permit<'_>> {
        let more = |n: u32| (n < MAX_AT_ONCE).then_some(n + 1);
        self.n_running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Permit { budget: self, is_rescue })
    }
}

/// The answer to a hedge, kept until it is known which answer counts.
#[derive(Debug)]
pub(crate) struct Buffer {
    rows: Range<usize>,
    max_bytes: u64,
    chunks: Vec<Message>,
    pub(crate) n_bytes: usize,
    /// True once the buffer takes no more.
    pub(crate) is_full: bool,
}

impl Buffer {
    /// For an answer to the same question as `answer`.
    pub(crate) fn new(question: &Question, answer: &dyn Read) -> Buffer {
        let (rows, max_bytes) = (question.rows.clone(), answer.max_bytes());
        Buffer { rows, max_bytes, chunks: Vec::new(), n_bytes: 0, is_full: false }
    }

    /// Forgets what it has.
    pub(crate) fn empty(&mut self) {
        self.chunks.clear();
        (self.n_bytes, self.is_full) = (0, false);
    }

    /// Reads the buffered answer instead of the one received from the other server.
    pub(crate) fn read_into(self, question: &Question, answer: &mut dyn Read) -> Result<(), AnswerError> {
        answer.begin(question.rows.clone());
        // They were checked when they came.
        let mut chunks = Chunks::new(question, answer);
        self.chunks.into_iter().try_for_each(|chunk| chunks.take(chunk, answer))
    }
}

impl Read for Buffer {
    fn begin(&mut self, _: Range<usize>) {
        self.empty();
    }

    fn n_whole(&self) -> usize {
        self.rows.start
    }

    fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    fn read(&mut self, message: Message) -> Result<usize, AnswerError> {
        let n_bytes = message.remaining();
        if self.n_bytes + n_bytes > MAX_BUFFER_BYTES {
            self.is_full = true;
            return Err(AnswerError::Other("there is no room for more of it"));
        }
        self.n_bytes += n_bytes;
        self.chunks.push(message);
        Ok(n_bytes)
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        Ok(()) // It is checked where it counts.
    }
}

/// An answer that nobody needs.
#[derive(Debug)]
pub(crate) struct Discarded(pub(crate) u64);

impl Read for Discarded {
    fn begin(&mut self, _: Range<usize>) {}

    fn n_whole(&self) -> usize {
        0
    }

    fn max_bytes(&self) -> u64 {
        self.0
    }

    fn read(&mut self, message: Message) -> Result<usize, AnswerError> {
        Ok(message.remaining())
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hedges_are_at_most_one_in_twenty() {
        let budget = Budget::new();
        assert!(budget.take().is_none(), "nothing is saved");
        let mut n_taken = 0;
        for call in 1..=10_000u64 {
            budget.call();
            n_taken += u64::from(budget.take().is_some());
            assert!(n_taken * 20 <= call, "{n_taken} of {call}");
        }
        assert_eq!(n_taken, 500);
        (0..10_000).for_each(|_| budget.call());
        assert!(budget.has_plenty());
        let n_saved = (0..1000).filter(|_| budget.take().is_some()).count();
        assert_eq!(n_saved, MAX_SAVED as usize, "not all of it at once");
        assert_eq!(budget.n_hedges.load(Ordering::Relaxed), 500 + u64::from(MAX_SAVED));
    }

    #[test]
    fn rescues_need_no_savings_and_are_at_most_four_per_second() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let budget = Budget::new();
            let mut n_rescues = 0;
            for _ in 0..10_000 {
                n_rescues += u64::from(budget.rescue().is_some_and(|permit| permit.is_rescue()));
                tokio::time::advance(Duration::from_millis(1)).await;
            }
            assert_eq!(n_rescues, 40);
            assert_eq!([&budget.n_hedges, &budget.n_rescues].map(|n| n.load(Ordering::Relaxed)), [40, 40]);
        });
    }

    #[test]
    fn few_run_at_a_time() {
        let budget = Budget::new();
        (0..1000).for_each(|_| budget.call());
        let running: Vec<_> = (0..9).map_while(|_| budget.take()).collect();
        assert_eq!(running.len(), MAX_AT_ONCE as usize);
        drop(running);
        assert!(budget.take().is_some());
    }
}
