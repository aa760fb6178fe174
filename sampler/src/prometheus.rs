//! Prometheus metrics: the text format, and the port that serves it (HTTP/1.1, one connection per request).

use std::{fmt::Write, io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

/// A page in Prometheus's text format.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// Begins a family of samples.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n"); // A string takes all.
    }

    /// One sample.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let _ = match labels.is_empty() {
            true => writeln!(self.0, "{name} {value}"),
            false => writeln!(self.0, "{name}{{{}}} {value}", labels.join(",")),
        };
    }

    /// The whole text.
    pub fn finish(self) -> String {
        self.0
    }
}

/// The longest that a question and its answer may take.
const MAX_TIME: Duration = Duration::from_secs(5);

/// Bytes of a question.
const MAX_BYTES: usize = 8 << 10;

/// Connections that are answered at a time; others wait.
const MAX_CONNECTIONS: usize = 64;

/// Status and body of a page.
#[derive(Clone, Debug)]
pub struct Shown {
    status: &'static str,
    body: String,
}

impl Shown {
    /// A page.
    pub fn page(body: String) -> Shown {
        Shown { status: "200 OK", body }
    }

    /// Status 503, and why.
    pub fn unavailable(why: &str) -> Shown {
        Shown { status: "503 Service Unavailable", body: why.to_owned() }
    }
}

/// The pages of a port, by path.
pub type Pages = dyn Fn(&str) -> Option<Shown> + Send + Sync;

/// Answers `/metrics` with what `page` gives, until it is dropped.
pub async fn serve(listener: TcpListener, page: Arc<dyn Fn() -> String + Send + Sync>) {
    serve_pages(listener, Arc::new(move |path: &str| (path == "/metrics").then(|| Shown::page(page())))).await;
}

/// Answers with `pages`, until it is dropped.
pub async fn serve_pages(listener: TcpListener, pages: Arc<Pages>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = Arc::clone(&room).acquire_owned().await.expect("it is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let pages = Arc::clone(&pages);
                tokio::spawn(async move {
                    let _ = timeout(MAX_TIME, answer(stream, &*pages)).await;
                    drop(permit);
                });
            }
            // Out of files or memory: others may give some back.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(mut stream: TcpStream, pages: &Pages) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_BYTES || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let Shown { status, body } = match std::str::from_utf8(line).unwrap_or_default().split(' ').collect::<Vec<_>>()[..]
    {
        ["GET", path, _] => pages(path)
            .unwrap_or_else(|| Shown { status: "404 Not Found", body: "metrics are at /metrics\n".to_owned() }),
        _ => Shown { status: "405 Method Not Allowed", body: "metrics are read by GET\n".to_owned() },
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}
