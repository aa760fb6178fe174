//! Heartbeat connection between rank 0 and another rank. Ranks send signs of life on it, from their first message on.

use std::{
    io::{self, ErrorKind, Write},
    net::TcpStream,
};

use kith_group::wire::{Inbox, encode};
use serde::{Serialize, de::DeserializeOwned};

use super::{line::Line, wire::fill};

/// A line of the heartbeats, which does not block.
#[derive(Debug)]
pub(super) struct Spoke {
    /// Rank at its other end.
    pub(super) rank: usize,
    /// Error that closed it, if any.
    pub(super) closed: Option<io::Error>,
    line: Line,
    inbox: Inbox,
    unsent: Vec<u8>,
}

impl Spoke {
    pub(super) fn new(rank: usize, line: Line) -> io::Result<Spoke> {
        line.socket().set_nonblocking(true)?;
        let inbox = Inbox::default();
        Ok(Spoke { rank, closed: None, line, inbox, unsent: Vec::new() })
    }

    pub(super) fn socket(&self) -> &TcpStream {
        self.line.socket()
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || self.line.has_unsent()
    }

    /// Sends now what can be sent now, the rest later.
    pub(super) fn send(&mut self, message: &impl Serialize) {
        if let Ok(bytes) = encode(message) {
            self.unsent.extend(bytes);
        }
        self.flush();
    }

    /// Sends buffered bytes; returns whether none are left. If the other end is gone, `receive` will notice.
    pub(super) fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.line.write(&self.unsent) {
                Ok(n) => {
                    self.unsent.drain(..n);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.unsent.clear();
                    return true;
                }
            }
        }
        !matches!(self.line.flush(), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Takes all bytes that have come.
    pub(super) fn fill(&mut self) {
        if self.closed.is_none() {
            self.closed = fill(&mut self.inbox, &mut self.line).err();
        }
    }

    /// The next whole message of what was taken.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        match self.inbox.take() {
            Ok(message) => message,
            Err(error) => {
                self.closed = Some(io::Error::other(error));
                None
            }
        }
    }

    /// All whole messages that have come.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> Vec<T> {
        self.fill();
        std::iter::from_fn(|| self.next()).collect()
    }
}
