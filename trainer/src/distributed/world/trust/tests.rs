//! Connections that are accepted or refused, and the bytes that others can see.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use super::*;
use crate::distributed::world::wire;

const TOKEN: &str = "a token of sixteen bytes and more";
const SECRET: &str = "gradients-that-nobody-else-may-read";

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn trust(token: &str, tls: RankTls) -> Trust {
    let config = JoinConfig { token: Token::new(token).unwrap(), tls, ..JoinConfig::default() };
    Trust::new(&config).unwrap()
}

/// Both ends of a connection: who connects, who was connected to.
fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let asks = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (asks, listener.accept().unwrap().0)
}

/// Both ends meet.
fn meet(asks: &Trust, answers: &Trust, sockets: (TcpStream, TcpStream)) -> [Result<Line, GreetError>; 2] {
    thread::scope(|scope| {
        let other = scope.spawn(|| answers.answer(sockets.1, deadline()));
        let asked = asks.ask(sockets.0, deadline());
        [asked, other.join().unwrap()]
    })
}

/// Both ends of an encrypted line: who connects, who was connected to.
pub(crate) fn encrypted_lines() -> (Line, Line) {
    let trust = trust(TOKEN, RankTls::On);
    let [asked, answered] = meet(&trust, &trust.clone(), sockets());
    (asked.unwrap(), answered.unwrap())
}

#[test]
fn encrypted_lines_carry_messages_of_any_length_both_ways() {
    let (mut one, mut other) = encrypted_lines();
    for n in [0, 1, 16_384, 1 << 20] {
        let text = "x".repeat(n);
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(wire::receive::<String>(&mut other, deadline()).unwrap(), text);
                wire::send(&mut other, &text, deadline()).unwrap();
            });
            wire::send(&mut one, &text, deadline()).unwrap();
            assert_eq!(wire::receive::<String>(&mut one, deadline()).unwrap(), text);
        });
    }
    // The end of one is seen by the other, whatever is unread.
    wire::send(&mut one, &SECRET, deadline()).unwrap();
    drop(one);
    assert_eq!(wire::receive::<String>(&mut other, deadline()).unwrap(), SECRET);
    assert_eq!(other.read(&mut [0; 8]).unwrap_or(0), 0);
}

#[test]
fn a_line_that_does_not_block_takes_what_it_can() {
    let (mut one, mut other) = encrypted_lines();
    one.socket().set_nonblocking(true).unwrap();
    other.socket().set_nonblocking(true).unwrap();
    let would_block = |error: io::Error| assert_eq!(error.kind(), ErrorKind::WouldBlock);
    would_block(other.read(&mut [0; 8]).unwrap_err());
    // Nobody reads: at some point nothing more is taken, and some of it waits.
    let (mut n_written, until) = (0, deadline());
    loop {
        match one.write(&[7; 100_000]) {
            Ok(n) => n_written += n,
            Err(error) => break would_block(error),
        }
        assert!(Instant::now() < until);
    }
    assert!(one.has_unsent());
    would_block(one.flush().unwrap_err());
    let (mut n_read, mut buffer) = (0, [0; 10_000]);
    while n_read < n_written || one.has_unsent() {
        let _ = one.flush();
        match other.read(&mut buffer) {
            Ok(n) => {
                assert!(buffer[..n].iter().all(|byte| *byte == 7));
                n_read += n;
            }
            Err(error) => would_block(error),
        }
        assert!(Instant::now() < until);
    }
    assert_eq!(n_read, n_written);
    one.flush().unwrap();
}

#[test]
fn both_ends_must_know_the_token_on_an_encrypted_line() {
    let (own, other) = (trust(TOKEN, RankTls::On), trust("another token of that length", RankTls::On));
    assert!(meet(&own, &own.clone(), sockets()).iter().all(Result::is_ok));
    let told = meet(&own, &other, sockets());
    assert!(told.iter().all(|met| matches!(met, Err(GreetError::Token))), "{told:?}");
}

