//! Test server: one request per connection, one thread each, and a limit on every wait.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// No test needs longer, and no thread of one lives longer.
const LIFE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    fn read(stream: &TcpStream) -> io::Result<Request> {
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().unwrap_or(Ok(String::new()))?;
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut headers = Vec::new();
        for line in lines {
            let line = line?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Request { path, headers })
    }
}

/// Behavior of the server after sending its reply.
#[derive(Clone, Copy)]
pub(super) enum After {
    Close,
    Stall,
    Trickle,
}

pub(super) struct Reply {
    head: String,
    body: Vec<u8>,
    cut: usize,
    after: After,
}

impl Reply {
    pub(super) fn raw(head: &str) -> Reply {
        Reply { head: head.to_owned(), body: Vec::new(), cut: usize::MAX, after: After::Close }
    }

    fn new(status: &str, body: &[u8]) -> Reply {
        let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n");
        Reply { body: body.to_owned(), ..Reply::raw(&head) }
    }

    pub(super) fn status(status: u16) -> Reply {
        Reply::new(&format!("{status} Thing"), b"").with("Content-Length: 0")
    }

    /// The whole file, whatever was asked for.
    pub(super) fn whole(body: &[u8]) -> Reply {
        Reply::new("200 OK", body).with(&format!("Content-Length: {}", body.len()))
    }

    /// A file whose end is only the end of the connection.
    pub(super) fn endless(body: &[u8]) -> Reply {
        Reply::new("200 OK", body)
    }

    /// A part of the file, said to be this range.
    pub(super) fn part(body: &[u8], range: &str) -> Reply {
        let reply = Reply::new("206 Partial Content", body).with(&format!("Content-Length: {}", body.len()));
        if range.is_empty() { reply } else { reply.with(&format!("Content-Range: {range}")) }
    }

    /// Reply of a correct server.
    pub(super) fn file(request: &Request, body: &[u8], tag: &str) -> Reply {
        let is_same = request.header("if-range").is_none_or(|asked| asked == tag);
        let range = request.header("range").filter(|_| is_same).and_then(|range| range.strip_prefix("bytes="));
        let start: Option<usize> = range.and_then(|range| range.strip_suffix('-')).and_then(|start| start.parse().ok());
        let reply = match start {
            None => Reply::whole(body),
            Some(start) if start >= body.len() => {
                Reply::status(416).with(&format!("Content-Range: bytes */{}", body.len()))
            }
            Some(start) => Reply::part(&body[start..], &format!("bytes {start}-{}/{}", body.len() - 1, body.len())),
        };
        if tag.is_empty() { reply } else { reply.with(&format!("ETag: {tag}")) }
    }

    pub(super) fn with(mut self, header: &str) -> Reply {
        self.head.insert_str(self.head.len() - 2, &format!("{header}\r\n"));
        self
    }

    /// Sends only the first `at` bytes of the body.
    pub(super) fn cut(mut self, at: usize) -> Reply {
        self.cut = at;
        self
    }

    pub(super) fn then(mut self, after: After) -> Reply {
        self.after = after;
        self
    }

    fn send(&self, stream: &mut TcpStream, is_over: &AtomicBool) -> io::Result<()> {
        stream.write_all(self.head.as_bytes())?;
        let cut = self.cut.min(self.body.len());
        stream.write_all(&self.body[..cut])?;
        let start = Instant::now();
        let mut rest = self.body[cut..].iter();
        while !matches!(self.after, After::Close) && !is_over.load(Ordering::Relaxed) && start.elapsed() < LIFE {
            thread::sleep(Duration::from_millis(20));
            if let (After::Trickle, Some(byte)) = (self.after, rest.next()) {
                stream.write_all(&[*byte])?;
            }
        }
        Ok(())
    }
}

pub(super) struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers the n-th request, from 0, with the reply of `handler`.
    pub(super) fn start(handler: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("it can be");
        let port = listener.local_addr().expect("it has one").port();
        let (seen, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let shared = (Arc::clone(&seen), Arc::clone(&is_over));
        let thread = thread::spawn(move || accept(&listener, &shared.0, &shared.1, Arc::new(handler)));
        Server { port, seen, is_over, thread: Some(thread) }
    }

    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// An address where nobody listens.
    pub(super) fn nowhere() -> String {
        "http://127.0.0.1:1".to_owned()
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.seen.lock().expect("no handler panicked").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

type Handler = dyn Fn(usize, &Request) -> Reply + Send + Sync;

fn accept(listener: &TcpListener, seen: &Arc<Mutex<Vec<Request>>>, is_over: &Arc<AtomicBool>, handler: Arc<Handler>) {
    let start = Instant::now();
    let mut threads = Vec::new();
    while !is_over.load(Ordering::Relaxed) && start.elapsed() < LIFE {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        let (seen, is_over, handler) = (Arc::clone(seen), Arc::clone(is_over), Arc::clone(&handler));
        // A client that hangs up is part of the tests, so what goes wrong here is not looked at.
        threads.push(thread::spawn(move || drop(answer(stream, &seen, &is_over, &*handler))));
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

fn answer(
    mut stream: TcpStream,
    seen: &Mutex<Vec<Request>>,
    is_over: &AtomicBool,
    handler: &Handler,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let request = Request::read(&stream)?;
    let n = {
        let mut seen = seen.lock().map_err(|_| io::Error::other("a handler panicked"))?;
        seen.push(request.clone());
        seen.len() - 1
    };
    handler(n, &request).send(&mut stream, is_over)
}
