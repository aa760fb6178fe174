//! The process group of a run: its size, this rank, and its collectives.

mod agreement;
mod board;
mod deadline;
mod door;
mod encryption;
mod environment;
mod error;
mod facts;
mod gpus;
mod join_config;
mod line;
mod pulse;
mod rendezvous;
mod spoke;
#[cfg(test)]
mod tests;
mod token;
mod trust;
mod wire;

use std::{net::TcpListener, sync::Arc};

use kith_group::progress::Verdict;
use kith_run::{phase::Phase, rank_tls::RankTls, stop::Stop};

use self::{
    agreement::{Agreed, disagreement},
    pulse::Pulse,
    rendezvous::Meeting,
    trust::Trust,
};
pub(crate) use self::{
    board::{Board, Heartbeats, Order},
    deadline::timespec,
    line::Line,
};
pub use self::{environment::Seat, error::WorldError, facts::Facts, join_config::JoinConfig, token::Token};
#[cfg(test)]
pub(crate) use self::{tests::on_worlds, trust::tests::encrypted_lines};
use crate::distributed::collective::{Alone, Collective, Nccl, Ring, gpu_identity};
pub use kith_group::member::Member;

/// All ranks of a run, as one of them sees them. Dropping it says goodbye to the others.
#[derive(Debug)]
pub struct World {
    /// None for a single rank. Dropped first: others receive the goodbye before the collective is gone.
    bond: Option<Bond>,
    rank: usize,
    members: Vec<Member>,
    collective: Box<dyn Collective>,
    stop: Stop,
}

/// State and heartbeats that a rank shares with others, beside the collective.
#[derive(Debug)]
struct Bond {
    board: Arc<Board>,
    pulse: Pulse,
}

impl World {
    /// A world of one rank.
    pub fn alone() -> World {
        World::of_one(facts::alone())
    }

    fn of_one(member: Member) -> World {
        World { bond: None, rank: 0, members: vec![member], collective: Box::new(Alone), stop: Stop::default() }
    }

    /// Meets all other ranks and checks that they are here for the same run.
    pub fn join(seat: &Seat, config: &JoinConfig, facts: Facts) -> Result<World, WorldError> {
        World::join_at(seat, config, &facts, None)
    }

    /// [`World::join`]; rank 0 listens on `listener`.
    pub fn join_at(
        seat: &Seat,
        config: &JoinConfig,
        facts: &Facts,
        listener: Option<TcpListener>,
    ) -> Result<World, WorldError> {
        if seat.n_ranks == 1 {
            return Ok(World::of_one(facts::member(0, String::new(), facts)));
        }
        let facts = match config.cuda {
            Some(device) => facts.clone().on_gpu(gpu_identity(device), config.shares_device),
            None => facts.clone(),
        };
        let trust = Trust::new(config)?;
        let mut meeting = match seat.rank {
            0 => rendezvous::host(seat, config, &facts, &trust, listener)?,
            _ => rendezvous::visit(seat, config, &facts, &trust)?,
        };
        let board = Arc::new(Board::new(seat.rank, meeting.members.clone())?);
        let spokes = std::mem::take(&mut meeting.spokes);
        let pulse = Pulse::start(board.clone(), spokes, config.rhythm(), meeting.number)?;
        let formed = form_ring(seat, config, &trust, &meeting, &board, &pulse);
        let collective = match formed.and_then(|ring| make_collective(ring, &meeting.members, config)) {
            Ok(collective) => collective,
            Err(error) => {
                // Without a word from this rank the others would not know why it left.
                pulse.stop(error.code(), &error.to_string());
                return Err(error);
            }
        };
        let Meeting { members, door, .. } = meeting;
        if seat.rank == 0 {
            board.order(Order::Keep(door));
        }
        let stop = Stop::default();
        Ok(World { rank: seat.rank, members, collective, bond: Some(Bond { board, pulse }), stop })
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks.
    pub fn n_ranks(&self) -> usize {
        self.members.len()
    }

    /// True if ranks compute on GPUs.
    pub fn is_on_gpus(&self) -> bool {
        self.members.iter().any(|member| member.gpu.is_some())
    }

    /// Ranks on this rank's machine.
    pub fn n_ranks_on_host(&self) -> usize {
        let own = &self.members[self.rank].machine;
        self.members.iter().filter(|member| member.machine == *own).count()
    }

    /// All ranks, by their numbers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Table of the ranks and their addresses: a line of names, and a line for each rank.
    pub fn table(&self) -> Vec<String> {
        let names = ["rank", "host", "address", "process", "device", "instructions"].map(String::from);
        let rows = self.members.iter().map(|member| {
            let Member { rank, host, address, pid, device, instruction_set, .. } = member.clone();
            [rank.to_string(), host, address, pid.to_string(), device, instruction_set]
        });
        let rows: Vec<[String; 6]> = [names].into_iter().chain(rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let line = |row: &[String; 6]| {
            let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column)));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        rows.iter().map(line).collect()
    }

