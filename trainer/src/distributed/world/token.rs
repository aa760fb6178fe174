//! Mutual proof that both ends of a connection know the same token, which is never sent: each answers the other's
//! challenge with an HMAC. On an encrypted connection the HMAC covers a value that only its two ends share, so that
//! nobody between them can relay the proofs.

use std::{fmt, io, time::Instant};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{WorldError, line::Line};

/// The protocol between ranks.
pub(super) const VERSION: u32 = 3;

/// In place of a version: the line must be encrypted.
const WANTS_TLS: u32 = u32::MAX;

const MAGIC: [u8; 8] = *b"kithrank";
const CHALLENGE_BYTES: usize = 32;
const GREETING_BYTES: usize = 8 + 4 + CHALLENGE_BYTES;
const PROOF_BYTES: usize = 32;

/// Minimum bytes of a token: an attacker that a rank connects to can try guesses offline.
const MIN_TOKEN_BYTES: usize = 16;

/// A secret that all ranks share.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token; `None` for an empty text.
    pub fn new(text: &str) -> Result<Option<Token>, WorldError> {
        match text.len() {
            0 => Ok(None),
            n if n < MIN_TOKEN_BYTES => Err(WorldError::Refused(format!(
                "KITH_TOKEN has {n} bytes, and a token needs {MIN_TOKEN_BYTES} or more: set it to a random text, such as \
                 the output of `openssl rand -hex 32`, on every rank"
            ))),
            _ => Ok(Some(Token(text.to_owned()))),
        }
    }

    /// The one in `KITH_TOKEN`.
    pub fn from_environment(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Token>, WorldError> {
        lookup("KITH_TOKEN").map_or(Ok(None), |text| Token::new(text.trim()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Reason why two ends do not trust each other.
#[derive(Debug)]
pub(super) enum GreetError {
    /// The connection failed, or nothing came in time.
    Io(io::Error),
    /// The other end speaks something else.
    Stranger,
    /// The other end speaks another version.
    Version(u32),
    /// The other end has another token, or somebody relays between the two.
    Token,
    /// The other end wants an encrypted line and this one does not.
    WantsTls,
    /// This end wants an encrypted line, and the other does not speak TLS.
    NoTls,
}

impl From<io::Error> for GreetError {
    fn from(error: io::Error) -> GreetError {
        GreetError::Io(error)
    }
}

/// The end that connects: proves first.
pub(super) fn ask(line: &mut Line, token: Option<&Token>, deadline: Instant) -> Result<(), GreetError> {
    let own = greeting(line, VERSION, deadline)?;
    let theirs = read_greeting(line, deadline)?;
    let proofs = Proofs { token, asked: &own, answered: &theirs, exporter: &line.exporter()? };
    line.write_all_by(&proofs.make(b"asks"), deadline)?;
    let mut answer = [0; 1 + PROOF_BYTES];
    line.read_exact_by(&mut answer, deadline)?;
    let is_proven = proofs.is_made(b"answers", &answer[1..]);
    if answer[0] == 1 && is_proven { Ok(()) } else { Err(GreetError::Token) }
}

/// The end that was connected to.
pub(super) fn answer(line: &mut Line, token: Option<&Token>, deadline: Instant) -> Result<(), GreetError> {
    let theirs = match read_greeting(line, deadline) {
        Err(GreetError::Version(version)) => {
            let _ = greeting(line, VERSION, deadline); // Sends our version to the other end.
            return Err(GreetError::Version(version));
        }
        other => other?,
    };
    let own = greeting(line, VERSION, deadline)?;
    let proofs = Proofs { token, asked: &theirs, answered: &own, exporter: &line.exporter()? };
    let mut proven = [0; PROOF_BYTES];
    line.read_exact_by(&mut proven, deadline)?;
    if !proofs.is_made(b"asks", &proven) {
        line.write_all_by(&[0; 1 + PROOF_BYTES], deadline)?;
        return Err(GreetError::Token);
    }
    let mut answer = [1; 1 + PROOF_BYTES];
    answer[1..].copy_from_slice(&proofs.make(b"answers"));
    Ok(line.write_all_by(&answer, deadline)?)
}

/// Tells an end that came on a plain line to come on an encrypted one, or the other way round.
pub(super) fn refuse_kind_of_line(line: &mut Line, deadline: Instant) -> io::Result<()> {
    greeting(line, WANTS_TLS, deadline).map(drop)
}

/// Says who we are, and gives a challenge.
fn greeting(line: &mut Line, version: u32, deadline: Instant) -> io::Result<[u8; GREETING_BYTES]> {
    let mut greeting = [0; GREETING_BYTES];
    greeting[..8].copy_from_slice(&MAGIC);
    greeting[8..12].copy_from_slice(&version.to_le_bytes());
    getrandom::fill(&mut greeting[12..]).map_err(|error| io::Error::other(error.to_string()))?;
    line.write_all_by(&greeting, deadline)?;
    Ok(greeting)
}

fn read_greeting(line: &mut Line, deadline: Instant) -> Result<[u8; GREETING_BYTES], GreetError> {
    let mut greeting = [0; GREETING_BYTES];
    // A stranger may have said all it wants in fewer bytes than a greeting has.
    line.read_exact_by(&mut greeting[..8], deadline)?;
    if greeting[..8] != MAGIC {
        return Err(GreetError::Stranger);
    }
    line.read_exact_by(&mut greeting[8..], deadline)?;
    match u32::from_le_bytes([greeting[8], greeting[9], greeting[10], greeting[11]]) {
        VERSION => Ok(greeting),
        WANTS_TLS => Err(GreetError::WantsTls),
        version => Err(GreetError::Version(version)),
    }
}

/// Proofs of both ends of one line.
struct Proofs<'a> {
    token: Option<&'a Token>,
    /// The greeting of the end that connects.
    asked: &'a [u8; GREETING_BYTES],
    /// The greeting of the other.
    answered: &'a [u8; GREETING_BYTES],
    /// Bytes that only the ends of this connection know; empty on a plain line.
    exporter: &'a [u8],
}

impl Proofs<'_> {
    /// Each end proves in words of its own, so that nobody can send a proof back to who made it.
    fn mac(&self, end: &[u8]) -> Hmac<Sha256> {
        let key = self.token.map_or(&[][..], |token| token.0.as_bytes());
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        for part in [end, self.asked, self.answered, self.exporter] {
            mac.update(part);
        }
        mac
    }

    fn make(&self, end: &[u8]) -> [u8; PROOF_BYTES] {
        self.mac(end).finalize().into_bytes().into()
    }

    /// Compares in constant time.
    fn is_made(&self, end: &[u8], proof: &[u8]) -> bool {
        self.mac(end).verify_slice(proof).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        thread,
        time::Duration,
    };

    use super::*;

    const A: &str = "a token of 16 bytes or more";
    const B: &str = "another token of that length";

    #[test]
    fn both_ends_must_know_the_token() {
        let token = |text: &str| Token::new(text).unwrap();
        for (asks, answers, is_trusted) in [(A, A, true), ("", "", true), (A, B, false), ("", B, false), (A, "", false)]
        {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let deadline = Instant::now() + Duration::from_secs(5);
            let other = thread::spawn(move || {
                answer(&mut Line::plain(listener.accept().unwrap().0), token(answers).as_ref(), deadline)
            });
            let asked = ask(&mut Line::plain(TcpStream::connect(address).unwrap()), token(asks).as_ref(), deadline);
            let answered = other.join().unwrap();
            assert_eq!((asked.is_ok(), answered.is_ok()), (is_trusted, is_trusted), "{asks} {answers}");
            if !is_trusted {
                assert!(matches!((asked, answered), (Err(GreetError::Token), Err(GreetError::Token))));
            }
        }
    }

    #[test]
    fn a_proof_sent_back_or_of_another_connection_proves_nothing() {
        let token = Token::new(A).unwrap();
        let (one, other) = ([1; GREETING_BYTES], [2; GREETING_BYTES]);
        let proofs = |asked, answered, exporter| Proofs { token: token.as_ref(), asked, answered, exporter };
        let asks = proofs(&one, &other, &[3; 32]).make(b"asks");
        assert!(proofs(&one, &other, &[3; 32]).is_made(b"asks", &asks));
        assert!(!proofs(&one, &other, &[3; 32]).is_made(b"answers", &asks));
        assert!(!proofs(&other, &one, &[3; 32]).is_made(b"asks", &asks));
        assert!(!proofs(&one, &other, &[4; 32]).is_made(b"asks", &asks), "another connection");
        assert!(!proofs(&one, &other, &[]).is_made(b"asks", &asks), "a plain line");
    }

    #[test]
    fn short_tokens_are_refused() {
        for text in ["qq", "changeme", "0123456789abcde"] {
            let error = Token::new(text).unwrap_err();
            assert_eq!(error.code(), 1);
            let sentence = error.to_string();
            assert!(sentence.starts_with(&format!("KITH_TOKEN has {} bytes", text.len())), "{sentence}");
            assert!(sentence.contains("needs 16 or more") && !sentence.contains(text), "{sentence}");
        }
        assert!(Token::new("0123456789abcdef").unwrap().is_some());
    }

    #[test]
    fn a_token_is_not_printed() {
        let token = Token::from_environment(|name| (name == "KITH_TOKEN").then(|| format!(" {A}\n"))).unwrap();
        assert_eq!(token, Token::new(A).unwrap());
        assert!(!format!("{token:?}").contains(A));
        assert_eq!(Token::from_environment(|_| Some("  ".to_owned())).unwrap(), None);
    }
}