/// Somebody without the token who ends one TLS connection and begins another, and passes on all that is said.
#[test]
fn one_who_relays_between_two_encrypted_lines_fails() {
    let (own, relay) = (trust(TOKEN, RankTls::On), Keys::draw().unwrap());
    let ((asks, from_asker), (to_answerer, answers)) = (sockets(), sockets());
    let [asked, answered] = thread::scope(|scope| {
        scope.spawn(|| {
            let mut asker = Line::encrypted(from_asker, relay.server().unwrap(), deadline()).unwrap();
            let mut answerer = Line::encrypted(to_answerer, relay.client().unwrap(), deadline()).unwrap();
            let pass = |from: &mut Line, to: &mut Line, n: usize| {
                let mut bytes = vec![0; n];
                from.read_exact_by(&mut bytes, deadline()).unwrap();
                to.write_all_by(&bytes, deadline()).unwrap();
            };
            // Two greetings, a proof, and the other's.
            pass(&mut asker, &mut answerer, 44);
            pass(&mut answerer, &mut asker, 44);
            pass(&mut asker, &mut answerer, 32);
            pass(&mut answerer, &mut asker, 33);
        });
        meet(&own, &own.clone(), (asks, answers))
    });
    assert!(matches!(asked, Err(GreetError::Token)), "{asked:?}");
    assert!(matches!(answered, Err(GreetError::Token)), "{answered:?}");
}

/// All bytes that somebody sees who passes them on unchanged, while both ends meet and talk.
fn overheard(tls: RankTls) -> Vec<u8> {
    let trust = trust(TOKEN, tls);
    let ((asks, from_asker), (to_answerer, answers)) = (sockets(), sockets());
    let heard = Arc::new(Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for (mut from, mut to) in
            [(from_asker.try_clone().unwrap(), to_answerer.try_clone().unwrap()), (to_answerer, from_asker)]
        {
            let heard = heard.clone();
            scope.spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(n @ 1..) = from.read(&mut bytes) {
                    heard.lock().unwrap().extend_from_slice(&bytes[..n]);
                    if to.write_all(&bytes[..n]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
        }
        let [mut asked, mut answered] = meet(&trust, &trust.clone(), (asks, answers)).map(Result::unwrap);
        wire::send(&mut asked, &SECRET, deadline()).unwrap();
        assert_eq!(wire::receive::<String>(&mut answered, deadline()).unwrap(), SECRET);
    });
    Arc::into_inner(heard).unwrap().into_inner().unwrap()
}

#[test]
fn a_listener_sees_nothing_of_an_encrypted_line() {
    let sees = |heard: &[u8], text: &str| heard.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    let plain = overheard(RankTls::Off);
    assert!(sees(&plain, SECRET) && sees(&plain, "kithrank"), "what is searched for would be found");
    let encrypted = overheard(RankTls::On);
    assert!(encrypted.len() > plain.len());
    for text in [SECRET, &SECRET[..8], "kithrank", TOKEN] {
        assert!(!sees(&encrypted, text), "{text}");
    }
}

#[test]
fn ends_that_do_not_agree_on_encryption_are_told_so() {
    let of = |tls| trust(TOKEN, tls);
    let plain_to_encrypted = meet(&of(RankTls::Off), &of(RankTls::On), sockets());
    assert!(plain_to_encrypted.iter().all(|met| matches!(met, Err(GreetError::WantsTls))), "{plain_to_encrypted:?}");
    let encrypted_to_plain = meet(&of(RankTls::On), &of(RankTls::Off), sockets());
    assert!(encrypted_to_plain.iter().all(|met| matches!(met, Err(GreetError::NoTls))), "{encrypted_to_plain:?}");
    // On loopback nothing is asked for, and what is offered is taken.
    assert!(meet(&of(RankTls::On), &of(RankTls::Auto), sockets()).iter().all(Result::is_ok));
    assert!(meet(&of(RankTls::Off), &of(RankTls::Auto), sockets()).iter().all(Result::is_ok));
}
