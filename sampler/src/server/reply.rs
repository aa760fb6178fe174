//! An answer on its way to a client: chunks one after the other, each computed while the one before is sent.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use kith_proto::Call;
use tokio::{
    task::JoinHandle,
    time::{Instant as Deadline, Sleep, sleep_until},
};
use tonic::{Code, Status};

use crate::server::{
    answer::{Answer, Chunk},
    metrics::Metrics,
    service::Shared,
};

/// A chunk, and what computes the next one.
pub(crate) type Step = (Box<dyn Answer>, Chunk);

/// The body of a response.
pub(crate) struct Reply {
    shared: Arc<Shared>,
    record: Record,
    /// Pieces that can go.
    ready: VecDeque<Bytes>,
    /// The next chunk, being computed by a task of its own: whether this body is polled depends on its reader, and the
    /// work must not.
    next: Option<JoinHandle<Result<Step, Status>>>,
    deadline: Pin<Box<Sleep>>,
    has_ended: bool,
}

impl Reply {
    /// Begins with a chunk that is there.
    pub(crate) fn new(shared: Arc<Shared>, record: Record, first: Step, deadline: Deadline) -> Reply {
        let (ready, next, deadline) = (VecDeque::new(), None, Box::pin(sleep_until(deadline)));
        let mut reply = Reply { shared, record, ready, next, deadline, has_ended: false };
        reply.take(first);
        reply
    }

    fn take(&mut self, (mut answer, chunk): Step) {
        let Chunk { pieces, is_last, n_sampled, n_rows } = chunk;
        self.record.metrics.answered(self.record.call, n_sampled, n_rows);
        self.ready.extend(pieces);
        self.next = (!is_last).then(|| {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                let served = Arc::clone(&shared.served);
                shared.work.run(move || answer.next(&served).map(|chunk| (answer, chunk))).await?
            })
        });
    }

    fn end(&mut self, status: Status) -> Frame<Bytes> {
        self.has_ended = true;
        (self.next, self.ready) = (None, VecDeque::new());
        self.record.end(status.code());
        let mut trailers = HeaderMap::new();
        // A message that cannot be a header leaves the code, which can.
        if status.add_header(&mut trailers).is_err() {
            let _ = Status::new(status.code(), "").add_header(&mut trailers);
        }
        Frame::trailers(trailers)
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if self.deadline.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Ok(self.end(Status::deadline_exceeded("the call took longer than it may")))));
        }
        loop {
            if let Some(piece) = self.ready.pop_front() {
                self.record.metrics.sent(self.record.call, piece.len());
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let Some(next) = &mut self.next else {
                return Poll::Ready(Some(Ok(self.end(Status::ok("")))));
            };
            match ready!(Pin::new(next).poll(context)) {
                Ok(Ok(step)) => self.take(step),
                Ok(Err(status)) => return Poll::Ready(Some(Ok(self.end(status)))),
                Err(error) => return Poll::Ready(Some(Ok(self.end(Status::internal(error.to_string()))))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}

/// One call in the metrics, from its start to its end or the moment its client goes.
pub(crate) struct Record {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) call: Call,
    started: Instant,
    has_ended: bool,
}

impl Record {
    pub(crate) fn start(metrics: Arc<Metrics>, call: Call) -> Record {
        metrics.started(call);
        Record { metrics, call, started: Instant::now(), has_ended: false }
    }

    pub(crate) fn end(&mut self, code: Code) {
        if !self.has_ended {
            self.has_ended = true;
            self.metrics.ended(self.call, code, self.started.elapsed());
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}
