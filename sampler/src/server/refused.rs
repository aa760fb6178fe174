//! Connections that never made a call, because the server closed them.

use std::io;

/// Reason to refuse a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// All connections were at work, and there may be no more.
    MaxConnections,
    /// All connections of its address were at work, and there may be no more of them.
    MaxPerAddress,
    /// Nothing came in time, or the connection broke before.
    Silent,
    /// The TLS handshake failed, or took too long.
    Tls,
    /// HTTP/2 did not begin in time, or not as it should.
    Http2,
    /// An error of HTTP/2 before the first call.
    Protocol,
}

impl Refused {
    pub(crate) const ALL: [Refused; 6] = [
        Refused::MaxConnections,
        Refused::MaxPerAddress,
        Refused::Silent,
        Refused::Tls,
        Refused::Http2,
        Refused::Protocol,
    ];

    /// Name in metrics and in the log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Refused::MaxConnections => "max-connections",
            Refused::MaxPerAddress => "max-per-address",
            Refused::Silent => "silent",
            Refused::Tls => "tls",
            Refused::Http2 => "http2",
            Refused::Protocol => "protocol",
        }
    }

    /// The end of a connection at this stage.
    pub(crate) fn by<E: Into<io::Error>>(self) -> impl FnOnce(E) -> Broken {
        move |error| Broken { stage: self, error: error.into() }
    }
}

/// A connection that ended with an error.
#[derive(Debug)]
pub(crate) struct Broken {
    /// Reason for refusing it, if it had not made a call yet.
    pub(crate) stage: Refused,
    pub(crate) error: io::Error,
}

impl Broken {
    /// The same error after its likely reason, if that is known.
    pub(crate) fn with_hint(self, hint: Option<&str>) -> Broken {
        let error = match hint {
            Some(hint) => io::Error::new(self.error.kind(), format!("{hint}: {}", self.error)),
            None => self.error,
        };
        Broken { error, ..self }
    }
}
