//! How two ends of a connection prove to each other that they know the same token, which never travels: each answers
//! the other's challenge with an HMAC.

use std::{fmt, io, net::TcpStream, time::Instant};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::wire::{left, read_exact};

/// The protocol between ranks.
pub(super) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"kithrank";
const CHALLENGE_BYTES: usize = 32;
const GREETING_BYTES: usize = 8 + 4 + CHALLENGE_BYTES;
const PROOF_BYTES: usize = 32;

/// A secret that all ranks share.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token; `None` for an empty text.
    pub fn new(text: &str) -> Option<Token> {
        (!text.is_empty()).then(|| Token(text.to_owned()))
    }

    /// The one in `KITH_TOKEN`.
    pub fn from_environment(lookup: impl Fn(&str) -> Option<String>) -> Option<Token> {
        Token::new(lookup("KITH_TOKEN")?.trim())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Why two ends do not trust each other.
#[derive(Debug)]
pub(super) enum GreetError {
    /// The connection failed, or nothing came in time.
    Io(io::Error),
    /// The other end speaks something else.
    Stranger,
    /// The other end speaks another version.
    Version(u32),
    /// The other end has another token.
    Token,
}

impl From<io::Error> for GreetError {
    fn from(error: io::Error) -> GreetError {
        GreetError::Io(error)
    }
}

/// The end that connects: proves first.
pub(super) fn ask(stream: &TcpStream, token: Option<&Token>, deadline: Instant) -> Result<(), GreetError> {
    let own = greeting(stream, deadline)?;
    let theirs = read_greeting(stream, deadline)?;
    write(stream, &proof(token, b"asks", &own, &theirs), deadline)?;
    let mut answer = [0; 1 + PROOF_BYTES];
    read_exact(stream, &mut answer, deadline)?;
    let is_proven = is_proof(token, b"answers", &own, &theirs, &answer[1..]);
    if answer[0] == 1 && is_proven { Ok(()) } else { Err(GreetError::Token) }
}

/// The end that was connected to.
pub(super) fn answer(stream: &TcpStream, token: Option<&Token>, deadline: Instant) -> Result<(), GreetError> {
    let theirs = match read_greeting(stream, deadline) {
        Err(GreetError::Version(version)) => {
            let _ = greeting(stream, deadline); // So that they hear of our version.
            return Err(GreetError::Version(version));
        }
        other => other?,
    };
    let own = greeting(stream, deadline)?;
    let mut proven = [0; PROOF_BYTES];
    read_exact(stream, &mut proven, deadline)?;
    if !is_proof(token, b"asks", &theirs, &own, &proven) {
        write(stream, &[0; 1 + PROOF_BYTES], deadline)?;
        return Err(GreetError::Token);
    }
    let mut answer = [1; 1 + PROOF_BYTES];
    answer[1..].copy_from_slice(&proof(token, b"answers", &theirs, &own));
    Ok(write(stream, &answer, deadline)?)
}

/// Says who we are, and gives a challenge.
fn greeting(stream: &TcpStream, deadline: Instant) -> Result<[u8; GREETING_BYTES], GreetError> {
    let mut greeting = [0; GREETING_BYTES];
    greeting[..8].copy_from_slice(&MAGIC);
    greeting[8..12].copy_from_slice(&VERSION.to_le_bytes());
    getrandom::fill(&mut greeting[12..]).map_err(|error| io::Error::other(error.to_string()))?;
    write(stream, &greeting, deadline)?;
    Ok(greeting)
}

fn read_greeting(stream: &TcpStream, deadline: Instant) -> Result<[u8; GREETING_BYTES], GreetError> {
    let mut greeting = [0; GREETING_BYTES];
    // A stranger may have said all it wants in fewer bytes than a greeting has.
    read_exact(stream, &mut greeting[..8], deadline)?;
    if greeting[..8] != MAGIC {
        return Err(GreetError::Stranger);
    }
    read_exact(stream, &mut greeting[8..], deadline)?;
    let version = u32::from_le_bytes([greeting[8], greeting[9], greeting[10], greeting[11]]);
    if version == VERSION { Ok(greeting) } else { Err(GreetError::Version(version)) }
}

fn write(mut stream: &TcpStream, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    stream.set_write_timeout(Some(left(deadline)?))?;
    io::Write::write_all(&mut stream, bytes)
}

/// Each end proves in words of its own, so that nobody can send a proof back to who made it.
fn mac(token: Option<&Token>, end: &[u8], asked: &[u8], answered: &[u8]) -> Hmac<Sha256> {
    let key = token.map_or(&[][..], |token| token.0.as_bytes());
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in [end, asked, answered] {
        mac.update(part);
    }
    mac
}

fn proof(token: Option<&Token>, end: &[u8], asked: &[u8], answered: &[u8]) -> [u8; PROOF_BYTES] {
    mac(token, end, asked, answered).finalize().into_bytes().into()
}

/// Compares in constant time.
fn is_proof(token: Option<&Token>, end: &[u8], asked: &[u8], answered: &[u8], proof: &[u8]) -> bool {
    mac(token, end, asked, answered).verify_slice(proof).is_ok()
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread, time::Duration};

    use super::*;

    #[test]
    fn both_ends_must_know_the_token() {
        let token = |text: &str| Token::new(text);
        for (asks, answers, is_trusted) in
            [("a", "a", true), ("", "", true), ("a", "b", false), ("", "b", false), ("a", "", false)]
        {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let deadline = Instant::now() + Duration::from_secs(5);
            let other = thread::spawn(move || answer(&listener.accept().unwrap().0, token(answers).as_ref(), deadline));
            let asked = ask(&TcpStream::connect(address).unwrap(), token(asks).as_ref(), deadline);
            let answered = other.join().unwrap();
            assert_eq!((asked.is_ok(), answered.is_ok()), (is_trusted, is_trusted), "{asks} {answers}");
            if !is_trusted {
                assert!(matches!((asked, answered), (Err(GreetError::Token), Err(GreetError::Token))));
            }
        }
    }

    #[test]
    fn a_proof_sent_back_proves_nothing() {
        let token = Token::new("a");
        let (one, other) = ([1; GREETING_BYTES], [2; GREETING_BYTES]);
        let asks = proof(token.as_ref(), b"asks", &one, &other);
        assert!(is_proof(token.as_ref(), b"asks", &one, &other, &asks));
        assert!(!is_proof(token.as_ref(), b"answers", &one, &other, &asks));
        assert!(!is_proof(token.as_ref(), b"asks", &other, &one, &asks));
    }

    #[test]
    fn a_token_is_not_printed() {
        let token = Token::from_environment(|name| (name == "KITH_TOKEN").then(|| " secret\n".to_owned()));
        assert_eq!(token, Token::new("secret"));
        assert!(!format!("{token:?}").contains("secret"));
        assert_eq!(Token::from_environment(|_| Some("  ".to_owned())), None);
    }
}
