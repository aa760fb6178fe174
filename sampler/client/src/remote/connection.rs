//! One attempt of a call over gRPC: sends a request and reads the answer as it arrives.

use std::{
    error::Error,
    fs,
    future::poll_fn,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body::{Frame, SizeHint};
use kith_log::{SPAN_HEADER, span_header};
use kith_proto::{CHECKSUM_HEADER, MessageError, Messages, PROTOCOL, PROTOCOL_HEADER, SESSION_HEADER, sentence};
use tonic::{
    Code, Status, TimeoutExpired,
    body::Body,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tower_service::Service;
use tracing::Span;

use crate::{
    remote::{
        answers::{AnswerError, Read},
        chunks::Chunks,
        config::{RemoteConfig, RemoteTls},
        counted::CountedConnector,
        error::RemoteProblem,
        progress::Progress,
        token::Token,
        transport::{Attempt, Question, Transport},
    },
    session::session,
};

/// HTTP/2: how much a server may send ahead of what is read. Enough for several answers at a time at the speed of a
/// local network.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 32 << 20;

/// Bytes that come at once: a call sees a frame when all of it is here. Chunks of 256 KiB fit: cutting them costs servers a
/// tenth of their CPU time.
const MAX_FRAME_BYTES: u32 = 288 << 10;

/// The most bytes of headers and trailers, the text of a status among them.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Cancelled calls of a connection that are remembered: servers may have sent chunks of them that are on their way.
const MAX_CANCELLED: usize = 256;

/// A server that does not answer pings is gone. A ping is sent when nothing else came; its answer may stand behind
/// megabytes of a slow line.
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a request that go at once: each piece that goes is progress.
const PIECE_BYTES: usize = 64 << 10;

/// A connection that is made when it is needed, and made again when it was lost.
#[derive(Debug)]
pub(crate) struct Connection {
    address: String,
    endpoint: Endpoint,
    connector: CountedConnector,
    /// Bytes received for all calls.
    received: Progress,
    tls: Option<RemoteTls>,
    token: Option<Token>,
    line: Mutex<Line>,
}

/// A channel, and the files with which its connections are made.
#[derive(Debug)]
struct Line {
    channel: Channel,
    files: Option<TlsFiles>,
    /// Number of times that files were read again.
    n_renewals: u64,
}

impl Connection {
    /// To be used within a tokio runtime.
    pub(crate) fn new(address: &str, config: &RemoteConfig) -> Result<Connection, RemoteProblem> {
        // Without a port it would be another service's, and nobody would say so.
        let host = match address.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => host,
            _ => return Err(RemoteProblem::Address("there is no port behind a colon".to_owned())),
        };
        if config.token.is_some() && config.tls.is_none() && !is_loopback(host) {
            return Err(RemoteProblem::TokenUnencrypted);
        }
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let bad_address = |error: tonic::transport::Error| RemoteProblem::Address(sentence(&error));
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(bad_address)?
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(MAX_FRAME_BYTES)
            .http2_max_header_list_size(MAX_HEADER_BYTES)
            .http2_max_concurrent_reset_streams(MAX_CANCELLED)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true);
        let token = config.token.as_ref().map(Token::read).transpose()?;
        let files = config.tls.as_ref().map(TlsFiles::read).transpose()?;
        let received = Progress::new();
        let connector = CountedConnector::new(config.max_silence, &received);
        let line = Mutex::new(Line::new(&endpoint, &connector, config.tls.as_ref(), files, 0)?);
        Ok(Connection {
            address: address.to_owned(),
            endpoint,
            connector,
            received,
            tls: config.tls.clone(),
            token,
            line,
        })
    }

    async fn exchange(
        &self,
        question: &Question,
        answer: &mut (dyn Read + Send),
        progress: &Progress,
        token: Option<&HeaderValue>,
        mut channel: Channel,
    ) -> Result<(), RemoteProblem> {
        let lost = |error: tonic::transport::Error| lost(&error);
        progress.goes_over(&self.received);
        poll_fn(|context| channel.poll_ready(context)).await.map_err(lost)?;
        let mut request = http_request(question, progress);
        if let Some(token) = token {
            request.headers_mut().insert(header::AUTHORIZATION, token.clone());
        }
        let response = channel.call(request).await.map_err(lost)?;
        if let Some(status) = Status::from_header_map(response.headers()) {
            return if status.code() == Code::Ok {
                Ok(answer.finish()?)
            } else {
                Err(RemoteProblem::of_status(&status))
            };
        }
        if response.status() != http::StatusCode::OK {
            return Err(RemoteProblem::Lost(format!("HTTP status {}: not a sampling server", response.status())));
        }
        let mut chunks = Chunks::new(question, answer);
        match response.headers().get(CHECKSUM_HEADER) {
            None => {} // A server of 0.1.0.
            Some(kind) if kind == "crc32" => chunks = chunks.checked(),
            Some(_) => return Err(RemoteProblem::Lost(format!("{CHECKSUM_HEADER} is not crc32"))),
        }
        let body = Watched { body: response.into_body(), progress };
        let mut messages = Messages::new(body, chunks.max_chunk_bytes());
        while let Some(chunk) = messages.next().await.map_err(of_message)? {
            chunks.take(chunk, answer)?;
        }
        match messages.trailers().and_then(Status::from_header_map) {
            Some(status) if status.code() == Code::Ok => Ok(answer.finish()?),
            Some(status) => Err(RemoteProblem::of_status(&status)),
            None => Err(RemoteProblem::Lost("the answer ended too early".to_owned())),
        }
    }

    /// The channel, and how often its files were read again.
    fn channel(&self) -> (Channel, u64) {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        (line.channel.clone(), line.n_renewals)
    }

    /// Reads certificates again, for connections that are made from now on; whether they are others than those of the
    /// connection that failed, which had been renewed `n_renewals` times: another call may have read them meanwhile.
    /// Files that cannot be read now leave those that were.
    fn has_new_files(&self, n_renewals: u64) -> bool {
        let Some(tls) = &self.tls else { return false };
        let files = TlsFiles::read(tls).ok();
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let files = files.filter(|files| line.files.as_ref() != Some(files));
        let next = line.n_renewals + 1;
        let renew = |files| Line::new(&self.endpoint, &self.connector, self.tls.as_ref(), Some(files), next).ok();
        if let Some(renewed) = files.and_then(renew) {
            *line = renewed;
        }
        line.n_renewals != n_renewals
    }
}

