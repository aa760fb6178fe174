//! The gRPC service. tonic carries it, but answers do not go through a codec of its: they are computed as frames, which
//! are sent as they are.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf;
use http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_TYPE};
use kith_proto::{Call, FRAME_HEAD_BYTES, Messages, PROTOCOL, PROTOCOL_HEADER, SERVICE};
use tokio::time::{Instant, timeout_at};
use tonic::{Status, body::Body, server::NamedService};
use tower_service::Service;

use crate::server::{
    answer,
    error::IntoStatus,
    metrics::Metrics,
    reply::{Record, Reply, Step},
    served::Served,
    work::Work,
};

/// What all calls share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) served: Arc<Served>,
    pub(crate) work: Work,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) is_draining: AtomicBool,
}

/// The service `kith.v1.Sampler`.
#[derive(Clone, Debug)]
pub(crate) struct SamplerService(pub(crate) Arc<Shared>);

impl NamedService for SamplerService {
    const NAME: &'static str = SERVICE;
}

impl Service<Request<Body>> for SamplerService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let Some(call) = Call::of_path(request.uri().path()) else {
                return Ok(Status::unimplemented("there is no such call").into_http());
            };
            let record = Record::start(Arc::clone(&shared.metrics), call);
            Ok(answer(shared, request, record).await)
        })
    }
}

/// The transport has a timer of its own for the caller's deadline and says CANCELLED when it fires: end before it.
const EARLY: Duration = Duration::from_millis(2);

async fn answer(shared: Arc<Shared>, request: Request<Body>, mut record: Record) -> Response<Body> {
    let max_call = shared.served.expected.limits.max_call;
    let (head, body) = request.into_parts();
    let allowed = match checked_headers(&head.headers) {
        Ok(allowed) => allowed.unwrap_or(max_call).min(max_call),
        Err(status) => return refused(status, &mut record),
    };
    let deadline = Instant::now() + allowed.saturating_sub(EARLY);
    let late = || Status::deadline_exceeded("the call took longer than it may");
    if allowed <= EARLY {
        return refused(late(), &mut record); // Timers tick too slowly to see this.
    }
    let first = timeout_at(deadline, first_step(&shared, body, &record)).await;
    match first.unwrap_or_else(|_| Err(late())) {
        Ok(first) => {
            let mut response = Response::new(Body::new(Reply::new(Arc::clone(&shared), record, first, deadline)));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert(PROTOCOL_HEADER, HeaderValue::from(PROTOCOL));
            response
        }
        Err(status) => refused(status, &mut record),
    }
}

fn refused(status: Status, record: &mut Record) -> Response<Body> {
    record.end(status.code());
    status.into_http()
}

/// Reads the request and computes the first chunk: most answers have no other, and then go as a whole.
async fn first_step(shared: &Arc<Shared>, body: Body, record: &Record) -> Result<Step, Status> {
    if shared.is_draining.load(Ordering::Relaxed) {
        return Err(Status::unavailable("the server is about to stop: ask again, or another one"));
    }
    let call = record.call;
    let mut messages = Messages::new(body, shared.served.expected.limits.max_message_bytes);
    let message = messages.next().await.map_err(IntoStatus::into_status)?;
    let message = message.ok_or_else(|| Status::invalid_argument("there is no request"))?;
    shared.metrics.received(call, FRAME_HEAD_BYTES + message.remaining());
    let served = Arc::clone(&shared.served);
    let first = move || {
        let mut answer = answer::start(call, message, &served)?;
        answer.next(&served).map(|chunk| (answer, chunk))
    };
    shared.work.run(first).await?
}

/// Refuses other protocols; gives the time that the caller allows, if it says.
fn checked_headers(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    if let Some(version) = headers.get(PROTOCOL_HEADER)
        && version.to_str().ok().and_then(|version| version.parse().ok()) != Some(PROTOCOL)
    {
        return Err(Status::failed_precondition(format!(
            "this server speaks version {PROTOCOL} of the protocol, not {}: use the same version of Kith on both ends",
            version.to_str().unwrap_or("this")
        )));
    }
    match headers.get("grpc-timeout") {
        None => Ok(None),
        Some(timeout) => timeout
            .to_str()
            .ok()
            .and_then(parse_timeout)
            .map(Some)
            .ok_or_else(|| Status::invalid_argument("grpc-timeout is not a number of at most 8 digits and a unit")),
    }
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
}
