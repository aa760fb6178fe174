//! gRPC services besides the sampler: health and reflection.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, RecvStream, server::SendResponse};
use http::{Request, Response};
use http_body::Frame;
use kith_proto::{FILE_DESCRIPTORS, SERVICE};
use tokio::time::{Instant, timeout_at};
use tonic::{Status, body::Body};
use tonic_health::{ServingStatus, server::HealthReporter};
use tower_service::Service;

use crate::server::error::ServeError;

type Answered = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
/// Answers of a service.
pub(crate) type Ask = Box<dyn Fn(Request<Body>) -> Answered + Send + Sync>;

/// Services beside the sampler's: health and reflection.
pub(crate) struct Tools {
    pub(crate) reporter: HealthReporter,
    pub(crate) health: Ask,
    pub(crate) reflection: Ask,
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tools")
    }
}

impl Tools {
    pub(crate) async fn new() -> Result<Tools, ServeError> {
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter.set_service_status(SERVICE, ServingStatus::Serving).await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTORS)
            .build_v1()
            .map_err(|error| ServeError::System(error.to_string()))?;
        Ok(Tools { reporter, health: asked(health), reflection: asked(reflection) })
    }
}

fn asked<S>(service: S) -> Ask
where
    S: Service<Request<Body>, Response = Response<Body>, Error = std::convert::Infallible> + Clone,
    S: Send + Sync + 'static,
    S::Future: Send + 'static,
{
    Box::new(move |request| {
        let answer = service.clone().call(request);
        Box::pin(async move { answer.await.unwrap_or_else(|never| match never {}) })
    })
}

/// Bytes of a request to a service beside the sampler's.
const MAX_TOOL_BYTES: usize = 4 << 10;

/// The longest that such an answer waits for its client to read.
const MAX_TOOL_WAIT: Duration = Duration::from_secs(20);

/// Answers a call of such a service.
pub(crate) async fn send_answer(service: &Ask, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let request = request.map(|stream| Body::new(SmallBody { stream, n_left: MAX_TOOL_BYTES }));
    let response = tokio::select! {
        response = service(request) => response,
        _ = poll_fn(|context| respond.poll_reset(context)) => return,
    };
    let (head, mut body) = response.into_parts();
    let is_empty = http_body::Body::is_end_stream(&body);
    let Ok(mut stream) = respond.send_response(Response::from_parts(head, ()), is_empty) else { return };
    if is_empty {
        return;
    }
    loop {
        let frame = tokio::select! {
            frame = poll_fn(|context| http_body::Body::poll_frame(Pin::new(&mut body), context)) => frame,
            _ = poll_fn(|context| stream.poll_reset(context)) => return,
        };
        let Some(Ok(frame)) = frame else { break };
        match frame.into_data() {
            Ok(mut data) => {
                let deadline = Instant::now() + MAX_TOOL_WAIT;
                while !data.is_empty() {
                    stream.reserve_capacity(data.len());
                    match timeout_at(deadline, poll_fn(|context| stream.poll_capacity(context))).await {
                        Ok(Some(Ok(n_bytes))) => {
                            let some = data.split_to(n_bytes.min(data.len()));
                            if stream.send_data(some, false).is_err() {
                                return;
                            }
                        }
                        Ok(_) => return,
                        Err(_) => return stream.send_reset(Reason::CANCEL),
                    }
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    let _ = stream.send_trailers(trailers); // The client may have left.
                }
                return;
            }
        }
    }
    let _ = stream.send_data(Bytes::new(), true);
}

/// The body of a small request.
struct SmallBody {
    stream: RecvStream,
    n_left: usize,
}

impl http_body::Body for SmallBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.stream.poll_data(context).map(|data| match data? {
            Ok(data) if data.len() <= self.n_left => {
                self.n_left -= data.len();
                let _ = self.stream.flow_control().release_capacity(data.len()); // The stream may be gone.
                Some(Ok(Frame::data(data)))
            }
            Ok(_) => Some(Err(Status::resource_exhausted(format!(
                "a request of this service is over the limit of {MAX_TOOL_BYTES} bytes"
            )))),
            Err(error) => Some(Err(Status::cancelled(error.to_string()))),
        })
    }
}
