//! One call: reads the request, computes its answer in chunks and sends them as the client reads.

use std::{
    future::poll_fn,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_TYPE};
use kith_proto::{CHECKSUM_HEADER, Call, PROTOCOL, PROTOCOL_HEADER, put_checksum};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use crate::server::{
    access::Peer,
    answer::{self, Answer, Chunk},
    connections::{Connection, Held},
    input::{Arriving, Input},
    limit::Limit,
    record::Record,
    served::Served,
    shared::Shared,
};

/// A status goes out in headers: this much of its message, and no more.
const MAX_STATUS_BYTES: usize = 512;

/// Requests of this length or less may be short work, which is computed on the thread that received them.
const SHORT_BYTES: usize = 16 << 10;

/// Clients have a timer of their own for the deadline that they state: end before it.
const EARLY: Duration = Duration::from_millis(2);

/// Answers a call of the sampler.
pub(crate) async fn answer_call(
    shared: &Arc<Shared>,
    connection: &Arc<Connection>,
    peer: &Peer,
    call: Call,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let (head, body) = request.into_parts();
    let record = Record::start(Arc::clone(&shared.metrics), call, connection.address(), &head.headers);
    let deadline = match checked(shared, peer, &head.headers) {
        Ok(deadline) => deadline,
        Err(status) => return refuse(respond, &status, &record),
    };
    connection.set_known(record.session());
    let asking = Asking { shared, connection, call, deadline };
    let mut respond = respond;
    let first = tokio::select! {
        biased; // A call that was cancelled is not computed.
        _ = poll_fn(|context| respond.poll_reset(context)) => return, // Dropping the record counts it as cancelled.
        first = timeout_at(deadline.at, asking.first(body)) => first.unwrap_or_else(|_| Err(deadline.late())),
    };
    match first {
        Ok(first) => asking.send(first, respond, &record).await,
        Err(status) => refuse(respond, &status, &record),
    }
}

/// The end of the time that a call may take.
#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    /// True if the server set it, false if the client did.
    is_ours: bool,
}

impl Deadline {
    /// The status of a call that took longer.
    fn late(self) -> Status {
        late(self.is_ours)
    }
}

fn late(is_ours: bool) -> Status {
    let status = Status::deadline_exceeded("the call took longer than it may");
    if is_ours { Limit::MaxCall.status(status) } else { status }
}

/// Refuses callers that may not ask and other protocols; gives the end of the time that the call may take.
fn checked(shared: &Shared, peer: &Peer, headers: &HeaderMap) -> Result<Deadline, Status> {
    shared.access.check(peer, headers)?;
    if shared.is_draining.load(Ordering::Relaxed) {
        return Err(Status::unavailable("the server is about to stop: ask again, or another one"));
    }
    if let Some(version) = headers.get(PROTOCOL_HEADER)
        && version.to_str().ok().and_then(|version| version.parse().ok()) != Some(PROTOCOL)
    {
        return Err(Status::failed_precondition(format!(
            "this server speaks version {PROTOCOL} of the protocol, not {}: use the same version of Kith on both ends",
            version.to_str().unwrap_or("this")
        )));
    }
    let max_call = shared.served.expected.limits.max_call;
    let allowed = match headers.get("grpc-timeout") {
        None => max_call,
        Some(timeout) => timeout
            .to_str()
            .ok()
            .and_then(parse_timeout)
            .ok_or_else(|| Status::invalid_argument("grpc-timeout is not a number of at most 8 digits and a unit"))?
            .min(max_call),
    };
    let is_ours = allowed == max_call;
    if allowed <= EARLY {
        return Err(late(is_ours)); // Timers tick too slowly to see this.
    }
    Ok(Deadline { at: Instant::now() + (allowed - EARLY), is_ours })
}

/// A call that was let in.
struct Asking<'a> {
    shared: &'a Arc<Shared>,
    connection: &'a Arc<Connection>,
    call: Call,
    deadline: Deadline,
}

/// An answer on its way.
struct Answering {
    answer: Box<dyn Answer>,
    /// The part of the request that is still arriving.
    rest: Option<Input>,
    /// Memory of the request, and of chunks that are computed already.
    _request: Held,
    _waiting: Option<Held>,
}

/// Stands in for an answer while its next chunk is computed.
struct Nothing;

impl Answer for Nothing {
    fn next(&mut self, _: &Served) -> Result<Chunk, Status> {
        Err(Status::internal("this answer is being computed"))
    }
}

/// Computes the next chunk of an answer, with its checksum where chunks have one.
fn next_chunk(answer: &mut dyn Answer, served: &Served, is_checked: bool) -> Result<Chunk, Status> {
    let mut chunk = answer.next(served)?;
    if is_checked {
        put_checksum(&mut chunk.pieces);
    }
    Ok(chunk)
}

