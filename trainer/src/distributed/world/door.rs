//! Listener of a rank: every peer must prove itself, on a thread of its own and within a short time, so that silent or
//! invalid peers do not delay the others.

use std::{
    io::{self, ErrorKind, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use kith_group::message::Opening;
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    line::Line,
    token::{GreetError, VERSION},
    trust::Trust,
    wire,
};

/// Time limit for a peer's proof and first message.
const GREETING_LIMIT: Duration = Duration::from_secs(5);

/// Most that are asked at the same time; more are sent away, and ranks come again.
const MAX_KNOCKING: usize = 256;

/// Most remarks that are kept.
const MAX_REMARKS: usize = 4;

/// Somebody who has proven itself.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) line: Line,
    pub(super) opening: Opening,
}

/// A place to knock at, until it is dropped.
#[derive(Debug)]
pub(crate) struct Door {
    address: SocketAddr,
    arrivals: Receiver<Arrival>,
    remarks: Remarks,
    knock: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// Refused peers and the reasons, for the error about missing ranks.
#[derive(Clone, Debug, Default)]
struct Remarks(Arc<Mutex<Vec<String>>>);

impl Remarks {
    fn push(&self, remark: String) {
        let mut remarks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if remarks.len() < MAX_REMARKS && !remarks.contains(&remark) {
            remarks.push(remark);
        }
    }
}

impl Door {
    pub(super) fn open(listener: TcpListener, trust: Trust) -> io::Result<Door> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let (knocked, knock) = UnixStream::pair()?;
        let (sender, arrivals) = sync_channel(MAX_KNOCKING);
        let remarks = Remarks::default();
        let keeper = Keeper { trust, arrivals: sender, remarks: remarks.clone(), knocking: Arc::new(()) };
        let thread = thread::Builder::new().name("door".to_owned()).spawn(move || keeper.keep(&listener, &knocked))?;
        Ok(Door { address, arrivals, remarks, knock, thread: Some(thread) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next one who has proven itself, if somebody comes in time.
    pub(super) fn next(&self, patience: Duration) -> Option<Arrival> {
        self.arrivals.recv_timeout(patience).ok()
    }

    /// Refused peers and the reasons.
    pub(super) fn remarks(&self) -> Vec<String> {
        self.remarks.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn remark(&self, remark: String) {
        self.remarks.push(remark);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = self.knock.write(&[1]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Clone)]
struct Keeper {
    trust: Trust,
    arrivals: SyncSender<Arrival>,
    remarks: Remarks,
    /// One reference for each that is being asked, beside the keeper's.
    knocking: Arc<()>,
}

impl Keeper {
    fn keep(self, listener: &TcpListener, closed: &UnixStream) {
        loop {
            let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(closed, PollFlags::IN)];
            let polled = poll(&mut fds, None);
            if !fds[1].revents().is_empty() {
                return;
            }
            match polled.map_err(io::Error::from).and_then(|_| listener.accept()) {
                Ok((stream, address)) if Arc::strong_count(&self.knocking) <= MAX_KNOCKING => {
                    let keeper = self.clone();
                    // Without a thread to spare the connection is closed, and a rank comes again.
                    let _ = thread::Builder::new().spawn(move || keeper.greet(stream, address));
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // Out of file descriptors, say: not worth a busy loop.
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn greet(self, stream: TcpStream, address: SocketAddr) {
        let deadline = Instant::now() + GREETING_LIMIT;
        let greeted = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_nodelay(true))
            .map_err(GreetError::Io)
            .and_then(|()| self.trust.answer(stream, deadline));
        match greeted {
            Ok(mut line) => {
                if let Ok(opening) = wire::receive(&mut line, deadline) {
                    let _ = self.arrivals.try_send(Arrival { line, opening });
                }
            }
            Err(GreetError::Token) => self.remarks.push(format!("somebody at {} has another KITH_TOKEN", address.ip())),
            Err(GreetError::WantsTls | GreetError::NoTls) => {
                self.remarks.push(format!("somebody at {} has another --rank-tls", address.ip()));
            }
            Err(GreetError::Version(version)) => self
                .remarks
                .push(format!("somebody at {} runs another kith (protocol {version}, here {VERSION})", address.ip())),
            Err(GreetError::Io(_) | GreetError::Stranger) => {}
        }
    }
}
