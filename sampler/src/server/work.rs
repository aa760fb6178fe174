//! Thread pool that computes answers, so that network threads do not wait for memory or disk. They compute short pieces themselves.

use std::{
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::oneshot;
use tonic::Status;

use crate::server::error::ServeError;

/// A rayon pool behind one queue per connection. Connections take turns: each has one piece of work computed, then the next
/// connection has. Pieces are small, so that many or long calls of one connection do not keep another waiting.
#[derive(Debug)]
pub(crate) struct Work {
    pool: rayon::ThreadPool,
    queues: Arc<Mutex<Queues>>,
    /// Waits of pieces for a thread.
    waits: Histogram,
}

/// A piece on a network thread that takes longer than this was not short: the shard's files are not in memory, or not checked yet.
const SHORT: Duration = Duration::from_millis(1);

/// Time after such a piece in which network threads compute nothing.
const PAUSE: Duration = Duration::from_secs(1);

type Piece = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queues {
    /// Pieces that wait, by connection. A connection without any has no entry.
    waiting: HashMap<u64, VecDeque<Piece>>,
    /// Connections with pieces, in the order of their turns.
    turns: VecDeque<u64>,
    n_running: usize,
    /// Time before which network threads compute nothing.
    pauses_until: Option<Instant>,
}

impl std::fmt::Debug for Queues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queues").field("turns", &self.turns).field("n_running", &self.n_running).finish()
    }
}

impl Queues {
    fn next(&mut self) -> Option<Piece> {
        let connection = self.turns.pop_front()?;
        let pieces = self.waiting.get_mut(&connection)?;
        let piece = pieces.pop_front();
        if pieces.is_empty() {
            self.waiting.remove(&connection);
        } else {
            self.turns.push_back(connection);
        }
        piece
    }
}

fn locked(queues: &Mutex<Queues>) -> std::sync::MutexGuard<'_, Queues> {
    queues.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work {
    /// Starts `n_threads` threads (0: one per core).
    pub(crate) fn new(n_threads: usize, waits: Histogram) -> Result<Work, ServeError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .thread_name(|thread| format!("answers-{thread}"))
            .build()
            .map_err(|error| ServeError::System(error.to_string()))?;
        Ok(Work { pool, queues: Arc::default(), waits })
    }

    /// Computes a short piece on this thread, if the pool is idle: this saves waking a thread of the pool and this one again. The piece
    /// counts as one that the pool computes, so the number of threads that compute stays. Gives the piece back if the pool is not idle,
    /// or if such a piece took long less than a second ago.
    pub(crate) fn run_here<T, F: FnOnce() -> T>(&self, piece: F) -> Result<Result<T, Status>, F> {
        let begun = Instant::now();
        {
            let mut queues = locked(&self.queues);
            if queues.n_running > 0 || queues.pauses_until.is_some_and(|end| begun < end) {
                return Err(piece);
            }
            queues.n_running = 1;
        }
        self.waits.observe(0.0);
        let computed = catch_unwind(AssertUnwindSafe(piece)).map_err(|_| panicked());
        let ended = Instant::now();
        let mut queues = locked(&self.queues);
        queues.pauses_until = (ended - begun > SHORT).then(|| ended + PAUSE);
        if queues.turns.is_empty() {
            queues.n_running -= 1;
        } else {
            // A thread of the pool takes over what came meanwhile.
            drop(queues);
            self.start_thread();
        }
        Ok(computed)
    }

    /// Computes a piece for a connection, in its turn. A piece that nobody waits for any more is skipped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        connection: u64,
        piece: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let (tell, told) = oneshot::channel();
        let (waits, pushed) = (self.waits.clone(), Instant::now());
        self.push(
            connection,
            Box::new(move || {
                waits.observe(pushed.elapsed().as_secs_f64());
                if !tell.is_closed() {
                    let _ = tell.send(piece()); // The client may have left meanwhile.
                }
            }),
        );
        told.await.map_err(|_| panicked())
    }

    /// Has a thread of the pool compute until no piece is left. It is counted already.
    fn start_thread(&self) {
        let queues = Arc::clone(&self.queues);
        self.pool.spawn(move || compute(&queues));
    }

    fn push(&self, connection: u64, piece: Piece) {
        let mut queues = locked(&self.queues);
        let pieces = queues.waiting.entry(connection).or_default();
        pieces.push_back(piece);
        if pieces.len() == 1 {
            queues.turns.push_back(connection);
        }
        if queues.n_running < self.pool.current_num_threads() {
            queues.n_running += 1;
            drop(queues);
            self.start_thread();
        }
    }
}

