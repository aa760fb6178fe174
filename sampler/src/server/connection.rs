//! One connection: its handshakes, its calls and its end.

use std::{
    future::poll_fn,
    io,
    sync::{Arc, atomic::Ordering},
    task::{Context, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{Ping, Reason, server::Builder};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::server::{
    access::Peer,
    connections::Connection,
    input::STREAM_WINDOW_BYTES,
    names::names_of,
    refused::{Broken, Refused},
    service,
    shared::Shared,
    socket::PatientSocket,
    tls::Tls,
};

/// HTTP/2: the largest frame of a client. A frame is buffered as a whole.
const MAX_FRAME_BYTES: u32 = 64 << 10;

/// Bytes of the headers of a request.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Interval of checks of a connection.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A connection that does not answer pings is given up: it has as long for an answer.
const PING_EVERY: Duration = Duration::from_secs(20);

/// Time limit for a connection to close after it was asked to.
const MAX_GOING: Duration = Duration::from_millis(500);

/// Serves a connection to its end.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    tls: Option<Arc<Tls>>,
    connection: Arc<Connection>,
    stream: TcpStream,
) -> Result<(), Broken> {
    let limits = shared.served.expected.limits;
    let _ = stream.set_nodelay(true); // It is slower without.
    // Nothing is said to who says nothing.
    let mut first = [0];
    let peeked = tokio::select! {
        peeked = timeout(limits.max_handshake, stream.peek(&mut first)) => peeked.map_err(Refused::Silent.by())?,
        () = connection.signaled() => return Ok(()),
    };
    let n_bytes = peeked.map_err(Refused::Silent.by())?;
    if n_bytes == 0 {
        return Ok(());
    }
    let hint = hint(first[0], tls.is_some());
    begun(shared, tls, connection, stream).await.map_err(|broken| broken.with_hint(hint))
}

/// The likely reason of an error at the beginning of a connection, from its first byte.
fn hint(first: u8, has_tls: bool) -> Option<&'static str> {
    /// First bytes of a TLS handshake, and of HTTP/2's `PRI * HTTP/2.0`.
    const TLS: u8 = 0x16;
    const HTTP2: u8 = b'P';
    match (has_tls, first) {
        (false, TLS) => Some("the client uses TLS, this server does not (--tls-cert)"),
        (false, HTTP2) | (true, TLS) => None,
        (false, _) => Some("the client does not speak HTTP/2"),
        (true, _) => Some("the client does not use TLS"),
    }
}

/// Serves a connection whose first byte has come.
async fn begun(
    shared: Arc<Shared>,
    tls: Option<Arc<Tls>>,
    connection: Arc<Connection>,
    stream: TcpStream,
) -> Result<(), Broken> {
    let limits = shared.served.expected.limits;
    let socket = PatientSocket::new(stream);
    let Some(tls) = tls else {
        return serve_http(shared, connection, Arc::default(), socket).await;
    };
    let accepted = tokio::select! {
        accepted = timeout(limits.max_handshake, tls.acceptor().accept(socket)) => accepted,
        () = connection.signaled() => return Ok(()),
    };
    let socket = accepted.map_err(Refused::Tls.by())?.map_err(Refused::Tls.by())?;
    let certificate = socket.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let peer = Peer { names: certificate.map(names_of).unwrap_or_default() };
    serve_http(shared, connection, Arc::new(peer), socket).await
}

async fn serve_http(
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    peer: Arc<Peer>,
    socket: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<(), Broken> {
    let limits = shared.served.expected.limits;
    // Every stream can have its window: one whose client does not read cannot keep another from sending.
    let window = u64::from(STREAM_WINDOW_BYTES) * u64::from(limits.max_in_flight.max(1));
    let handshake = Builder::new()
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(window.min((1 << 31) - 1) as u32)
        .max_frame_size(MAX_FRAME_BYTES)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_concurrent_streams(limits.max_in_flight)
        .handshake::<_, Bytes>(socket);
    let mut http = tokio::select! {
        http = timeout(limits.max_handshake, handshake) => http.map_err(Refused::Http2.by())?,
        () = connection.signaled() => return Ok(()),
    }
    .map_err(io::Error::other)
    .map_err(Refused::Http2.by())?;
    let mut pings = http.ping_pong().expect("it is taken once");
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut n_ticks, mut is_pinged, mut going_since) = (0, false, None::<Instant>);
    loop {
        tokio::select! {
            biased;
            accepted = http.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    let (shared, connection, peer) = (Arc::clone(&shared), Arc::clone(&connection), Arc::clone(&peer));
                    tokio::spawn(service::answer(shared, connection, peer, request, respond));
                }
                Some(Err(error)) => return Err(Refused::Protocol.by()(io::Error::other(error))),
                None => return Ok(()),
            },
            () = connection.signaled() => {}
            _ = ticks.tick() => {
                n_ticks += 1;
                if n_ticks % PING_EVERY.as_secs() == 0 {
                    is_pinged = is_pinged && pings.poll_pong(&mut Context::from_waker(Waker::noop())).is_pending();
                    if is_pinged {
                        return Err(Refused::Protocol.by()(io::ErrorKind::TimedOut));
                    }
                    is_pinged = pings.send_ping(Ping::opaque()).is_ok();
                }
            }
        }
        let max_idle = if connection.is_known() { limits.max_idle } else { limits.max_idle.min(limits.max_handshake) };
        if connection.is_ending() {
            http.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
            let _ = timeout(MAX_GOING, poll_fn(|context| http.poll_closed(context))).await;
            return Ok(());
        }
        match going_since {
            None if shared.is_draining.load(Ordering::Relaxed) || connection.idle() > max_idle => {
                going_since = Some(Instant::now());
                http.graceful_shutdown();
            }
            // A client that does not answer is not waited for.
            Some(since) if since.elapsed() > MAX_GOING && connection.idle() > max_idle => return Ok(()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_client_is_told_from_its_first_byte() {
        assert_eq!([hint(b'P', false), hint(0x16, true)], [None; 2]);
        assert!(hint(0x16, false).is_some_and(|hint| hint.contains("uses TLS")));
        assert_eq!(hint(b'G', false), Some("the client does not speak HTTP/2"));
        assert_eq!(hint(b'P', true), Some("the client does not use TLS"));
        let broken = || Refused::Http2.by()(io::Error::other("a bad preface"));
        assert_eq!(
            broken().with_hint(hint(0, false)).error.to_string(),
            "the client does not speak HTTP/2: a bad preface"
        );
        assert_eq!(broken().with_hint(None).error.to_string(), "a bad preface");
    }
}