impl Line {
    fn new(
        endpoint: &Endpoint,
        connector: &CountedConnector,
        tls: Option<&RemoteTls>,
        files: Option<TlsFiles>,
        n_renewals: u64,
    ) -> Result<Line, RemoteProblem> {
        let mut endpoint = endpoint.clone();
        if let Some((tls, files)) = tls.zip(files.as_ref()) {
            let bad_tls = |error: tonic::transport::Error| RemoteProblem::Untrusted(sentence(&error));
            endpoint = endpoint.tls_config(files.config(tls)).map_err(bad_tls)?;
        }
        Ok(Line { channel: endpoint.connect_with_connector_lazy(connector.clone()), files, n_renewals })
    }
}

impl Transport for Connection {
    fn address(&self) -> &str {
        &self.address
    }

    fn ask<'a>(
        &'a self,
        question: &'a Question,
        answer: &'a mut (dyn Read + Send),
        progress: &'a Progress,
    ) -> Attempt<'a> {
        Box::pin(async move {
            let token = self.token.as_ref().map(Token::header);
            let (channel, n_renewals) = self.channel();
            let exchanged = self.exchange(question, answer, progress, token.as_ref(), channel).await;
            let Err(problem) = exchanged else { return Ok(()) };
            let again = |why: &str| Err(RemoteProblem::Lost(why.to_owned()));
            match problem {
                RemoteProblem::Unauthenticated(_)
                    if self.token.as_ref().zip(token.as_ref()).is_some_and(|(token, sent)| token.is_renewed(sent)) =>
                {
                    again("the token has changed meanwhile")
                }
                RemoteProblem::Untrusted(_) if self.has_new_files(n_renewals) => {
                    again("certificates have changed meanwhile")
                }
                // A server that rejects the certificate closes the connection; its reason does not reach this call.
                RemoteProblem::Lost(why) if self.tls.is_some() => {
                    self.has_new_files(n_renewals);
                    again(&format!(
                        "{why}; the server may ask for a certificate that it trusts, or have nothing to do with TLS"
                    ))
                }
                problem => Err(problem),
            }
        })
    }
}

