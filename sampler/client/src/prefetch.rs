//! Makes mini-batches ahead on other threads, and returns them in the order of the steps.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    task::Poll,
    thread::JoinHandle,
    time::Duration,
};

use crate::{
    batch::{Batch, BatchConfig, BatchMaker},
    error::{ClientError, Result},
    plan::Plan,
    shards::Shards,
    stock::Stock,
};

/// One slice of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Weight updates before it.
    pub step: u64,
    /// Slice of the step.
    pub slice: usize,
}

/// Threads and depth of prefetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefetchConfig {
    /// Threads, each with a whole batch at a time.
    pub n_threads: usize,
    /// Finished batches that wait for each thread; one more is being made.
    pub depth: usize,
}

impl Default for PrefetchConfig {
    fn default() -> PrefetchConfig {
        PrefetchConfig { n_threads: 1, depth: 1 }
    }
}

/// A queue of batches of any kind: an iterator in the order of its jobs. After an error it ends.
///
/// Dropped early, it lets its threads finish the batch in hand, throws it away, and waits for them.
pub struct Prefetch<B = Batch> {
    jobs: Box<dyn Iterator<Item = Job> + Send>,
    queues: Vec<Receiver<Result<B>>>,
    threads: Vec<JoinHandle<()>>,
    stock: Stock,
    /// The job of the next batch, once somebody has waited for it in vain.
    awaited: Option<Job>,
    /// Index of the queue with the next batch.
    turn: usize,
    has_ended: bool,
}

impl Prefetch<Batch> {
    /// Starts to make the batches of `jobs`. `jobs` is asked for again on every thread and must give the same each time.
    pub fn start<S, J>(
        shards: Arc<S>,
        plan: Arc<Plan>,
        config: BatchConfig,
        prefetch: PrefetchConfig,
        jobs: J,
    ) -> Result<Prefetch>
    where
        S: Shards + ?Sized + 'static,
        J: Iterator<Item = Job> + Clone + Send + 'static,
    {
        let PrefetchConfig { n_threads, depth } = prefetch;
        let stock = Stock::new(n_threads * (depth + 2));
        let mut maker = |_: usize| {
            let mut maker = BatchMaker::new(Arc::clone(&shards), Arc::clone(&plan), config.clone(), stock.clone());
            move |job: Job| maker.make(job.step, job.slice)
        };
        let mut started = Prefetch::start_with(prefetch, jobs, &mut maker)?;
        started.stock = stock;
        Ok(started)
    }

    /// Gives a used batch back, so that the next ones need no new memory.
    pub fn give_back(&self, batch: Batch) {
        self.stock.give_back(batch);
    }
}

impl<B: Send + 'static> Prefetch<B> {
    /// The same with any way to make a batch; `maker(thread)` gives one per thread.
    pub fn start_with<J, M>(
        PrefetchConfig { n_threads, depth }: PrefetchConfig,
        jobs: J,
        maker: &mut dyn FnMut(usize) -> M,
    ) -> Result<Prefetch<B>>
    where
        J: Iterator<Item = Job> + Clone + Send + 'static,
        M: FnMut(Job) -> Result<B> + Send + 'static,
    {
        let n_threads = n_threads.max(1);
        let mut started = Prefetch {
            jobs: Box::new(jobs.clone()),
            queues: Vec::new(),
            threads: Vec::new(),
            stock: Stock::new(0),
            awaited: None,
            turn: 0,
            has_ended: false,
        };
        for thread in 0..n_threads {
            let (sender, receiver) = sync_channel(depth.max(1));
            // Jobs go round-robin: the order of queues is the order of batches, independent of the threads' speed.
            let own = jobs.clone().skip(thread).step_by(n_threads);
            let make = maker(thread);
            let name = format!("sample-{thread}");
            let spawned = std::thread::Builder::new().name(name).spawn(move || work(own, make, sender));
            // An error here drops what was started, and with it its threads.
            started.threads.push(spawned.map_err(|error| ClientError::NoThread { message: error.to_string() })?);
            started.queues.push(receiver);
        }
        Ok(started)
    }
}