/// A chunk in memory that was taken for it, and what computes the next one.
type Step = (Chunk, Option<Held>, Answering);

impl Asking<'_> {
    /// Reads the request and computes the first chunk.
    async fn first(&self, body: RecvStream) -> Result<Step, Status> {
        let max_bytes = self.shared.served.expected.limits.max_message_bytes;
        let asked = Input::new(body).read(self.call, self.connection, max_bytes).await?;
        let Arriving { message, n_streamed, n_bytes, mut rest, held } = asked;
        self.shared.metrics.received(self.call, n_bytes);
        let (call, served, is_checked) = (self.call, Arc::clone(&self.shared.served), self.is_checked());
        let Some(input) = &mut rest else {
            // Most requests are here as a whole: one piece of work.
            let (work, connection) = (&self.shared.work, self.connection);
            let (chunk, answer) = if n_bytes <= SHORT_BYTES && connection.n_calls() == 1 {
                let mut answer = answer::start(call, message, 0, &served)?;
                let is_short = answer.is_short(&served);
                let next = move || next_chunk(&mut *answer, &served, is_checked).map(|chunk| (chunk, answer));
                match if is_short { work.run_here(next) } else { Err(next) } {
                    Ok(computed) => computed??,
                    Err(next) => work.run(connection.id, next).await??,
                }
            } else {
                let start = move || {
                    let mut answer = answer::start(call, message, 0, &served)?;
                    next_chunk(&mut *answer, &served, is_checked).map(|chunk| (chunk, answer))
                };
                work.run(connection.id, start).await??
            };
            return self.held_step(chunk, Answering { answer, rest, _request: held, _waiting: None }).await;
        };
        // Few fields: reading them is no work worth a turn.
        let mut answer = answer::start(call, message, n_streamed, &served)?;
        if let Some(ids) = answer.ids() {
            input.fill(ids).await?;
        }
        self.next(Answering { answer, rest, _request: held, _waiting: None }).await
    }

    /// Computes the next chunk, as soon as the ids it needs are there.
    async fn next(&self, mut answering: Answering) -> Result<Step, Status> {
        if let (Some(rest), Some(ids)) = (&mut answering.rest, answering.answer.ids()) {
            rest.fill(ids).await?;
        }
        let chunk = self.compute(&mut answering).await?;
        self.held_step(chunk, answering).await
    }

    async fn compute(&self, answering: &mut Answering) -> Result<Chunk, Status> {
        let mut answer = std::mem::replace(&mut answering.answer, Box::new(Nothing));
        let served = Arc::clone(&self.shared.served);
        let is_checked = self.is_checked();
        let next = move || next_chunk(&mut *answer, &served, is_checked).map(|chunk| (chunk, answer));
        let (chunk, answer) = self.shared.work.run(self.connection.id, next).await??;
        answering.answer = answer;
        Ok(chunk)
    }

    /// True if chunks have checksums on this connection.
    fn is_checked(&self) -> bool {
        self.shared.checksums.are_on(self.connection.address())
    }

    /// Takes memory for what was computed. Where that is nothing to send, computes on until there is something.
    async fn held_step(&self, mut chunk: Chunk, mut answering: Answering) -> Result<Step, Status> {
        while chunk.pieces.is_empty() && !chunk.is_last {
            chunk = self.compute(&mut answering).await?;
        }
        let n_bytes = chunk.pieces.iter().map(Bytes::len).sum::<usize>();
        let held = (n_bytes > 0).then(|| self.connection.take(n_bytes)).transpose()?;
        answering._waiting = None;
        answering._waiting = (chunk.n_waiting > 0).then(|| self.connection.take(chunk.n_waiting)).transpose()?;
        Ok((chunk, held, answering))
    }

    /// Sends all chunks, each computed while the one before is sent.
    async fn send(&self, first: Step, mut respond: SendResponse<Bytes>, record: &Record) {
        let mut response = Response::new(());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(PROTOCOL_HEADER, HeaderValue::from(PROTOCOL));
        if self.is_checked() {
            headers.insert(CHECKSUM_HEADER, HeaderValue::from_static("crc32"));
        }
        let Ok(mut stream) = respond.send_response(response, false) else { return };
        let mut step = first;
        let status = loop {
            let (chunk, held, answering) = step;
            let Chunk { pieces, is_last, n_sampled, n_rows, .. } = chunk;
            record.answered(n_sampled, n_rows);
            let pieces = held_by(pieces, held);
            let sending = self.send_pieces(&mut stream, pieces, record);
            let next = if is_last {
                drop(answering); // The request is not needed while its last chunk is sent.
                if !sending.await {
                    return;
                }
                break Status::ok("");
            } else if self.connection.all().has_ample_memory() {
                let (is_sent, next) = tokio::join!(sending, timeout_at(self.deadline.at, self.next(answering)));
                if !is_sent {
                    return;
                }
                next
            } else if sending.await {
                timeout_at(self.deadline.at, self.next(answering)).await
            } else {
                return;
            };
            step = match next.unwrap_or_else(|_| Err(self.deadline.late())) {
                Ok(step) => step,
                Err(status) => break status,
            };
        };
        record.end(&status);
        let _ = stream.send_trailers(trailers(&status)); // The client may have left.
    }

    /// Sends pieces as the client takes them; a client that does not until the deadline has its stream reset. Tells
    /// whether all were sent.
    async fn send_pieces(&self, stream: &mut SendStream<Bytes>, pieces: Vec<Bytes>, record: &Record) -> bool {
        for mut piece in pieces {
            record.sent(piece.len());
            while !piece.is_empty() {
                stream.reserve_capacity(piece.len());
                let mut n_bytes = stream.capacity();
                if n_bytes == 0 {
                    let deadline = self.deadline.at;
                    n_bytes = match timeout_at(deadline, poll_fn(|context| stream.poll_capacity(context))).await {
                        Ok(Some(Ok(n_bytes))) => n_bytes,
                        Ok(Some(Err(_)) | None) => return false,
                        Err(_) => {
                            record.end(&self.deadline.late());
                            stream.send_reset(Reason::CANCEL);
                            return false;
                        }
                    };
                }
                let n_bytes = n_bytes.min(piece.len());
                if n_bytes > 0 && stream.send_data(piece.split_to(n_bytes), false).is_err() {
                    return false;
                }
            }
        }
        true
    }
}