fn panicked() -> Status {
    Status::internal("the server panicked over this request: a mistake of ours")
}

/// Computes pieces until none is left.
fn compute(queues: &Mutex<Queues>) {
    loop {
        let piece = {
            let mut queues = locked(queues);
            let Some(piece) = queues.next() else {
                queues.n_running -= 1;
                return;
            };
            piece
        };
        // A panic is reported to the caller: its sender is dropped.
        let _ = catch_unwind(AssertUnwindSafe(piece));
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Poll, time::Duration};

    use super::*;

    fn work() -> Work {
        Work::new(1, Histogram::new([0.005, 10.0])).unwrap()
    }

    #[test]
    fn connections_take_turns() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let work = work();
            let order = Arc::new(Mutex::new(Vec::new()));
            let (hold, held) = std::sync::mpsc::channel::<()>();
            let mut first = Box::pin(work.run(0, move || held.recv_timeout(Duration::from_secs(10)).unwrap()));
            // A greedy connection asks for a hundred pieces before a modest one asks for two.
            let ask = |connection| {
                let order = Arc::clone(&order);
                Box::pin(work.run(connection, move || order.lock().unwrap().push(connection)))
            };
            let asked = poll_fn(|context| Poll::Ready(first.as_mut().poll(context))).await;
            assert!(asked.is_pending());
            let mut calls: Vec<_> = (0..100).map(|_| 1).chain([2, 2]).map(ask).collect();
            for call in &mut calls {
                assert!(poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await.is_pending());
            }
            hold.send(()).unwrap();
            first.await.unwrap();
            for call in calls {
                call.await.unwrap();
            }
            let order = order.lock().unwrap();
            let places: Vec<usize> = (0..order.len()).filter(|place| order[*place] == 2).collect();
            assert_eq!((order.len(), places), (102, vec![1, 3]));
        });
    }

    #[test]
    fn a_piece_is_computed_on_this_thread_while_the_pool_is_idle() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let work = work();
            let here = std::thread::current().id();
            let thread = || std::thread::current().id();
            // This thread may be interrupted at any time, so that each piece may seem long.
            let go_on = || locked(&work.queues).pauses_until = None;
            // A thread of the pool counts as running for a moment after it has answered.
            let until_idle = || {
                let begun = Instant::now();
                while locked(&work.queues).n_running > 0 {
                    assert!(begun.elapsed() < Duration::from_secs(10), "the pool still computes");
                    std::thread::yield_now();
                }
            };
            assert_eq!(work.run_here(thread).ok().unwrap().unwrap(), here);
            go_on();
            assert!(work.run_here(|| -> u32 { panic!("on purpose") }).ok().unwrap().is_err());
            // While this thread computes, other pieces wait; afterwards the pool computes them.
            go_on();
            let mut waiting = Box::pin(work.run(1, thread));
            let n_waiting = work.run_here(|| {
                assert!(work.run_here(|| ()).is_err());
                let waker = std::task::Waker::noop();
                assert!(waiting.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
                std::thread::sleep(Duration::from_millis(20));
                locked(&work.queues).turns.len()
            });
            assert_eq!(n_waiting.ok().unwrap().unwrap(), 1);
            assert_ne!(waiting.await.unwrap(), here);
            until_idle();
            // The piece that slept took long: this thread computes nothing for a time.
            let pauses_until = locked(&work.queues).pauses_until.replace(Instant::now() + Duration::from_secs(60));
            assert!(pauses_until.is_some());
            assert!(work.run_here(|| ()).is_err());
            locked(&work.queues).pauses_until = Some(Instant::now());
            assert!(work.run_here(|| ()).is_ok());
            go_on();
            // While the pool computes, nothing is computed here.
            let (hold, held) = std::sync::mpsc::channel::<()>();
            let mut first = Box::pin(work.run(0, move || held.recv_timeout(Duration::from_secs(10)).unwrap()));
            let asked = poll_fn(|context| Poll::Ready(first.as_mut().poll(context))).await;
            assert!(asked.is_pending() && work.run_here(|| ()).is_err());
            hold.send(()).unwrap();
            first.await.unwrap();
        });
    }

    #[test]
    fn panics_are_reported_and_do_not_cost_a_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let work = work();
            let status = work.run(1, || -> u32 { panic!("on purpose") }).await.unwrap_err();
            assert!(status.message().contains("a mistake of ours"), "{status}");
            assert_eq!(work.run(1, || 7).await.unwrap(), 7);
        });
    }
}