    /// Notes for users about the placement and connection of these ranks.
    pub fn notes(&self, tls: RankTls) -> Vec<String> {
        let mut notes = gpus::notes(&self.members);
        let is_on_several = self.members.iter().any(|member| member.machine != self.members[0].machine);
        if is_on_several && self.members.iter().any(|member| member.gpu.is_some()) {
            notes.push(
                "NCCL does not encrypt what ranks on GPUs exchange between hosts: keep it on a network of your own"
                    .to_owned(),
            );
        }
        if is_on_several && tls == RankTls::Off {
            notes.push("lines between ranks on several hosts are not encrypted (--rank-tls off)".to_owned());
        }
        notes
    }

    /// Refuses ranks that disagree on any (name, value) of a list; all ranks get the same error.
    pub fn agree(&mut self, on: &[(&str, String)]) -> Result<(), WorldError> {
        agree(&mut *self.collective, &self.members, on)
    }

    /// Collectives of the process group.
    pub fn collective(&mut self) -> &mut dyn Collective {
        &mut *self.collective
    }

    /// Sets the step and phase of this rank.
    pub fn enter(&self, step: u64, phase: Phase) {
        if let Some(bond) = &self.bond {
            bond.board.enter(step, phase);
        }
    }

    /// Heeds requests to stop that this rank gets: loops tell the other ranks.
    pub fn heed(&mut self, stop: Stop) {
        self.stop = stop;
    }

    /// Requests to stop that this rank got.
    pub(crate) fn stop_request(&self) -> &Stop {
        &self.stop
    }

    /// Sets the callback for a rank that was lost or stopped, if this process has not noticed within two seconds
    /// because it is busy. It runs on another thread: print the error and exit.
    pub fn on_lost(&self, call: Box<dyn Fn(&WorldError) + Send>) {
        if let Some(bond) = &self.bond {
            bond.board.on_lost(call);
        }
    }

    /// Heartbeats of other ranks, for metrics.
    pub(crate) fn heartbeats(&self) -> Heartbeats {
        Heartbeats(self.bond.as_ref().map(|bond| bond.board.clone()))
    }

    /// Fails if all ranks must stop and this is known by now.
    pub fn check(&self) -> Result<(), WorldError> {
        match self.bond.as_ref().and_then(|bond| Some((&bond.board, bond.board.verdict()?))) {
            Some((board, verdict)) => Err(board.error(verdict)),
            None => Ok(()),
        }
    }

    /// Tells all others that this rank ends with an error, and its exit code, which becomes theirs.
    pub fn stop(&self, code: u8, sentence: &str) {
        if let Some(bond) = &self.bond {
            bond.pulse.stop(code, sentence);
        }
    }

    /// Says goodbye: this rank has ended well.
    pub fn leave(self) {
        drop(self);
    }
}

/// The collective of ranks in a ring: the ring itself, or NCCL beside it.
fn make_collective(mut ring: Ring, members: &[Member], config: &JoinConfig) -> Result<Box<dyn Collective>, WorldError> {
    agree_on_device(&mut ring, members, config)?;
    if let Some(sentence) = gpus::refused(members) {
        return Err(WorldError::Refused(sentence));
    }
    Ok(match config.cuda {
        Some(device) => Box::new(Nccl::new(ring, device, config.shares_device)?),
        None => Box::new(ring),
    })
}

/// The first thing that ranks do together: nobody begins before all are there, for tensors of the same kind.
fn agree_on_device(ring: &mut Ring, members: &[Member], config: &JoinConfig) -> Result<(), WorldError> {
    let kind = if config.cuda.is_some() { "cuda" } else { "cpu" };
    agree(ring, members, &[("kind of device", kind.to_owned())])
}

/// Refuses ranks that do not agree.
fn agree(collective: &mut dyn Collective, members: &[Member], on: &[(&str, String)]) -> Result<(), WorldError> {
    let own: Agreed = on.iter().map(|(what, value)| ((*what).to_owned(), value.clone())).collect();
    let heard = collective.share(&serde_json::to_vec(&own).expect("texts"))?;
    let of = |rank: usize| -> Agreed { serde_json::from_slice(&heard[rank]).unwrap_or_default() };
    let name = |rank: usize| format!("rank {rank} on {}", members[rank].host);
    let first = (name(0), of(0));
    match (1..heard.len()).find_map(|rank| disagreement((&name(rank), &of(rank)), (&first.0, &first.1))) {
        Some(sentence) => Err(WorldError::Refused(sentence)),
        None => Ok(()),
    }
}

/// The ring of all ranks; errors are sent to all.
fn form_ring(
    seat: &Seat,
    config: &JoinConfig,
    trust: &Trust,
    meeting: &Meeting,
    board: &Arc<Board>,
    pulse: &Pulse,
) -> Result<Ring, WorldError> {
    let formed = rendezvous::form_ring(seat, config, trust, meeting, board).and_then(|(previous, next)| {
        Ring::new(previous, next, board.clone(), config.collective_deadline).map_err(|error| error.to_string())
    });
    formed.map_err(|sentence| {
        pulse.stop(75, &sentence);
        let own = Verdict::Stopped { rank: seat.rank, code: 75, sentence };
        board.error(board.verdict().unwrap_or(&own))
    })
}
