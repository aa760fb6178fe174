//! Downloads one file over HTTP: retries when the network fails, resumes where it stopped, never mixes two versions.
//!
//! Beside `FILE.part` lies `FILE.part.tag`: the address, the version of the file according to the server (a strong
//! ETag, or the time of its last change), and its total length.

use std::{
    error,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use kith_partition::{
    dataset::catalog::Check,
    progress::{Piece, Progress, Unit},
};
use reqwest::{
    Url,
    blocking::{Client, Response},
    header::{
        ACCEPT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_RANGE, LAST_MODIFIED, RANGE,
    },
    redirect::{Action, Attempt, Policy},
};

use super::{
    error::{FetchError, Trouble, here},
    options::FetchOptions,
};

/// Less than this within one stall time counts as nothing.
const TRICKLE: u64 = 1 << 10;
/// A try that gets this much further than any before it does not count as failed.
const HEADWAY: u64 = 1 << 20;

/// Source and destination of a download.
pub(super) struct Target<'a> {
    pub(super) url: &'a str,
    pub(super) what: &'a str,
    pub(super) part: &'a Path,
    pub(super) check: &'a Check,
}

/// Summary of a download.
pub(super) struct Received {
    /// Bytes that came over the network.
    pub(super) n_bytes: u64,
    /// True if it continued an earlier download.
    pub(super) is_resumed: bool,
}

/// The HTTP client. Every wait of it has a limit.
pub(super) fn client(options: &FetchOptions) -> Result<Client, FetchError> {
    // The TLS provider of this process; where another was chosen before, that one is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("kith/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(options.connect)
        .timeout(options.stall) // For an answer to begin, and for every read of it.
        .redirect(Policy::custom(follow));
    if !options.use_proxy {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| FetchError::Client { problem: cause(&error) })
}

/// Refuses redirects from https to an address without encryption.
fn follow(attempt: Attempt) -> Action {
    let is_safe = |url: &Url| url.scheme() == "https";
    if attempt.previous().first().is_some_and(is_safe) && !is_safe(attempt.url()) {
        let problem = format!("it leads to an address that is not safe: {}", attempt.url());
        return attempt.error(problem);
    }
    Policy::default().redirect(attempt)
}

/// Downloads until the part file is whole, as far as the server says; the caller checks its content.
pub(super) fn download(
    client: &Client,
    target: &Target,
    options: &FetchOptions,
    progress: &dyn Progress,
) -> Result<Received, Trouble> {
    let mut received = Received { n_bytes: 0, is_resumed: false };
    let (mut n_failed, mut furthest) = (0, 0);
    loop {
        let problem = match attempt(client, target, options, progress, &mut received) {
            Ok(()) => return Ok(received),
            Err(Trouble::Passing(problem)) => problem,
            Err(trouble) => return Err(trouble),
        };
        let length = fs::metadata(target.part).map_or(0, |metadata| metadata.len());
        if length >= furthest + HEADWAY {
            (n_failed, furthest) = (0, length);
        }
        if n_failed == options.n_retries {
            let times =
                if n_failed > 0 { format!(" (tried {} times)", n_failed.saturating_add(1)) } else { String::new() };
            return Err(Trouble::Lasting(problem + &times));
        }
        thread::sleep(options.backoff.saturating_mul(1 << n_failed.min(5)).min(Duration::from_secs(30)));
        n_failed += 1;
    }
}

fn attempt(
    client: &Client,
    target: &Target,
    options: &FetchOptions,
    progress: &dyn Progress,
    received: &mut Received,
) -> Result<(), Trouble> {
    let part = PartFile::load(target);
    if part.n_bytes > 0 && target.check.n_bytes == Some(part.n_bytes) {
        received.is_resumed = true;
        return Ok(());
    }
    // Lengths and ranges then count the bytes of the file itself.
    let mut request = client.get(target.url).header(ACCEPT_ENCODING, "identity");
    if part.n_bytes > 0 {
        request = request.header(RANGE, format!("bytes={}-", part.n_bytes));
        if let Some(tag) = &part.tag {
            request = request.header(IF_RANGE, tag);
        }
    }
    let response = request.send().map_err(|error| trouble(&error, options))?;
    let Some(start) = start_of(&response, &part, target)? else {
        received.is_resumed = true;
        return Ok(());
    };
    check_kind(&response)?;
    received.is_resumed = start > 0;
    let total = match content_range(response.headers()).1 {
        Some(total) if start > 0 => Some(total),
        _ => response.content_length().map(|rest| rest.saturating_add(start)),
    };
    check_length(total, target, options)?;
    let file = open_part(target, start, response.headers(), total).map_err(local(target))?;
    let piece = Piece::begin(progress, target.what, total.or(target.check.n_bytes), Unit::Bytes);
    piece.advance(start);
    let body = Incoming { reader: response, file, start, total };
    body.receive(target, options, &piece, &mut received.n_bytes)
}

