//! Messages between ranks on lines: every read has a size limit and a deadline.

use std::{
    io::{self, ErrorKind, Read},
    time::Instant,
};

use kith_group::wire::{Inbox, LENGTH_BYTES, decode, encode, length};
use serde::{Serialize, de::DeserializeOwned};

use super::line::Line;

/// Sends a message on a line that blocks.
pub(super) fn send(line: &mut Line, message: &impl Serialize, deadline: Instant) -> io::Result<()> {
    line.write_all_by(&encode(message).map_err(io::Error::other)?, deadline)
}

/// Receives a message on a line that blocks.
pub(super) fn receive<T: DeserializeOwned>(line: &mut Line, deadline: Instant) -> io::Result<T> {
    let mut n_bytes = [0; LENGTH_BYTES];
    line.read_exact_by(&mut n_bytes, deadline)?;
    let n_bytes = length(n_bytes).map_err(io::Error::other)?;
    // Grown as bytes come: a length alone takes no memory.
    let mut bytes = Vec::new();
    while bytes.len() < n_bytes {
        let start = bytes.len();
        bytes.resize(n_bytes.min(start + (64 << 10)), 0);
        line.read_exact_by(&mut bytes[start..], deadline)?;
    }
    decode(&bytes).map_err(io::Error::other)
}

/// Takes all bytes there are on a line that does not block; an error once the connection is closed.
pub(super) fn fill(inbox: &mut Inbox, line: &mut Line) -> io::Result<()> {
    let mut bytes = [0; 16 << 10];
    loop {
        match line.read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => inbox.push(&bytes[..n]).map_err(io::Error::other)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
