//! Messages between ranks outside of collectives: a length and JSON. Every read has a size limit and a deadline.

use std::{
    io::{self, ErrorKind, Read},
    time::Instant,
};

use serde::{Serialize, de::DeserializeOwned};

use super::line::Line;

/// Most bytes of a message: run files travel in them.
const MAX_BYTES: usize = 16 << 20;

/// A message as bytes.
pub(super) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let n_bytes = u32::try_from(bytes.len() - 4).ok().filter(|n| *n as usize <= MAX_BYTES);
    let n_bytes = n_bytes.ok_or_else(|| io::Error::other("a message is too long"))?;
    bytes[..4].copy_from_slice(&n_bytes.to_le_bytes());
    Ok(bytes)
}

/// Sends a message on a line that blocks.
pub(super) fn send(line: &mut Line, message: &impl Serialize, deadline: Instant) -> io::Result<()> {
    line.write_all_by(&encode(message)?, deadline)
}

/// Receives a message on a line that blocks.
pub(super) fn receive<T: DeserializeOwned>(line: &mut Line, deadline: Instant) -> io::Result<T> {
    let mut n_bytes = [0; 4];
    line.read_exact_by(&mut n_bytes, deadline)?;
    let n_bytes = checked_length(n_bytes)?;
    // Grown as bytes come: a length alone takes no memory.
    let mut bytes = Vec::new();
    while bytes.len() < n_bytes {
        let start = bytes.len();
        bytes.resize(n_bytes.min(start + (64 << 10)), 0);
        line.read_exact_by(&mut bytes[start..], deadline)?;
    }
    Ok(serde_json::from_slice(&bytes)?)
}

/// Messages as they arrive on a line that does not block.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// Takes all bytes there are; an error once the connection is closed.
    pub(super) fn fill(&mut self, line: &mut Line) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        loop {
            match line.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.bytes.extend_from_slice(&bytes[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.bytes.len() > MAX_BYTES {
                return Err(io::Error::other("a message is too long"));
            }
        }
    }

    /// The next message that is whole.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(n_bytes) = self.bytes.first_chunk::<4>() else { return Ok(None) };
        let end = 4 + checked_length(*n_bytes)?;
        if self.bytes.len() < end {
            return Ok(None);
        }
        let message = serde_json::from_slice(&self.bytes[4..end])?;
        self.bytes.drain(..end);
        Ok(Some(message))
    }
}

fn checked_length(n_bytes: [u8; 4]) -> io::Result<usize> {
    let n_bytes = u32::from_le_bytes(n_bytes) as usize;
    if n_bytes > MAX_BYTES { Err(io::Error::other("a message is too long")) } else { Ok(n_bytes) }
}
