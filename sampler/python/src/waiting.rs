//! Waits for work that may take long, and looks for Ctrl-C meanwhile.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{
        LazyLock, Mutex,
        mpsc::{RecvTimeoutError, sync_channel},
    },
    task::Poll,
    thread,
    time::Duration,
};

use kith_client::{Prefetch, message_of};
use pyo3::prelude::*;

use crate::error::Failed;

/// Time between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// The process that loaded the package. Threads of rayon's pool are there, not in its forks.
static LOADED_BY: LazyLock<u32> = LazyLock::new(process::id);

/// Batches that are made ahead.
pub(crate) struct Batches<B: Send + 'static> {
    /// `None` once they are dropped.
    batches: Mutex<Option<Prefetch<B>>>,
    made_by: u32,
}

impl<B: Send + 'static> Batches<B> {
    pub(crate) fn new(batches: Prefetch<B>) -> Batches<B> {
        Batches { batches: Mutex::new(Some(batches)), made_by: process::id() }
    }

    /// The next batch.
    pub(crate) fn next(&self, py: Python<'_>) -> PyResult<Option<B>> {
        if self.made_by != process::id() {
            return Err(Failed::new("the iterator was made before a fork: make a new one in this process").into());
        }
        loop {
            let next = py.detach(|| match self.batches.lock().expect("nobody panics while waiting").as_mut() {
                Some(batches) => batches.next_within(BETWEEN_LOOKS),
                None => Poll::Ready(None),
            });
            match next {
                Poll::Ready(next) => return Ok(next.transpose().map_err(Failed::from)?),
                Poll::Pending => py.check_signals()?,
            }
        }
    }
}

impl<B: Send + 'static> Drop for Batches<B> {
    /// Threads end after the batch in hand; nobody waits for them. In a fork there are none.
    fn drop(&mut self) {
        let batches = self.batches.get_mut().ok().and_then(Option::take);
        if self.made_by != process::id() {
            return mem::forget(batches);
        }
        let dropped = thread::Builder::new().spawn(move || drop(batches));
        drop(dropped);
    }
}

/// Remembers the process that loads the package.
pub(crate) fn remember_process() {
    LazyLock::force(&LOADED_BY);
}

/// The result of some work, on a thread of its own. After Ctrl-C it ends there, unheard.
pub(crate) fn wait_for<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Failed> + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = sync_channel(1);
    let work = move || {
        let work = || catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(&*panic)));
        let found = match process::id() == *LOADED_BY {
            true => work(),
            // A pool of its own: that of the parent has no threads here.
            false => match rayon::ThreadPoolBuilder::new().num_threads(1).build() {
                Ok(pool) => pool.install(work),
                Err(error) => Err(Failed::new(format!("no thread: {error}"))),
            },
        };
        // Nobody listening any more is no error.
        let _ = sender.send(found);
    };
    let spawned = thread::Builder::new().name("kith".to_owned()).spawn(work);
    spawned.map_err(|error| Failed::new(format!("no thread: {error}")))?;
    let receiver = Mutex::new(receiver);
    loop {
        let found = py.detach(|| receiver.lock().expect("only we wait").recv_timeout(BETWEEN_LOOKS));
        match found {
            Ok(found) => return Ok(found?),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Err(Failed::new("a thread ended early").into()),
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Failed {
    Failed::new(format!("a thread panicked: {}", message_of(panic)))
}
