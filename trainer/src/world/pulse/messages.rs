//! What is said on the connections of the pulse, and one such connection.

use std::{
    io::{self, ErrorKind, Write},
    net::TcpStream,
    time::Instant,
};

use serde::{Deserialize, Serialize};

use crate::world::{
    board::{Entry, Verdict},
    wire::{Inbox, encode},
};

/// What is said.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::world) enum Message {
    /// How far a rank is, to rank 0.
    Beat(Entry),
    /// How far all are, from rank 0.
    Board(Vec<Entry>),
    /// Why all must stop: found out by a rank, or decided by rank 0.
    Verdict(Verdict),
    /// A rank has ended well.
    Goodbye,
}

/// A connection of the pulse.
#[derive(Debug)]
pub(super) struct Spoke {
    /// Who is at its other end.
    pub(super) rank: usize,
    /// When something came last.
    pub(super) heard: Instant,
    pub(super) is_closed: bool,
    stream: TcpStream,
    inbox: Inbox,
    unsent: Vec<u8>,
}

impl Spoke {
    pub(super) fn new(rank: usize, stream: TcpStream) -> io::Result<Spoke> {
        stream.set_nonblocking(true)?;
        let inbox = Inbox::default();
        Ok(Spoke { rank, heard: Instant::now(), is_closed: false, stream, inbox, unsent: Vec::new() })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends now what can be sent now, the rest later.
    pub(super) fn send(&mut self, message: &Message) {
        if let Ok(bytes) = encode(message) {
            self.unsent.extend(bytes);
        }
        self.flush();
    }

    /// Whether nothing is left to send. What cannot be sent because nobody is there, is left for `receive` to notice.
    pub(super) fn flush(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(n) => {
                    self.unsent.drain(..n);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.unsent.clear(),
            }
        }
        true
    }

    /// All whole messages that have come, and why no more will, if that is so.
    pub(super) fn receive(&mut self) -> (Vec<Message>, Option<io::Error>) {
        let mut closed = self.inbox.fill(&self.stream).err();
        let mut messages = Vec::new();
        loop {
            match self.inbox.next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => {
                    closed = Some(error);
                    break;
                }
            }
        }
        if !messages.is_empty() {
            self.heard = Instant::now();
        }
        self.is_closed |= closed.is_some();
        (messages, closed)
    }
}
