//! Names that clients give themselves, for lines of the log.

use http::{HeaderMap, HeaderValue};
use kith_proto::{MAX_SESSION_BYTES, SESSION_HEADER};

/// The name of a client. It comes from the network: it is short, and has only letters, digits and hyphens.
#[derive(Clone, Debug)]
pub(crate) struct Session(HeaderValue);

impl Session {
    /// The name in the headers of a request, if it is one.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Session> {
        let name = headers.get(SESSION_HEADER)?;
        let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        let is_name = (1..=MAX_SESSION_BYTES).contains(&name.len()) && name.as_bytes().iter().all(is_letter);
        is_name.then(|| Session(name.clone()))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        let of = |text: &[u8]| {
            let headers =
                HeaderMap::from_iter([(SESSION_HEADER.parse().unwrap(), HeaderValue::from_bytes(text).unwrap())]);
            Session::of(&headers).map(|session| session.as_str().to_owned())
        };
        assert_eq!(of(b"0123456789abcdef").as_deref(), Some("0123456789abcdef"));
        assert_eq!(of(b"My-Client-7").as_deref(), Some("My-Client-7"));
        for bad in [&b""[..], b"a b", b"a\"b", b"a=b", b"\xc3\xa9", &[b'x'; MAX_SESSION_BYTES + 1]] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
        assert!(Session::of(&HeaderMap::new()).is_none());
    }
}
