//! Access control: bearer tokens, and names in client certificates.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use http::{HeaderMap, header::AUTHORIZATION};
use subtle::{Choice, ConstantTimeEq};
use tonic::Status;

use crate::server::error::ServeError;

/// The shortest token.
pub(crate) const MIN_TOKEN_BYTES: usize = 16;

/// Requirements on callers, beside a certificate that a trusted authority signed.
#[derive(Debug)]
pub(crate) struct Access {
    tokens: Option<RwLock<Arc<Tokens>>>,
    /// Names of which a caller's certificate must have one; any if there are none.
    client_names: Vec<String>,
}

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    /// The names in its certificate.
    pub(crate) names: Vec<String>,
}

impl Access {
    pub(crate) fn new(tokens: Option<Tokens>, client_names: Vec<String>) -> Access {
        Access { tokens: tokens.map(|tokens| RwLock::new(Arc::new(tokens))), client_names }
    }

    /// Replaces the tokens that are asked for.
    pub(crate) fn set_tokens(&self, tokens: Tokens) {
        if let Some(current) = &self.tokens {
            *current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
        }
    }

    /// Refuses a caller that may not ask.
    pub(crate) fn check(&self, peer: &Peer, headers: &HeaderMap) -> Result<(), Status> {
        if !self.client_names.is_empty() && !peer.names.iter().any(|name| self.client_names.contains(name)) {
            return Err(Status::permission_denied(format!(
                "certificates of {} may not ask this server: it has --tls-client-name for others",
                if peer.names.is_empty() { "no name".to_owned() } else { peer.names.join(", ") }
            )));
        }
        let Some(tokens) = &self.tokens else { return Ok(()) };
        let Some(given) = headers.get(AUTHORIZATION) else {
            return Err(Status::unauthenticated(
                "this server asks for a token: give the client --token-file or KITH_SAMPLER_TOKEN",
            ));
        };
        let given = given.as_bytes();
        let token = match given.split_at_checked(SCHEME.len()) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) => token,
            _ => &[],
        };
        match tokens.read().unwrap_or_else(PoisonError::into_inner).contains(token) {
            true => Ok(()),
            false => Err(Status::unauthenticated("the token is none of those that this server takes")),
        }
    }
}

const SCHEME: &[u8] = b"Bearer ";

/// Tokens, of which a caller must send one.
pub(crate) struct Tokens(Vec<Vec<u8>>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

impl Tokens {
    /// Reads a file with one token per line. Empty lines, and those that start with `#`, are skipped.
    pub(crate) fn read(path: &Path) -> Result<Tokens, ServeError> {
        let failed = |problem: String| ServeError::Token { path: path.to_owned(), problem };
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Tokens::parse(&text).map_err(failed)
    }

    /// Reads the text of such a file.
    pub(crate) fn parse(text: &str) -> Result<Tokens, String> {
        let mut tokens = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let token = line.trim();
            if token.is_empty() || token.starts_with('#') {
                continue;
            }
            if token.len() < MIN_TOKEN_BYTES {
                return Err(format!(
                    "line {}: expected a token of at least {MIN_TOKEN_BYTES} bytes, found {}",
                    number + 1,
                    token.len()
                ));
            }
            if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!("line {}: a token has printable ASCII characters without spaces only", number + 1));
            }
            tokens.push(token.as_bytes().to_vec());
        }
        if tokens.is_empty() { Err("expected a token, found none".to_owned()) } else { Ok(Tokens(tokens)) }
    }

    /// Membership of a token. Takes the same time for all tokens of one length.
    fn contains(&self, given: &[u8]) -> bool {
        self.0.iter().fold(Choice::from(0), |found, token| found | token.as_slice().ct_eq(given)).into()
    }
}

/// A file that is read again when it changes.
#[derive(Debug)]
pub(crate) struct Watched {
    path: PathBuf,
    stamp: Option<Stamp>,
}

/// Identity of one version of a file: device, inode, time of change and length.
type Stamp = (u64, u64, i64, i64, u64);

impl Watched {
    pub(crate) fn new(path: &Path) -> Watched {
        Watched { path: path.to_owned(), stamp: stamp(path) }
    }

    /// True once after each change.
    pub(crate) fn has_changed(&mut self) -> bool {
        let now = stamp(&self.path);
        let has_changed = now.is_some() && now != self.stamp;
        if has_changed {
            self.stamp = now;
        }
        has_changed
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let data = fs::metadata(path).ok()?;
    Some((data.dev(), data.ino(), data.mtime(), data.mtime_nsec(), data.size()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tonic::Code;

    use super::*;

    fn headers(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))])
    }

    #[test]
    fn callers_need_one_of_the_tokens() {
        let tokens = Tokens::parse("# rotated in May\n0123456789abcdef\n\n  fedcba9876543210  \n").unwrap();
        let access = Access::new(Some(tokens), Vec::new());
        let check = |value| access.check(&Peer::default(), &headers(value)).map_err(|status| status.code());
        assert_eq!(check("Bearer 0123456789abcdef"), Ok(()));
        assert_eq!(check("bearer fedcba9876543210"), Ok(()));
        for other in ["Bearer 0123456789abcdee", "Bearer ", "Bearer", "0123456789abcdef", "Basic 0123456789abcdef", ""]
        {
            assert_eq!(check(other), Err(Code::Unauthenticated), "{other}");
        }
        let none = access.check(&Peer::default(), &HeaderMap::new()).unwrap_err();
        assert!(none.message().contains("--token-file"), "{none}");
        access.set_tokens(Tokens::parse("a-new-token-of-today").unwrap());
        assert_eq!(
            access.check(&Peer::default(), &headers("Bearer 0123456789abcdef")).unwrap_err().code(),
            Code::Unauthenticated
        );
        assert!(access.check(&Peer::default(), &headers("Bearer a-new-token-of-today")).is_ok());
    }

    #[test]
    fn certificates_can_be_limited_to_names() {
        let access = Access::new(None, vec!["trainer".into()]);
        let named = |names: &[&str]| Peer { names: names.iter().map(|name| (*name).to_owned()).collect() };
        assert!(access.check(&named(&["other", "trainer"]), &HeaderMap::new()).is_ok());
        for peer in [named(&["other"]), named(&[])] {
            let status = access.check(&peer, &HeaderMap::new()).unwrap_err();
            assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        }
    }

    #[test]
    fn bad_tokens_are_refused_by_line() {
        for (text, says) in [
            ("", "found none"),
            ("# nothing\n", "found none"),
            ("0123456789abcdef\nshort", "line 2: expected a token of at least 16 bytes, found 5"),
            ("0123456789 abcdef", "line 1: a token has printable"),
        ] {
            assert!(Tokens::parse(text).unwrap_err().contains(says), "{text}");
        }
        assert_eq!(format!("{:?}", Tokens::parse("0123456789abcdef").unwrap()), "1 tokens");
    }

    #[test]
    fn changed_files_are_noticed_once() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("tokens");
        fs::write(&path, "one").unwrap();
        let mut watched = Watched::new(&path);
        assert!(!watched.has_changed());
        fs::write(temp.path().join("other"), "another").unwrap();
        fs::rename(temp.path().join("other"), &path).unwrap();
        assert!(watched.has_changed() && !watched.has_changed());
        fs::remove_file(&path).unwrap();
        assert!(!watched.has_changed(), "a file that is gone for a moment is not read");
    }
}
