//! One connection between two ranks: TCP, plain or with TLS 1.3 over it.
//!
//! A line blocks while its ends meet, and every read and write has a deadline then. Afterwards it does not block: it
//! reads and writes what it can, on the caller's thread. `flush` sends bytes that were accepted and not yet sent.

use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write},
    net::TcpStream,
    time::Instant,
};

use rustls::Connection;

use super::deadline::left;

/// Bytes of TLS that are taken from the kernel at once: two records.
const WIRE_BYTES: usize = 32 << 10;

/// Bytes that both ends of a TLS connection know and nobody else does, not even one who relays it.
const EXPORTER_BYTES: usize = 32;
const EXPORTER_LABEL: &[u8] = b"EXPORTER-kith-rank-proof";

/// A connection between two ranks.
#[derive(Debug)]
pub(crate) struct Line {
    socket: TcpStream,
    tls: Option<Box<Tls>>,
}

#[derive(Debug)]
struct Tls {
    connection: Connection,
    /// Bytes from the kernel that the connection has not taken: `wire[start..end]`.
    wire: Vec<u8>,
    start: usize,
    end: usize,
}

impl Line {
    /// A line that does not encrypt.
    pub(crate) fn plain(socket: TcpStream) -> Line {
        Line { socket, tls: None }
    }

    /// A line that encrypts: its handshake, before the deadline.
    pub(super) fn encrypted(socket: TcpStream, connection: Connection, deadline: Instant) -> io::Result<Line> {
        let tls = Tls { connection, wire: vec![0; WIRE_BYTES], start: 0, end: 0 };
        let mut line = Line { socket, tls: Some(Box::new(tls)) };
        line.shake_hands(deadline)?;
        Ok(line)
    }

    /// The socket, to be polled.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// True if accepted bytes wait to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.connection.wants_write())
    }

    /// Bytes that only the two ends of an encrypted line know; empty for a plain one.
    pub(super) fn exporter(&self) -> io::Result<Vec<u8>> {
        match &self.tls {
            None => Ok(Vec::new()),
            Some(tls) => tls
                .connection
                .export_keying_material(vec![0; EXPORTER_BYTES], EXPORTER_LABEL, None)
                .map_err(io::Error::other),
        }
    }

    /// Fills a buffer, however slowly its bytes come, before the deadline.
    pub(super) fn read_exact_by(&mut self, mut buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !buffer.is_empty() {
            self.socket.set_read_timeout(Some(left(deadline)?))?;
            match self.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => buffer = &mut buffer[n..],
                Err(error) => expired(error)?,
            }
        }
        Ok(())
    }

    /// Sends all bytes before the deadline.
    pub(super) fn write_all_by(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() || self.has_unsent() {
            self.socket.set_write_timeout(Some(left(deadline)?))?;
            let written = if bytes.is_empty() { self.flush().map(|()| 0) } else { self.write(bytes) };
            match written {
                Ok(n) => bytes = &bytes[n..],
                Err(error) => expired(error)?,
            }
        }
        Ok(())
    }

    fn shake_hands(&mut self, deadline: Instant) -> io::Result<()> {
        let Line { socket, tls: Some(tls) } = self else { return Ok(()) };
        loop {
            while tls.connection.wants_write() {
                socket.set_write_timeout(Some(left(deadline)?))?;
                tls.connection.write_tls(socket).map(drop).or_else(expired)?;
            }
            if !tls.connection.is_handshaking() {
                return Ok(());
            }
            socket.set_read_timeout(Some(left(deadline)?))?;
            match tls.take(socket) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    // Send the reason to the other end.
                    let _ = tls.connection.write_tls(socket);
                    return Err(error);
                }
                Err(error) => expired(error)?,
            }
        }
    }
}

impl Tls {
    /// Gives the connection bytes of the wire; 0 at the end of the stream. What is no TLS is invalid data.
    fn take(&mut self, socket: &mut TcpStream) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, socket.read(&mut self.wire)?);
        }
        let n = self.connection.read_tls(&mut &self.wire[self.start..self.end])?;
        self.start += n;
        self.connection.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        Ok(n)
    }

    /// Sends what the kernel takes.
    fn send(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(socket)?;
        }
        Ok(())
    }

    /// Encrypts as much of some bytes as there is room for, and sends what the kernel takes of it.
    fn write(
        &mut self,
        socket: &mut TcpStream,
        encrypt: impl FnOnce(&mut dyn Write) -> io::Result<usize>,
    ) -> io::Result<usize> {
        pending(self.send(socket))?;
        let n = encrypt(&mut self.connection.writer())?;
        pending(self.send(socket))?;
        Ok(n)
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Line { socket, tls: Some(tls) } = self else { return self.socket.read(buffer) };
        loop {
            match tls.connection.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            // The kernel is asked only where nothing is left, so that a poll of the socket misses nothing.
            if tls.take(socket)? == 0 {
                return Ok(0);
            }
        }
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match (&self.tls, buffers.iter_mut().find(|buffer| !buffer.is_empty())) {
            (Some(_), Some(first)) => self.read(first),
            _ => self.socket.read_vectored(buffers),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let Line { socket, tls: Some(tls) } = self else { return self.socket.write_vectored(pieces) };
        match tls.write(socket, |writer| writer.write_vectored(pieces))? {
            0 if pieces.iter().any(|piece| !piece.is_empty()) => Err(ErrorKind::WouldBlock.into()),
            n => Ok(n),
        }
    }

    /// Sends what was taken and not sent; an error of the kind `WouldBlock` where some of it has to wait.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => tls.send(&mut self.socket),
        }
    }
}

/// A call that has to wait is no failure.
fn pending(sent: io::Result<()>) -> io::Result<()> {
    sent.or_else(|error| if error.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(error) })
}

/// On a line that blocks, one that would block has waited for its whole time.
fn expired(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
        ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
