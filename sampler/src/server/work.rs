//! Threads that compute answers, so that those that talk to clients never wait for memory or disk.

use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};
use tonic::Status;

use crate::server::error::ServeError;

/// A rayon pool behind one semaphore. Pieces of work are small, and who wants the next one queues again: a long answer
/// does not keep short ones waiting.
#[derive(Debug)]
pub(crate) struct Work {
    pool: rayon::ThreadPool,
    permits: Arc<Semaphore>,
}

/// Pieces per thread that may be started: one is computed while another is handed over.
const PIECES_PER_THREAD: usize = 2;

impl Work {
    /// With so many threads; as many as there are cores if 0.
    pub(crate) fn new(n_threads: usize) -> Result<Work, ServeError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .thread_name(|thread| format!("answers-{thread}"))
            .panic_handler(|_| ()) // Whoever waits for the piece hears of it.
            .build()
            .map_err(|error| ServeError::System(error.to_string()))?;
        let permits = Arc::new(Semaphore::new(PIECES_PER_THREAD * pool.current_num_threads()));
        Ok(Work { pool, permits })
    }

    /// Computes a piece. Must be awaited by a task that is polled whatever its client does: one that holds a permit
    /// and is not polled would keep it from others.
    pub(crate) async fn run<T: Send + 'static>(&self, piece: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("it is never closed");
        let (tell, told) = oneshot::channel();
        self.pool.spawn(move || {
            let result = piece();
            drop(permit);
            let _ = tell.send(result); // Nobody may be waiting any more.
        });
        told.await.map_err(|_| Status::internal("the server panicked over this request: a mistake of ours"))
    }
}