/// Offset of the body in the file; `None` if the file is already complete.
fn start_of(response: &Response, part: &PartFile, target: &Target) -> Result<Option<u64>, Trouble> {
    let status = response.status();
    let (first, total) = content_range(response.headers());
    let answered = || match status.canonical_reason() {
        Some(reason) => format!("the server answered {} {reason}", status.as_u16()),
        None => format!("the server answered {}", status.as_u16()),
    };
    let is_asked = part.n_bytes > 0 && part.is_of(response.headers(), total);
    match status.as_u16() {
        200 => Ok(Some(0)),
        206 if is_asked && first == Some(part.n_bytes) => Ok(Some(part.n_bytes)),
        416 if is_asked && total == Some(part.n_bytes) => Ok(None),
        206 | 416 if part.n_bytes > 0 => {
            discard(target.part).map_err(local(target))?;
            Err(Trouble::Passing("the file there is another one than before".to_owned()))
        }
        408 | 429 | 500..=599 => Err(Trouble::Passing(answered())),
        _ => Err(Trouble::Lasting(answered())),
    }
}

/// Refuses a page that was sent in place of the file.
fn check_kind(response: &Response) -> Result<(), Trouble> {
    let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if kind.get(..9).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/html")) {
        let problem = "the server sent a web page instead of the file (a notice, a login or a limit on downloads)";
        return Err(Trouble::Lasting(problem.to_owned()));
    }
    Ok(())
}

/// Refuses a file that announces a length it must not have.
fn check_length(total: Option<u64>, target: &Target, options: &FetchOptions) -> Result<(), Trouble> {
    match (total, target.check.n_bytes) {
        (Some(total), Some(known)) if total != known => {
            Err(Trouble::Lasting(format!("the file there is {total} bytes long instead of {known}: it was changed")))
        }
        (Some(total), None) if total > options.most_bytes => Err(too_long(options.most_bytes)),
        _ => Ok(()),
    }
}

fn too_long(limit: u64) -> Trouble {
    Trouble::Lasting(format!("the file there is longer than the {limit} bytes expected at most"))
}

/// The body of one answer, on its way into the part file.
struct Incoming<R> {
    reader: R,
    file: File,
    start: u64,
    total: Option<u64>,
}

impl<R: Read> Incoming<R> {
    fn receive(
        mut self,
        target: &Target,
        options: &FetchOptions,
        piece: &Piece,
        n_received: &mut u64,
    ) -> Result<(), Trouble> {
        let limit = target.check.n_bytes.unwrap_or(options.most_bytes);
        let mut length = self.start;
        let mut buffer = vec![0; 64 << 10];
        let (mut window, mut at_window) = (Instant::now(), length);
        loop {
            let n = match self.reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_timeout(&error) => return Err(silent(options)),
                Err(_) => return Err(Trouble::Passing("the connection was cut".to_owned())),
            };
            let n_bytes = n as u64; // At most the buffer's length.
            length += n_bytes;
            if length > limit {
                drop(self.file);
                discard(target.part).map_err(local(target))?;
                return Err(too_long(limit));
            }
            self.file.write_all(&buffer[..n]).map_err(local(target))?;
            *n_received += n_bytes;
            piece.advance(n_bytes);
            if window.elapsed() >= options.stall {
                if length - at_window < TRICKLE {
                    return Err(silent(options));
                }
                (window, at_window) = (Instant::now(), length);
            }
        }
        match self.total.or(target.check.n_bytes) {
            Some(total) if length < total => {
                Err(Trouble::Passing(format!("the connection ended after {length} of {total} bytes")))
            }
            _ => self.file.sync_all().map_err(local(target)), // Its bytes must be there before its name is.
        }
    }
}

/// Opens the part file where the body belongs. From the start, it notes first which version the bytes will be of.
fn open_part(target: &Target, start: u64, headers: &HeaderMap, total: Option<u64>) -> io::Result<File> {
    if start > 0 {
        return OpenOptions::new().append(true).open(target.part);
    }
    discard(target.part)?;
    let tag = version(headers).and_then(|tag| tag.to_str().ok()).unwrap_or_default();
    let total = total.map(|total| total.to_string()).unwrap_or_default();
    fs::write(tag_path(target.part), format!("{}\n{tag}\n{total}\n", target.url))?;
    File::create_new(target.part)
}

