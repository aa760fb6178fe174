//! The port on which metrics are read: one page, HTTP/1.1, a connection per question.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::server::metrics::Metrics;

/// The longest that a question and its answer may take.
const MAX_TIME: Duration = Duration::from_secs(5);

/// Bytes of a question.
const MAX_BYTES: usize = 8 << 10;

/// Answers until it is dropped.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let metrics = Arc::clone(&metrics);
                tokio::spawn(timeout(MAX_TIME, async move { answer(stream, &metrics).await }));
            }
            // Out of files or memory: others may give some back.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(mut stream: TcpStream, metrics: &Metrics) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_BYTES || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let (status, body) = match std::str::from_utf8(line).unwrap_or_default().split(' ').collect::<Vec<_>>()[..] {
        ["GET", "/metrics", _] => ("200 OK", metrics.page()),
        ["GET", ..] => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "metrics are read by GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}