/// A thread's work: its jobs one after the other, until they or the consumer end.
fn work<B: Send>(
    jobs: impl Iterator<Item = Job> + Send,
    mut make: impl FnMut(Job) -> Result<B> + Send,
    queue: SyncSender<Result<B>>,
) {
    let run = || {
        for Job { step, slice } in jobs {
            let made = catch_unwind(AssertUnwindSafe(|| make(Job { step, slice })))
                .unwrap_or_else(|panic| Err(ClientError::Panicked { message: message_of(&*panic) }))
                .map_err(|source| ClientError::Batch { step, slice: slice as u64, source: Box::new(source) });
            let has_failed = made.is_err();
            if queue.send(made).is_err() || has_failed {
                break;
            }
        }
    };
    // A pool of one: whatever would share out its work stays on one thread and leaves the others to training.
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1);
    if let Err(error) = alone.build_scoped(|thread| thread.run(), |pool| pool.install(run)) {
        // Nobody listening any more is no error.
        let _ = queue.send(Err(ClientError::NoThread { message: error.to_string() }));
    }
}

/// Message of a panic.
pub fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

impl<B> Prefetch<B> {
    /// The next batch; pending if it takes longer than `limit`: ask again then.
    pub fn next_within(&mut self, limit: Duration) -> Poll<Option<Result<B>>> {
        self.next_from(|queue| queue.recv_timeout(limit))
    }

    fn next_from(
        &mut self,
        receive: impl FnOnce(&Receiver<Result<B>>) -> Result<Result<B>, RecvTimeoutError>,
    ) -> Poll<Option<Result<B>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let Some(job) = self.awaited.take().or_else(|| self.jobs.next()) else {
            self.has_ended = true;
            return Poll::Ready(None);
        };
        let next = match receive(&self.queues[self.turn]) {
            Ok(next) => next,
            Err(RecvTimeoutError::Timeout) => {
                self.awaited = Some(job);
                return Poll::Pending;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let source = Box::new(ClientError::Panicked { message: "its thread has ended".to_owned() });
                Err(ClientError::Batch { step: job.step, slice: job.slice as u64, source })
            }
        };
        self.turn = (self.turn + 1) % self.queues.len();
        self.has_ended = next.is_err();
        Poll::Ready(Some(next))
    }
}

impl<B> Iterator for Prefetch<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        match self.next_from(|queue| queue.recv().map_err(|_| RecvTimeoutError::Disconnected)) {
            Poll::Ready(next) => next,
            Poll::Pending => unreachable!("there is no limit"),
        }
    }
}

