//! Prometheus metrics: the port that serves them (HTTP/1.1, one connection per request), and those of every process.

mod process;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

pub use self::process::describe_process;

/// The longest that a question and its answer may take.
const MAX_TIME: Duration = Duration::from_secs(5);

/// Bytes of a question.
const MAX_BYTES: usize = 8 << 10;

/// Connections that are answered at a time; others wait.
const MAX_CONNECTIONS: usize = 64;

/// Format of metrics, which Prometheus 2.5 and later read.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Format of all other pages.
const PLAIN: &str = "text/plain; charset=utf-8";

/// Status and body of a page.
#[derive(Clone, Debug)]
pub struct Shown {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Shown {
    /// A page.
    pub fn page(body: String) -> Shown {
        Shown { status: "200 OK", content_type: PLAIN, body }
    }

    /// The current values of metrics.
    pub fn metrics(registry: &Registry) -> Shown {
        let mut body = String::new();
        match encode(&mut body, registry) {
            Ok(()) => Shown { status: "200 OK", content_type: OPEN_METRICS, body },
            // A string takes all: a metric refused to be written.
            Err(_) => {
                Shown { status: "500 Internal Server Error", ..Shown::page("a metric is malformed\n".to_owned()) }
            }
        }
    }

    /// Status 503, and why.
    pub fn unavailable(why: &str) -> Shown {
        Shown { status: "503 Service Unavailable", ..Shown::page(why.to_owned()) }
    }
}

/// The pages of a port, by path.
pub type Pages = dyn Fn(&str) -> Option<Shown> + Send + Sync;

/// Serves the values of a registry at an address, on a thread of its own, until the process ends; gives the address that was bound.
pub fn show(address: SocketAddr, registry: Registry) -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = move || {
        runtime.block_on(async move {
            if let Ok(listener) = TcpListener::from_std(listener) {
                serve(listener, registry).await;
            }
        });
    };
    std::thread::Builder::new().name("kith-metrics".to_owned()).spawn(run)?;
    Ok(bound)
}

/// Answers `/metrics` with the values of a registry, until it is dropped.
pub async fn serve(listener: TcpListener, registry: Registry) {
    serve_pages(listener, Arc::new(move |path: &str| (path == "/metrics").then(|| Shown::metrics(&registry)))).await;
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
    let words: Vec<&str> = std::str::from_utf8(line).unwrap_or_default().split(' ').collect();
    let missing = |status, body: &str| Shown { status, ..Shown::page(body.to_owned()) };
    let Shown { status, content_type, body } = match words[..] {
        ["GET", path, _] => pages(path).unwrap_or_else(|| missing("404 Not Found", "metrics are at /metrics\n")),
        _ => missing("405 Method Not Allowed", "metrics are read by GET\n"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}
