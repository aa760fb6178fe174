//! Connections that count received bytes as they arrive, including those of incomplete frames and of other calls.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tower_service::Service;

use crate::remote::progress::Progress;

/// Makes connections that tell a progress what they receive.
#[derive(Clone, Debug)]
pub(crate) struct CountedConnector {
    tcp: HttpConnector,
    received: Progress,
}

impl CountedConnector {
    pub(crate) fn new(connect_timeout: Duration, received: &Progress) -> CountedConnector {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(connect_timeout));
        CountedConnector { tcp, received: received.clone() }
    }
}

impl Service<Uri> for CountedConnector {
    type Response = TokioIo<Counted>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(context)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let (connecting, received) = (self.tcp.call(server), self.received.clone());
        Box::pin(async move { Ok(TokioIo::new(Counted { stream: connecting.await?.into_inner(), received })) })
    }
}

/// A TCP connection of a [`CountedConnector`].
#[derive(Debug)]
pub(crate) struct Counted {
    stream: TcpStream,
    received: Progress,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let n_before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buf);
        self.received.received(buf.filled().len() - n_before);
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