/// Pieces that give their memory back when the last of them is sent or dropped.
fn held_by(pieces: Vec<Bytes>, held: Option<Held>) -> Vec<Bytes> {
    struct Owner {
        bytes: Bytes,
        _held: Option<Arc<Held>>,
    }
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    let held = held.map(Arc::new);
    pieces.into_iter().map(|bytes| Bytes::from_owner(Owner { bytes, _held: held.clone() })).collect()
}

/// Ends a call with a status and nothing else.
pub(crate) fn refuse(mut respond: SendResponse<Bytes>, status: &Status, record: &Record) {
    record.end(status);
    send_status(&mut respond, status);
}

/// A response that is nothing but a status.
pub(crate) fn send_status(respond: &mut SendResponse<Bytes>, status: &Status) {
    let mut response = Response::new(());
    *response.headers_mut() = trailers(status);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let _ = respond.send_response(response, true); // The client may have left.
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let status = shortened(status);
    // A message that cannot be a header leaves the code, which can.
    if status.add_header(&mut trailers).is_err() {
        let _ = Status::new(status.code(), "").add_header(&mut trailers);
    }
    trailers
}

/// A status with the beginning of its message, if that is long.
pub(crate) fn shortened(status: &Status) -> Status {
    let message = status.message();
    if message.len() <= MAX_STATUS_BYTES {
        return Status::new(status.code(), message);
    }
    let end = message.floor_char_boundary(MAX_STATUS_BYTES);
    Status::new(status.code(), format!("{}…", &message[..end]))
}

/// A `grpc-timeout`: up to eight digits and a unit.
pub fn parse_timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let digits = text.strip_suffix(unit)?;
    if digits.len() > 8 || digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let n: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(n * 3600)),
        'M' => Some(Duration::from_secs(n * 60)),
        'S' => Some(Duration::from_secs(n)),
        'm' => Some(Duration::from_millis(n)),
        'u' => Some(Duration::from_micros(n)),
        'n' => Some(Duration::from_nanos(n)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        assert_eq!(parse_timeout("5S"), Some(Duration::from_secs(5)));
        assert_eq!(parse_timeout("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(parse_timeout("250m"), Some(Duration::from_millis(250)));
        for broken in ["", "S", "5", "5s", "123456789S", "+1S", "-1S", "1é", "é"] {
            assert_eq!(parse_timeout(broken), None, "{broken}");
        }
    }

    #[test]
    fn statuses_are_cut_between_characters() {
        let short = shortened(&Status::not_found("x".repeat(512)));
        assert_eq!((short.code(), short.message().len()), (Code::NotFound, 512));
        let long = shortened(&Status::not_found("é".repeat(10_000)));
        assert!(long.message().ends_with('…') && long.message().len() <= MAX_STATUS_BYTES + 3, "{}", long.message());
    }
}