/// Tells if bytes sent to a host stay on this one.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or(host.eq_ignore_ascii_case("localhost"), |address| address.to_canonical().is_loopback())
}

fn http_request(question: &Question, progress: &Progress) -> Request<Body> {
    let pieces = Pieces { rest: question.request.clone(), progress: progress.clone() };
    let mut http = Request::new(Body::new(pieces));
    *http.method_mut() = Method::POST;
    *http.uri_mut() = http::Uri::from_static(question.call.path());
    let headers = http.headers_mut();
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(PROTOCOL_HEADER, HeaderValue::from(PROTOCOL));
    headers.insert(SESSION_HEADER, HeaderValue::from_static(session()));
    if let Some(span) = span_header(&Span::current()).and_then(|span| HeaderValue::try_from(span).ok()) {
        headers.insert(SPAN_HEADER, span);
    }
    http
}

fn of_message(error: MessageError) -> RemoteProblem {
    match error {
        MessageError::Body(status) => lost(&status),
        MessageError::TooLarge { max_bytes, .. } => AnswerError::TooLong { max_bytes: max_bytes as u64 }.into(),
        MessageError::Compressed | MessageError::CutShort => RemoteProblem::Lost(error.to_string()),
    }
}

/// A connection that failed; where one end does not trust the other, trying again does not help.
fn lost(error: &(dyn Error + 'static)) -> RemoteProblem {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // TLS errors about certificates arrive as `InvalidData`.
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

/// The contents of PEM files.
#[derive(PartialEq, Eq)]
struct TlsFiles {
    ca: Vec<u8>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsFiles").finish_non_exhaustive() // A private key is among them.
    }
}

impl TlsFiles {
    fn read(files: &RemoteTls) -> Result<TlsFiles, RemoteProblem> {
        let read = |path: &std::path::Path| {
            fs::read(path).map_err(|error| RemoteProblem::File { path: path.to_owned(), problem: error.to_string() })
        };
        let identity = match &files.identity {
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
            None => None,
        };
        Ok(TlsFiles { ca: read(&files.ca)?, identity })
    }

    fn config(&self, tls: &RemoteTls) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca));
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        match &tls.server_name {
            Some(name) => config.domain_name(name),
            None => config,
        }
    }
}

/// Body that reports its bytes to the progress of the attempt as they arrive.
struct Watched<'a> {
    body: Body,
    progress: &'a Progress,
}

impl http_body::Body for Watched<'_> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.progress.received(data.len());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request of one frame, in pieces.
struct Pieces {
    rest: Bytes,
    progress: Progress,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let n_bytes = self.rest.len().min(PIECE_BYTES);
        self.progress.sent(n_bytes);
        let piece = (n_bytes > 0).then(|| self.rest.split_to(n_bytes));
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two calls fail on one connection. The first one reads the new files: they are new to the second one too.
    #[tokio::test]
    async fn every_call_of_a_connection_learns_of_new_files() {
        let temp = tempfile::tempdir().unwrap();
        let ca = temp.path().join("ca.pem");
        let certificate = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap().cert.pem();
        fs::write(&ca, certificate("before")).unwrap();
        let tls = RemoteTls { ca: ca.clone(), identity: None, server_name: None };
        let config = RemoteConfig { tls: Some(tls), ..RemoteConfig::default() };
        let connection = Connection::new("127.0.0.1:1", &config).unwrap();
        let (_, first) = connection.channel();
        let (_, second) = connection.channel();
        assert!(!connection.has_new_files(first), "nothing has changed");
        fs::write(&ca, certificate("after")).unwrap();
        assert!(connection.has_new_files(first));
        assert!(connection.has_new_files(second), "it failed with the files before");
        let (_, third) = connection.channel();
        assert!(!connection.has_new_files(third), "it failed with the files of today");
    }

    #[test]
    fn loopback_is_this_host_alone() {
        for host in ["127.0.0.1", "127.9.9.9", "[::1]", "localhost", "LOCALHOST", "[::ffff:127.0.0.1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["10.0.0.1", "0.0.0.0", "[::]", "sampler", "localhost.example.com", "127.0.0.1.example.com", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
