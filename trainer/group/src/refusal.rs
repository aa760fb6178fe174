//! Answers to processes that may not join.

use crate::{
    member::{Hello, Member},
    message::Answer,
};

/// State of the first process for a rank that a second process wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It is there.
    Alive,
    /// It is gone, is about to end, or has not answered since it was asked for.
    InDoubt,
}

/// The answer to a second process for a rank: for good, or for now if the first may be gone soon.
pub fn to_second(first: &Member, second: &Member, holder: Holder) -> Answer {
    let sentence = format!(
        "a second rank {} came, on {} (process {}): the first sits on {} (process {}); give every rank its own number",
        first.rank, second.host, second.pid, first.host, first.pid
    );
    match holder {
        Holder::Alive => Answer::Taken(sentence),
        Holder::InDoubt => Answer::Later(sentence),
    }
}

/// The answer to a process that comes to a complete group.
pub fn to_late(members: &[Member], hello: &Hello, holder: impl FnOnce(usize) -> Holder) -> Answer {
    match members.get(hello.member.rank) {
        Some(member) => to_second(member, &hello.member, holder(member.rank)),
        None => {
            let (name, n_ranks) = (hello.member.name(), members.len());
            Answer::Full(format!("{name} is refused: the world of {n_ranks} ranks is complete"))
        }
    }
}
