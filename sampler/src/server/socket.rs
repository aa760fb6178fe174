//! Socket that lets its client read to the end before it closes.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

/// Socket that closes only after its client has closed its end. Closing a socket with unread input (a window update is
/// enough) discards the data that is still to be sent.
#[derive(Debug)]
pub(crate) struct PatientSocket {
    stream: TcpStream,
    /// Once our end is shut: how long the other may take.
    limit: Option<Pin<Box<Sleep>>>,
}

/// The longest wait for a client that does not close its end.
const MAX_WAIT: Duration = Duration::from_secs(5);

impl PatientSocket {
    pub(crate) fn new(stream: TcpStream) -> PatientSocket {
        PatientSocket { stream, limit: None }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl AsyncRead for PatientSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, into)
    }
}

impl AsyncWrite for PatientSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.limit.is_none() {
            ready!(self.as_mut().stream().poll_shutdown(context))?;
            self.limit = Some(Box::pin(sleep(MAX_WAIT)));
        }
        let mut ignored = [0; 4096];
        loop {
            let mut into = ReadBuf::new(&mut ignored);
            match self.as_mut().stream().poll_read(context, &mut into) {
                Poll::Ready(Ok(())) if !into.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
        }
        let limit = self.limit.as_mut().expect("just set");
        limit.as_mut().poll(context).map(Ok)
    }
}
