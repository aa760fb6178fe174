//! Arbitrary bytes of other ranks: messages of a process group, which its state machines take without a panic. The first byte chooses the
//! machine, the second the pieces in which bytes arrive.

use std::time::Duration;

use kith_group::{
    host::{self, Host},
    limits::{JoinLimits, Rhythm},
    member::Hello,
    message::{Answer, Message, Opening},
    progress::Entry,
    pulse::{self, Pulse},
    ring::forming::{self, Forming},
    visit::{self, Visit},
    wire::{Inbox, encode},
};
use serde::{Serialize, de::DeserializeOwned};

const N_RANKS: usize = 3;
const LIMITS: JoinLimits = JoinLimits {
    join: Duration::from_secs(60),
    rhythm: Rhythm { every: Duration::from_secs(1), deadline: Duration::from_secs(10) },
};

/// All messages of some bytes, in pieces; those that were read come back as they were sent.
fn messages<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8], n_bytes: usize) -> Vec<T> {
    let (mut inbox, mut found) = (Inbox::default(), Vec::new());
    for piece in bytes.chunks(n_bytes) {
        if inbox.push(piece).is_err() {
            return found;
        }
        loop {
            match inbox.take::<T>() {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    for message in &found {
        let mut again = Inbox::default();
        again.push(&encode(message).expect("it was short enough")).expect("it was short enough");
        assert_eq!(again.take::<T>().expect("it is one").as_ref(), Some(message));
    }
    found
}

fn hello() -> Hello {
    Hello { n_ranks: N_RANKS, ..Hello::default() }
}

/// Rank 0, to which newcomers introduce themselves.
fn hosts(openings: Vec<Opening>) {
    let mut host = Host::new(hello(), ("session".to_owned(), "here".to_owned()), LIMITS, Duration::ZERO);
    for (n, opening) in openings.iter().enumerate() {
        let now = Duration::from_millis(700 * n as u64);
        host.wake(now);
        let actions = match opening {
            Opening::Join(hello) => host.arrive(hello, now),
            Opening::Ring { from, .. } => {
                host.receive(*from, &Message::Goodbye(Entry::default()), now);
                host.tick(&[], now)
            }
        };
        for action in &actions {
            if let host::Action::Seat { rank } = action {
                assert!((1..N_RANKS).contains(rank), "rank {rank} has a seat");
            }
        }
        if actions.iter().any(|action| matches!(action, host::Action::End(_))) {
            return;
        }
    }
}

/// Another rank, to which rank 0 answers.
fn visits(answers: Vec<Answer>) {
    let mut visit = Visit::new(N_RANKS, "here".to_owned(), LIMITS, Duration::ZERO);
    for (n, answer) in answers.into_iter().enumerate() {
        let now = Duration::from_millis(700 * n as u64);
        visit.wake(now);
        visit.tick(now);
        visit.connected(now);
        for action in visit.receive(answer, now) {
            match action {
                visit::Action::End(visit::End::Welcome { members, session, number }) => {
                    let mut forming = Forming::new(1, (session.clone(), members), "here".to_owned(), LIMITS, now);
                    assert!(forming.is_previous(&Opening::Ring { session, from: 0 }));
                    assert!(matches!(forming.next(true, now), forming::Action::Fail(_)));
                    let _ = forming.next(false, now);
                    let board = Message::Board { entries: vec![Entry::default(); N_RANKS], number };
                    return beats(1, number, vec![board, Message::Beat { own: Entry::default(), answers: number }]);
                }
                visit::Action::End(_) => return,
                _ => {}
            }
        }
    }
}

/// The heartbeats of a complete group.
fn beats(rank: usize, number: u64, messages: Vec<Message>) {
    let mut pulse = Pulse::new(rank, N_RANKS, LIMITS.rhythm, number, Duration::ZERO);
    for (n, message) in messages.into_iter().enumerate() {
        let now = Duration::from_millis(700 * n as u64);
        let from = if rank == 0 { 1 + n % 2 } else { 0 };
        pulse.wake(now);
        let mut actions = pulse.receive(from, message, now);
        actions.extend(pulse.tick(Entry::default(), now));
        let _ = pulse.holder(n % N_RANKS, now);
        let n_decided = actions.iter().filter(|action| matches!(action, pulse::Action::Decide(_))).count();
        assert!(n_decided <= 1 && pulse.entries().len() == N_RANKS);
    }
    pulse.closed(if rank == 0 { 1 } else { 0 }, None, Duration::from_secs(60));
    pulse.leave(Entry::default());
}

pub(crate) fn run(bytes: &[u8]) {
    let [machine, n_bytes, bytes @ ..] = bytes else { return };
    let n_bytes = usize::from(*n_bytes).max(1);
    match machine % 4 {
        0 => hosts(messages(bytes, n_bytes)),
        1 => visits(messages(bytes, n_bytes)),
        2 => beats(0, 0, messages(bytes, n_bytes)),
        _ => beats(1, 0, messages(bytes, n_bytes)),
    }
}
