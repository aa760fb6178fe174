//! Storage in memory whose requests are carried out one at a time, in an order that draws decide: each may fail, its
//! answer may be lost, and its writer may be killed.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt,
    future::Future,
    panic::resume_unwind,
    pin::{Pin, pin},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use async_trait::async_trait;
use futures_util::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use kith_draw::{Draws, Name, Purpose};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};

thread_local! {
    static WRITER: RefCell<Option<Writer>> = const { RefCell::new(None) };
}

/// The writer of this thread, in a simulation.
pub(crate) fn writer() -> Option<Writer> {
    WRITER.with(|writer| writer.borrow().clone())
}

/// End of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    /// It fails, and nothing has changed.
    Fails,
    /// It is carried out, and its answer is lost.
    AnswerLost,
    /// Its answer is lost, and the storage's client repeats it.
    Repeated,
    /// Its writer is killed before it.
    KilledBefore,
    /// Its writer is killed after it.
    KilledAfter,
}

/// A writer was killed.
#[derive(Debug)]
pub(super) struct Killed;

#[derive(Debug)]
struct Request {
    waker: Waker,
    fate: Option<Fate>,
    what: String,
}

#[derive(Debug)]
struct Turns {
    draws: Draws,
    /// Requests that wait for their turn, by writer and number.
    requests: BTreeMap<(usize, u64), Request>,
    n_requests: u64,
    /// Writers that compute. The others wait for a request, or have ended.
    running: BTreeMap<usize, bool>,
    n_tags: u64,
}

/// The order of all requests.
#[derive(Debug)]
pub(super) struct Order {
    turns: Mutex<Turns>,
    changed: Condvar,
}