/// Refuses a part file without the note that is written before it: somebody else's, which would be overwritten.
pub(super) fn check_origin(part: &Path) -> Result<(), FetchError> {
    if part.exists() && !tag_path(part).exists() {
        let problem = format!("has no {}", tag_path(part).file_name().unwrap_or_default().to_string_lossy());
        return Err(FetchError::Foreign { path: part.to_owned(), problem });
    }
    Ok(())
}

/// Removes a part file and what is noted about it.
pub(super) fn discard(part: &Path) -> io::Result<()> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => forget(part),
    }
}

/// Removes what is noted about a part file that is whole.
pub(super) fn forget(part: &Path) -> io::Result<()> {
    match fs::remove_file(tag_path(part)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn tag_path(part: &Path) -> PathBuf {
    let mut path = part.as_os_str().to_owned();
    path.push(".tag");
    path.into()
}

/// Partial file of an earlier attempt.
#[derive(Default)]
struct PartFile {
    n_bytes: u64,
    tag: Option<HeaderValue>,
    total: Option<u64>,
}

impl PartFile {
    /// Partial file to resume; empty if a mixture of two versions could go unnoticed.
    fn load(target: &Target) -> PartFile {
        let note = fs::read_to_string(tag_path(target.part)).unwrap_or_default();
        let mut lines = note.lines();
        let is_same_address = lines.next() == Some(target.url);
        let tag = lines.next().filter(|tag| is_same_address && !tag.is_empty());
        let tag = tag.and_then(|tag| HeaderValue::from_str(tag).ok());
        let total = lines.next().filter(|_| is_same_address).and_then(|total| total.parse().ok());
        let has_hash = target.check.sha256.is_some() || target.check.git_blob.is_some();
        let n_bytes = fs::metadata(target.part).map_or(0, |metadata| metadata.len());
        let is_too_long = total.or(target.check.n_bytes).is_some_and(|total| n_bytes > total);
        if is_too_long || (tag.is_none() && !has_hash) {
            return PartFile::default();
        }
        PartFile { n_bytes, tag, total }
    }

    /// True if the headers of an answer do not contradict the version of the partial file.
    fn is_of(&self, headers: &HeaderMap, total: Option<u64>) -> bool {
        let same_total = self.total.zip(total).is_none_or(|(before, now)| before == now);
        let same_tag = self.tag.as_ref().is_none_or(|tag| {
            let name = if tag.as_bytes().starts_with(b"\"") { ETAG } else { LAST_MODIFIED };
            headers.get(name).is_none_or(|now| now == tag)
        });
        same_total && same_tag
    }
}

/// Identifier of this version of a file, exact to the byte.
fn version(headers: &HeaderMap) -> Option<&HeaderValue> {
    let strong = headers.get(ETAG).filter(|tag| tag.as_bytes().starts_with(b"\""));
    strong.or_else(|| headers.get(LAST_MODIFIED))
}

/// The first byte and the whole length that an answer states: `bytes 5-9/10`, `bytes */10`.
fn content_range(headers: &HeaderMap) -> (Option<u64>, Option<u64>) {
    let text = headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    let Some((range, total)) = text.and_then(|text| text.trim().strip_prefix("bytes ")?.split_once('/')) else {
        return (None, None);
    };
    (range.split_once('-').and_then(|(first, _)| first.trim().parse().ok()), total.trim().parse().ok())
}

/// Why no answer came.
fn trouble(error: &reqwest::Error, options: &FetchOptions) -> Trouble {
    if error.is_timeout() && error.is_connect() {
        Trouble::Passing(format!("no connection within {:?}", options.connect))
    } else if error.is_timeout() {
        silent(options)
    } else if error.is_dns() {
        Trouble::Passing("its host was not found: is there a network?".to_owned())
    } else if error.is_redirect() || error.is_builder() {
        Trouble::Lasting(cause(error))
    } else {
        Trouble::Passing(cause(error))
    }
}

/// Tests if a read took too long.
fn is_timeout(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<reqwest::Error>());
    inner.is_some_and(reqwest::Error::is_timeout)
}

fn silent(options: &FetchOptions) -> Trouble {
    Trouble::Passing(format!("nothing arrived for {:?}", options.stall))
}

/// Innermost cause of an error: the layers above it add nothing.
fn cause(error: &reqwest::Error) -> String {
    let mut deepest: &dyn error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

fn local<'a>(target: &Target<'a>) -> impl Fn(io::Error) -> Trouble + 'a {
    let part = target.part;
    move |error| Trouble::Here(here(part)(error))
}
