//! Authentication of connections: which are encrypted, and the proof that both ends know the token.

use std::{
    io::{self, ErrorKind},
    net::TcpStream,
    time::Instant,
};

use kith_run::rank_tls::RankTls;

use super::{
    deadline::left,
    encryption::Keys,
    join_config::JoinConfig,
    line::Line,
    token::{self, GreetError, Token},
};

/// The first byte of a TLS connection; a plain line begins with a letter.
const TLS_HANDSHAKE: u8 = 0x16;

/// Requirements of this process for the other end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Trust {
    token: Option<Token>,
    tls: RankTls,
    keys: Keys,
}

impl Trust {
    pub(super) fn new(config: &JoinConfig) -> io::Result<Trust> {
        Ok(Trust { token: config.token.clone(), tls: config.tls, keys: Keys::draw()? })
    }

    /// The end that connects: a line whose other end has proven itself.
    pub(super) fn ask(&self, socket: TcpStream, deadline: Instant) -> Result<Line, GreetError> {
        let mut line = if self.tls.requires(socket.peer_addr()?.ip()) {
            Line::encrypted(socket, self.keys.client()?, deadline).map_err(no_tls)?
        } else {
            Line::plain(socket)
        };
        token::ask(&mut line, self.token.as_ref(), deadline)?;
        Ok(line)
    }

    /// The end that was connected to: a line whose other end has proven itself.
    pub(super) fn answer(&self, socket: TcpStream, deadline: Instant) -> Result<Line, GreetError> {
        let is_required = self.tls.requires(socket.peer_addr()?.ip());
        let is_offered = first_byte(&socket, deadline)? == TLS_HANDSHAKE;
        let mut line = match (is_offered, is_required) {
            (true, _) if self.tls != RankTls::Off => {
                Line::encrypted(socket, self.keys.server()?, deadline).map_err(no_tls)?
            }
            (false, false) => Line::plain(socket),
            _ => {
                token::refuse_kind_of_line(&mut Line::plain(socket), deadline)?;
                return Err(if is_offered { GreetError::NoTls } else { GreetError::WantsTls });
            }
        };
        token::answer(&mut line, self.token.as_ref(), deadline)?;
        Ok(line)
    }
}

fn first_byte(socket: &TcpStream, deadline: Instant) -> io::Result<u8> {
    let mut byte = [0];
    loop {
        socket.set_read_timeout(Some(left(deadline)?))?;
        match socket.peek(&mut byte) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Bytes that are no TLS come from an end that does not speak it.
fn no_tls(error: io::Error) -> GreetError {
    if error.kind() == ErrorKind::InvalidData { GreetError::NoTls } else { GreetError::Io(error) }
}

#[cfg(test)]
pub(crate) mod tests;
