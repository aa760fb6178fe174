//! One attempt of a call: a request goes, an answer is read as it comes.

use std::{
    error::Error,
    fs,
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body::{Frame, SizeHint};
use kith_proto::{Call, MessageError, Messages, PROTOCOL, PROTOCOL_HEADER, sentence};
use tokio::time::Instant;
use tonic::{
    Code, Status, TimeoutExpired,
    body::Body,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tower_service::Service;

use crate::remote::{
    answers::Read,
    config::{RemoteConfig, RemoteTls},
    error::RemoteProblem,
    transport::{Asked, Transport},
};

/// HTTP/2: how much a server may send ahead of what is read. Enough for several answers at a time at the speed of a
/// local network.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;
const MAX_FRAME_BYTES: u32 = 1 << 20;

/// The longest message of an answer: chunks are far shorter, but a sparse row or a list may be long.
const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// A server that does not answer pings is gone.
const PING_EVERY: Duration = Duration::from_secs(5);

/// A connection that is made when it is needed, and made again when it was lost.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    channel: Channel,
    is_encrypted: bool,
}

impl Connection {
    /// To be used within a tokio runtime.
    pub(crate) fn new(address: &str, config: &RemoteConfig) -> Result<Connection, RemoteProblem> {
        // Without a port it would be another service's, and nobody would say so.
        if address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok()).is_none() {
            return Err(RemoteProblem::Address("there is no port behind a colon".to_owned()));
        }
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let bad_address = |error: tonic::transport::Error| RemoteProblem::Address(sentence(&error));
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(bad_address)?
            .connect_timeout(config.max_attempt)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(MAX_FRAME_BYTES)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_EVERY)
            .keep_alive_while_idle(true);
        if let Some(tls) = &config.tls {
            let bad_tls = |error: tonic::transport::Error| RemoteProblem::Untrusted(sentence(&error));
            endpoint = endpoint.tls_config(tls_config(tls)?).map_err(bad_tls)?;
        }
        Ok(Connection { channel: endpoint.connect_lazy(), is_encrypted: config.tls.is_some() })
    }

    async fn exchange(
        &self,
        call: Call,
        request: Bytes,
        answer: &mut (dyn Read + Send),
        deadline: Instant,
    ) -> Result<(), RemoteProblem> {
        let lost = |error: tonic::transport::Error| lost(&error);
        let mut channel = self.channel.clone();
        poll_fn(|context| channel.poll_ready(context)).await.map_err(lost)?;
        let response = channel.call(http_request(call, request, deadline)).await.map_err(lost)?;
        if let Some(status) = Status::from_header_map(response.headers()) {
            return if status.code() == Code::Ok { Ok(answer.finish()?) } else { Err(RemoteProblem::Refused(status)) };
        }
        if response.status() != http::StatusCode::OK {
            return Err(RemoteProblem::Lost(format!("HTTP status {}: not a sampling server", response.status())));
        }
        let mut messages = Messages::new(response.into_body(), MAX_MESSAGE_BYTES);
        while let Some(message) = messages.next().await.map_err(of_message)? {
            answer.read(message)?;
        }
        match messages.trailers().and_then(Status::from_header_map) {
            Some(status) if status.code() == Code::Ok => Ok(answer.finish()?),
            Some(status) => Err(RemoteProblem::Refused(status)),
            None => Err(RemoteProblem::Lost("the answer ended too early".to_owned())),
        }
    }
}

impl Transport for Connection {
    fn ask<'a>(
        &'a self,
        call: Call,
        request: Bytes,
        answer: &'a mut (dyn Read + Send),
        deadline: Instant,
    ) -> Asked<'a> {
        Box::pin(async move {
            match self.exchange(call, request, answer, deadline).await {
                // A server that wants another certificate closes the connection, and says why where nobody hears it.
                Err(RemoteProblem::Lost(why)) if self.is_encrypted => Err(RemoteProblem::Lost(format!(
                    "{why}; the server may ask for a certificate that it trusts, or have nothing to do with TLS"
                ))),
                asked => asked,
            }
        })
    }
}

fn http_request(call: Call, request: Bytes, deadline: Instant) -> Request<Body> {
    let mut http = Request::new(Body::new(OneFrame(Some(request))));
    *http.method_mut() = Method::POST;
    *http.uri_mut() = http::Uri::from_static(call.path());
    let headers = http.headers_mut();
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(PROTOCOL_HEADER, HeaderValue::from(PROTOCOL));
    // At most eight digits.
    let millis = deadline.saturating_duration_since(Instant::now()).as_millis().clamp(1, 99_999_999);
    let timeout = HeaderValue::from_str(&format!("{millis}m")).expect("digits and a letter");
    headers.insert("grpc-timeout", timeout);
    http
}

fn of_message(error: MessageError) -> RemoteProblem {
    match error {
        MessageError::Body(status) => lost(&status),
        MessageError::Compressed | MessageError::TooLarge { .. } | MessageError::CutShort => {
            RemoteProblem::Lost(error.to_string())
        }
    }
}

/// A connection that failed; where one end does not trust the other, trying again does not help.
fn lost(error: &(dyn Error + 'static)) -> RemoteProblem {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // What TLS says of certificates comes as data that make no sense.
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::InvalidData) {
            return RemoteProblem::Untrusted(error.to_string());
        }
        if error.is::<TimeoutExpired>() {
            return RemoteProblem::Late;
        }
        cause = error.source();
    }
    RemoteProblem::Lost(sentence(error))
}

fn tls_config(files: &RemoteTls) -> Result<ClientTlsConfig, RemoteProblem> {
    let read = |path: &std::path::Path| {
        fs::read(path).map_err(|error| RemoteProblem::File { path: path.to_owned(), problem: error.to_string() })
    };
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&files.ca)?));
    if let Some((certificate, key)) = &files.identity {
        config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    if let Some(name) = &files.server_name {
        config = config.domain_name(name);
    }
    Ok(config)
}

/// A request that is one frame.
struct OneFrame(Option<Bytes>);

impl http_body::Body for OneFrame {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.take().map(|frame| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |frame| frame.len() as u64))
    }
}
