//! Rendezvous of the ranks: rank 0 listens, all others connect to it, in any order and late. Rank 0 compares their
//! properties, and once all are here it sends the addresses of all to everybody. Meanwhile each sends signs of life: a
//! silent rank makes room for another process.

mod address;
mod host;
mod neighbors;
mod visit;

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

pub(super) use self::{host::host, neighbors::form_ring, visit::visit};
use super::{
    Member, WorldError,
    door::Door,
    hello::{Answer, Hello},
    line::Line,
    spoke::Spoke,
    token::{GreetError, VERSION},
    wire,
};

/// Time limit of one attempt to connect, and of sending one answer.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Result of a rendezvous.
#[derive(Debug)]
pub(super) struct Meeting {
    /// A name that no other world has.
    pub(super) session: String,
    pub(super) members: Vec<Member>,
    /// The lines of the pulse: from rank 0 to all others, by rank; from another rank to rank 0 alone.
    pub(super) spokes: Vec<Spoke>,
    /// Listener for the previous rank.
    pub(super) door: Door,
    /// Address of the next rank's listener.
    pub(super) next: SocketAddr,
}

/// State of the first process for a rank that a second process wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// It is there.
    Alive,
    /// It is gone, is about to end, or was not heard of since it was asked for.
    InDoubt,
}

/// Sends somebody away who comes to a world that is complete: for good, or for now where its seat may be free soon.
pub(super) fn turn_away(members: &[Member], line: &mut Line, hello: &Hello, holder: impl FnOnce(usize) -> Holder) {
    let answer = match members.get(hello.member.rank) {
        Some(member) => refusal(member, &hello.member, holder(member.rank)),
        None => {
            let (name, n_ranks) = (hello.name(), members.len());
            Answer::Full(format!("{name} is refused: the world of {n_ranks} ranks is complete"))
        }
    };
    tell_one(line, &answer);
}

/// The answer to a second process for a seat.
fn refusal(first: &Member, second: &Member, holder: Holder) -> Answer {
    let sentence = taken(first, second);
    match holder {
        Holder::Alive => Answer::Taken(sentence),
        Holder::InDoubt => Answer::Later(sentence),
    }
}

fn taken(first: &Member, second: &Member) -> String {
    format!(
        "a second rank {} came, on {} (process {}): the first sits on {} (process {}); give every rank its own number",
        first.rank, second.host, second.pid, first.host, first.pid
    )
}

fn unwelcome(place: &str, error: &GreetError) -> String {
    match error {
        GreetError::Token => format!(
            "the rank at {place} has another token, or somebody stands between: set KITH_TOKEN to the same secret text \
             on every rank"
        ),
        GreetError::Version(version) => format!(
            "the rank at {place} speaks protocol {version} and this one {VERSION}: run the same kith on every rank"
        ),
        GreetError::Stranger => format!(
            "what listens at {place} is no rank of kith: set MASTER_ADDR and MASTER_PORT to where rank 0 listens"
        ),
        GreetError::WantsTls => {
            format!("the rank at {place} wants an encrypted line: give --rank-tls on to every rank")
        }
        GreetError::NoTls => format!(
            "what listens at {place} does not encrypt, or is no rank of kith: give the same --rank-tls to every rank, \
             and set MASTER_ADDR and MASTER_PORT to where rank 0 listens"
        ),
        GreetError::Io(error) => error.to_string(),
    }
}

/// Sends an answer. A failure means that the receiver has gone.
fn tell_one(line: &mut Line, answer: &Answer) {
    let _ = line.socket().set_nonblocking(false);
    let _ = wire::send(line, answer, Instant::now() + ATTEMPT);
}

fn parsed(member: &Member) -> Result<SocketAddr, WorldError> {
    member.address.parse().map_err(|_| {
        WorldError::OutOfStep(format!("rank {} told {:?} as its address, which is none", member.rank, member.address))
    })
}

fn session() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
