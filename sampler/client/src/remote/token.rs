//! Bearer tokens for servers that require one. A token is never printed.

use std::{
    fmt, fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use http::HeaderValue;

use crate::remote::error::RemoteProblem;

/// The longest token.
const MAX_BYTES: usize = 4096;

/// Origin of a token.
#[derive(Clone)]
pub enum TokenSource {
    /// The first line of a file, which is read again when a server refuses the token.
    File(PathBuf),
    /// A text, and the name of its origin for messages.
    Text {
        /// The origin, such as an environment variable.
        origin: &'static str,
        /// The token.
        token: Arc<str>,
    },
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenSource::File(path) => f.debug_tuple("File").field(path).finish(),
            TokenSource::Text { origin, .. } => write!(f, "Text({origin})"),
        }
    }
}

impl TokenSource {
    /// The header `authorization`.
    fn read(&self) -> Result<HeaderValue, RemoteProblem> {
        let (path, text) = match self {
            TokenSource::File(path) => (path.clone(), read_text(path)),
            TokenSource::Text { origin, token } => (PathBuf::from(origin), Ok(token.to_string())),
        };
        let problem = match text {
            Err(error) => error.to_string(),
            Ok(text) => {
                let token = text.lines().next().unwrap_or_default().trim();
                let is_token =
                    (1..=MAX_BYTES).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
                match HeaderValue::from_str(&format!("Bearer {token}")) {
                    Ok(mut header) if is_token => {
                        header.set_sensitive(true);
                        return Ok(header);
                    }
                    _ => format!("expected a token of 1 to {MAX_BYTES} printable characters in the first line"),
                }
            }
        };
        Err(RemoteProblem::File { path, problem })
    }
}

/// Reads a file that is not much longer than a token.
fn read_text(path: &PathBuf) -> io::Result<String> {
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(fs::File::open(path)?, 2 * MAX_BYTES as u64), &mut text)?;
    Ok(text)
}

/// A token as it was read last.
pub(crate) struct Token {
    source: TokenSource,
    header: Mutex<HeaderValue>,
}

impl Token {
    pub(crate) fn read(source: &TokenSource) -> Result<Token, RemoteProblem> {
        Ok(Token { source: source.clone(), header: Mutex::new(source.read()?) })
    }

    /// The header `authorization` of a request.
    pub(crate) fn header(&self) -> HeaderValue {
        self.header.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads it again; whether it is another than the one that was sent.
    pub(crate) fn is_renewed(&self, sent: &HeaderValue) -> bool {
        let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(read) = self.source.read() {
            *header = read;
        }
        *header != *sent
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("source", &self.source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_the_token_and_is_never_shown() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("token");
        fs::write(&path, "  0123456789abcdef-secret \nother\n").unwrap();
        let source = TokenSource::File(path.clone());
        let token = Token::read(&source).unwrap();
        assert_eq!(token.header(), "Bearer 0123456789abcdef-secret");
        let text = TokenSource::Text { origin: "KITH_SAMPLER_TOKEN", token: "0123456789abcdef-secret".into() };
        let shown = format!("{source:?} {token:?} {text:?} {:?} {:?}", token.header(), Token::read(&text).unwrap());
        assert!(!shown.contains("secret"), "{shown}");
        let sent = token.header();
        assert!(!token.is_renewed(&sent), "nothing has changed");
        fs::write(&path, "fedcba9876543210").unwrap();
        assert!(token.is_renewed(&sent));
        assert_eq!(token.header(), "Bearer fedcba9876543210");
        // A file that is gone for a moment leaves the token that is known.
        fs::remove_file(&path).unwrap();
        assert!(!token.is_renewed(&token.header()));
    }

    #[test]
    fn what_is_no_token_gets_a_sentence_without_it() {
        for bad in ["", "\nsecret", "sec ret", "secrét", "secret\u{1}"] {
            let text = TokenSource::Text { origin: "KITH_SAMPLER_TOKEN", token: bad.into() };
            let error = Token::read(&text).unwrap_err().to_string();
            assert!(error.starts_with("KITH_SAMPLER_TOKEN: expected a token"), "{error}");
            assert!(!error.contains("sec"), "{error}");
        }
        let absent = TokenSource::File("/nowhere/token".into());
        assert!(Token::read(&absent).unwrap_err().to_string().starts_with("/nowhere/token: "));
    }
}