impl<B> std::fmt::Debug for Prefetch<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prefetch").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl<B> Drop for Prefetch<B> {
    fn drop(&mut self) {
        // Threads that wait to hand over a batch see that nobody takes it.
        self.queues.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::{Duration, Instant},
    };

    use super::*;
    use crate::{rows::FetchedRows, shards::RowCounts};
    use kith_sampler::Labels;

    fn batch(Job { step, slice }: Job) -> Batch {
        Batch {
            step,
            epoch: 0,
            slice: slice as u64,
            n_step_seeds: 0,
            blocks: Vec::new(),
            nodes: Arc::default(),
            seeds: Vec::new(),
            links: None,
            labels: Labels::Classes(Vec::new()),
            rows: FetchedRows::default(),
            row_counts: RowCounts::default(),
            pairs: Vec::new(),
            digest: 0,
        }
    }

    fn jobs(n: u64) -> impl Iterator<Item = Job> + Clone + Send + 'static {
        (0..n).flat_map(|step| (0..3).map(move |slice| Job { step, slice }))
    }

    fn start<M>(n_threads: usize, depth: usize, n: u64, mut maker: impl FnMut(usize) -> M) -> Prefetch
    where
        M: FnMut(Job) -> Result<Batch> + Send + 'static,
    {
        let config = PrefetchConfig { n_threads, depth };
        Prefetch::start_with(config, jobs(n), &mut maker).unwrap()
    }

    #[test]
    fn batches_come_in_order_at_any_speed() {
        for n_threads in [1, 2, 3, 8] {
            let prefetch = start(n_threads, 2, 20, |thread| {
                move |job| {
                    std::thread::sleep(Duration::from_micros(if thread == 0 { 500 } else { 1 }));
                    Ok(batch(job))
                }
            });
            let found: Vec<Job> =
                prefetch.map(|batch| batch.map(|b| Job { step: b.step, slice: b.slice as usize }).unwrap()).collect();
            assert_eq!(found, jobs(20).collect::<Vec<_>>(), "{n_threads} threads");
        }
    }

    #[test]
    fn no_more_is_made_than_may_wait() {
        let n_made = Arc::new(AtomicUsize::new(0));
        let mut prefetch = start(2, 3, 1000, |_| {
            let n_made = Arc::clone(&n_made);
            move |job| {
                n_made.fetch_add(1, Ordering::SeqCst);
                Ok(batch(job))
            }
        });
        for n_taken in [0, 5, 10] {
            while n_made.load(Ordering::SeqCst) < n_taken + 2 * 3 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            // Each thread has three waiting and one in its hands.
            assert!(n_made.load(Ordering::SeqCst) <= n_taken + 2 * 4, "{n_made:?} made, {n_taken} taken");
            (0..5).for_each(|_| drop(prefetch.next()));
        }
    }

    #[test]
    fn dropping_it_ends_its_threads() {
        let n_alive = Arc::new(());
        let mut prefetch = start(3, 2, u64::MAX / 4, |_| {
            let alive = Arc::clone(&n_alive);
            move |job| {
                let _ = &alive;
                Ok(batch(job))
            }
        });
        assert_eq!(prefetch.next().unwrap().unwrap().step, 0);
        let started = Instant::now();
        drop(prefetch);
        assert!(started.elapsed() < Duration::from_secs(5));
        assert_eq!(Arc::strong_count(&n_alive), 1, "nobody is left");
    }

    #[test]
    fn waiting_has_a_limit_and_loses_no_batch() {
        let (release, wait) = sync_channel(0);
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let mut prefetch = start(1, 1, 2, |_| {
            let wait = Arc::clone(&wait);
            move |job| {
                let _ = wait.lock().unwrap().recv();
                Ok(batch(job))
            }
        });
        for job in jobs(2) {
            assert!(prefetch.next_within(Duration::from_millis(5)).is_pending());
            assert!(prefetch.next_within(Duration::from_millis(5)).is_pending());
            release.send(()).unwrap();
            let next = prefetch.next().unwrap().unwrap();
            assert_eq!((next.step, next.slice), (job.step, job.slice as u64));
        }
        assert!(matches!(prefetch.next_within(Duration::ZERO), Poll::Ready(None)));
    }

    #[test]
    fn errors_and_panics_come_in_their_turn() {
        for panics in [false, true] {
            let mut prefetch = start(2, 4, 20, |_| {
                move |job| match job {
                    Job { step: 3, slice: 1 } if panics => panic!("a mistake"),
                    Job { step: 3, slice: 1 } => Err(ClientError::NoRows),
                    job => Ok(batch(job)),
                }
            });
            for job in jobs(20).take(10) {
                assert_eq!(prefetch.next().unwrap().unwrap().step, job.step);
            }
            let sentence = prefetch.next().unwrap().unwrap_err().to_string();
            assert!(sentence.starts_with("step 3, slice 1: "), "{sentence}");
            assert!(sentence.contains(if panics { "a mistake" } else { "no features" }), "{sentence}");
            assert!(prefetch.next().is_none() && prefetch.next().is_none());
        }
    }
}
