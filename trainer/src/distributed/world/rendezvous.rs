//! Connections of ranks that join: rank 0 listens, all others connect to it, in any order and late. What they say to each
//! other is decided in [`kith_group::host`], [`kith_group::visit`] and [`kith_group::ring::forming`].

mod address;
mod host;
mod neighbors;
mod visit;

use std::{io, net::SocketAddr, time::Instant};

use kith_group::{limits::ATTEMPT, member::Member, message::Answer};

pub(super) use self::{host::host, neighbors::form_ring, visit::visit};
use super::{
    WorldError,
    door::Door,
    line::Line,
    spoke::Spoke,
    token::{GreetError, VERSION},
    wire,
};

/// Result of a rendezvous.
#[derive(Debug)]
pub(super) struct Meeting {
    /// A name that no other world has.
    pub(super) session: String,
    pub(super) members: Vec<Member>,
    /// Number of the last heartbeat.
    pub(super) number: u64,
    /// The lines of the pulse: from rank 0 to all others, by rank; from another rank to rank 0 alone.
    pub(super) spokes: Vec<Spoke>,
    /// Listener for the previous rank.
    pub(super) door: Door,
    /// Address of the next rank's listener.
    pub(super) next: SocketAddr,
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
pub(super) fn tell_one(line: &mut Line, answer: &Answer) {
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
