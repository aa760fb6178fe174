//! Thread pool that computes answers, so that I/O threads never wait for memory or disk.

use std::{
    collections::{HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::oneshot;
use tonic::Status;

use crate::server::error::ServeError;

/// A rayon pool behind one queue per connection. Connections take turns: each has one piece of work computed, then the next
/// connection has. Pieces are small, so that many or long calls of one connection do not keep another waiting.
#[derive(Debug)]
pub(crate) struct Work {
    pool: rayon::ThreadPool,
    queues: Arc<Mutex<Queues>>,
}

type Piece = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queues {
    /// Pieces that wait, by connection. A connection without any has no entry.
    waiting: HashMap<u64, VecDeque<Piece>>,
    /// Connections with pieces, in the order of their turns.
    turns: VecDeque<u64>,
    n_running: usize,
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
    pub(crate) fn new(n_threads: usize) -> Result<Work, ServeError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .thread_name(|thread| format!("answers-{thread}"))
            .build()
            .map_err(|error| ServeError::System(error.to_string()))?;
        Ok(Work { pool, queues: Arc::default() })
    }

    /// Computes a piece for a connection, in its turn. A piece that nobody waits for any more is skipped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        connection: u64,
        piece: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let (tell, told) = oneshot::channel();
        self.push(
            connection,
            Box::new(move || {
                if !tell.is_closed() {
                    let _ = tell.send(piece()); // The client may have left meanwhile.
                }
            }),
        );
        told.await.map_err(|_| Status::internal("the server panicked over this request: a mistake of ours"))
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
            let queues = Arc::clone(&self.queues);
            self.pool.spawn(move || compute(&queues));
        }
    }
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

    #[test]
    fn connections_take_turns() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let work = Work::new(1).unwrap();
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
    fn panics_are_reported_and_do_not_cost_a_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let work = Work::new(1).unwrap();
            let status = work.run(1, || -> u32 { panic!("on purpose") }).await.unwrap_err();
            assert!(status.message().contains("a mistake of ours"), "{status}");
            assert_eq!(work.run(1, || 7).await.unwrap(), 7);
        });
    }
}