impl Order {
    pub(super) fn new(key: u64) -> Arc<Order> {
        let name = Name { run_key: key, purpose: Purpose::Fault, step: 1, layer: 0 };
        let turns = Turns {
            draws: name.stream().draws(0, 0, 0),
            requests: BTreeMap::new(),
            n_requests: 0,
            running: BTreeMap::new(),
            n_tags: 0,
        };
        Arc::new(Order { turns: Mutex::new(turns), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A writer begins.
    pub(super) fn begin(&self, number: usize) {
        self.lock().running.insert(number, true);
    }

    /// Runs a writer's program on this thread.
    pub(super) fn enter(self: &Arc<Order>, number: usize) {
        let writer = Writer { order: self.clone(), number };
        WRITER.with(|place| *place.borrow_mut() = Some(writer));
    }

    /// A writer has ended.
    pub(super) fn end(&self, number: usize) {
        let mut turns = self.lock();
        turns.running.remove(&number);
        turns.requests.retain(|(writer, _), _| *writer != number);
        self.changed.notify_all();
    }

    /// Waits until all writers wait for requests, or have ended.
    pub(super) fn settle(&self) {
        drop(self.settled());
    }

    fn settled(&self) -> MutexGuard<'_, Turns> {
        let mut turns = self.lock();
        while turns.running.values().any(|is_running| *is_running) {
            turns = self.changed.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        turns
    }

    /// Gives one request its turn, once all writers wait: the request as a line of a log, or none if all have ended.
    pub(super) fn next(&self, fate: impl FnOnce(&mut Draws, usize) -> Fate) -> Option<String> {
        let mut turns = self.settled();
        if turns.requests.is_empty() {
            assert!(turns.running.is_empty(), "a writer waits for nothing");
            return None;
        }
        let n = turns.requests.len() as u64;
        let place = (u64::from(turns.draws.word()) * n) >> 32;
        let (writer, id) = *turns.requests.keys().nth(place as usize).expect("one of them");
        let fate = fate(&mut turns.draws, writer);
        turns.running.insert(writer, true);
        let request = turns.requests.get_mut(&(writer, id)).expect("it waits");
        request.fate = Some(fate);
        let (waker, what) = (request.waker.clone(), request.what.clone());
        drop(turns);
        waker.wake();
        self.changed.notify_all();
        Some(format!("writer {writer}: {what}: {fate:?}"))
    }
}

/// A process that uses the storage.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    order: Arc<Order>,
    number: usize,
}

impl Writer {
    /// Polls a future; while it waits for requests, they get their turns.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return output;
            }
            let mut turns = self.order.lock();
            turns.running.insert(self.number, false);
            self.order.changed.notify_all();
            while turns.running.get(&self.number) == Some(&false) {
                turns = self.order.changed.wait(turns).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// A tag that no other writer has, the same in every run of a key.
    pub(crate) fn tag(&self) -> String {
        let mut turns = self.order.lock();
        turns.n_tags += 1;
        format!("{:08x}{:08x}", self.number, turns.n_tags)
    }
}

/// Waits for the turn of a request.
struct Turn {
    writer: Writer,
    id: Option<u64>,
    what: String,
}

impl Future for Turn {
    type Output = Fate;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Fate> {
        let writer = self.writer.clone();
        let mut turns = writer.order.lock();
        let id = match self.id {
            Some(id) => id,
            None => {
                turns.n_requests += 1;
                self.id = Some(turns.n_requests);
                turns.n_requests
            }
        };
        let what = self.what.clone();
        let new = || Request { waker: context.waker().clone(), fate: None, what };
        let request = turns.requests.entry((writer.number, id)).or_insert_with(new);
        request.waker = context.waker().clone();
        match request.fate {
            Some(fate) => {
                turns.requests.remove(&(writer.number, id));
                Poll::Ready(fate)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.writer.order.lock().requests.remove(&(self.writer.number, id));
        }
    }
}

/// Storage in memory; requests of threads without a writer are carried out at once.
#[derive(Debug, Default)]
pub(super) struct Storage {
    pub(super) objects: Arc<InMemory>,
}

/// Carries out a request in its turn.
async fn request<T, F: Future<Output = Result<T>>>(what: String, run: impl Fn() -> F) -> Result<T> {
    let Some(writer) = writer() else { return run().await };
    let lost = || Error::Generic { store: "simulated", source: "no answer".into() };
    match (Turn { writer, id: None, what }).await {
        Fate::Done => run().await,
        Fate::Fails => Err(lost()),
        Fate::AnswerLost => {
            let _ = run().await;
            Err(lost())
        }
        Fate::Repeated => {
            let _ = run().await;
            run().await
        }
        Fate::KilledBefore => resume_unwind(Box::new(Killed)),
        Fate::KilledAfter => {
            let _ = run().await;
            resume_unwind(Box::new(Killed))
        }
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated storage")
    }
}

#[async_trait]
impl ObjectStore for Storage {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let what = format!("put {location} ({:?})", options.mode);
        request(what, || self.objects.put_opts(location, payload.clone(), options.clone())).await
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(Error::NotImplemented { operation: "put_multipart".to_owned(), implementer: "simulated".to_owned() })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        request(format!("get {location}"), || self.objects.get_opts(location, options.clone())).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let objects = self.objects.clone();
        let delete = move |location: Result<Path>| {
            let objects = objects.clone();
            async move {
                let location = location?;
                request(format!("delete {location}"), || objects.delete(&location)).await?;
                Ok(location)
            }
        };
        locations.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (objects, prefix) = (self.objects.clone(), prefix.cloned());
        let all = async move {
            let list = || objects.list(prefix.as_ref()).try_collect::<Vec<ObjectMeta>>();
            request("list".to_owned(), list).await
        };
        stream::once(all).map_ok(|all| stream::iter(all).map(Ok)).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

/// All objects and their bytes.
pub(super) async fn contents(objects: &InMemory) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let found: Vec<ObjectMeta> = objects.list(None).try_collect().await.expect("memory can be listed");
    for meta in found {
        let bytes = objects.get_opts(&meta.location, GetOptions::default()).await.expect("it is there").bytes().await;
        all.insert(meta.location.to_string(), bytes.expect("it is there").to_vec());
    }
    all
}
