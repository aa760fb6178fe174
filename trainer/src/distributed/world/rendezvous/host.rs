//! Rank 0's part of a rendezvous: the connections of [`kith_group::host`].

use std::{
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use kith_group::{
    host::{Action, End, Host},
    limits::{ATTEMPT, PAUSE},
    message::{Answer, Message, Opening},
};

use super::{Meeting, address::listen, parsed, session, tell_one};
use crate::distributed::world::{
    Facts, JoinConfig, Seat, WorldError,
    deadline::Clock,
    door::{Arrival, Door},
    facts::hello,
    line::Line,
    spoke::Spoke,
    trust::Trust,
};

/// Waits for all other ranks.
pub(in crate::distributed::world) fn host(
    seat: &Seat,
    config: &JoinConfig,
    facts: &Facts,
    trust: &Trust,
    listener: Option<TcpListener>,
) -> Result<Meeting, WorldError> {
    let clock = Clock::start();
    let listener = match listener {
        Some(listener) => listener,
        None => listen(seat, config, clock.at(config.join_deadline))?,
    };
    let door = Door::open(listener, trust.clone())?;
    let session = session()?;
    let own = hello(0, seat.n_ranks, seat.place(), facts);
    // The time that it took to listen counts.
    let machine = Host::new(own, (session.clone(), seat.place()), config.limits(), Duration::ZERO);
    let mut lobby = Lobby { door, spokes: Vec::new() };
    match lobby.run(machine, clock) {
        End::Refused(sentence) => Err(WorldError::Refused(sentence)),
        End::NeverCame(sentence) => Err(WorldError::NeverCame(sentence)),
        End::Complete { members, number } => {
            let next = parsed(&members[1])?;
            let Lobby { door, mut spokes } = lobby;
            spokes.sort_by_key(|spoke| spoke.rank);
            Ok(Meeting { session, members, number, spokes, door, next })
        }
    }
}

/// Connections of rank 0 while ranks join.
struct Lobby {
    door: Door,
    /// Those of ranks that have come.
    spokes: Vec<Spoke>,
}

impl Lobby {
    fn run(&mut self, mut machine: Host, clock: Clock) -> End {
        loop {
            let arrival = self.door.next(clock.until(machine.next_tick()).min(PAUSE));
            machine.wake(clock.now());
            let mut actions = Vec::new();
            for spoke in &mut self.spokes {
                spoke.flush();
                for message in spoke.receive::<Message>() {
                    machine.receive(spoke.rank, &message, clock.now());
                }
                if spoke.closed.is_some() {
                    actions.extend(machine.closed(spoke.rank));
                }
            }
            if let Some(end) = self.act(actions, None) {
                return end;
            }
            if let Some(Arrival { line, opening: Opening::Join(hello) }) = arrival
                && let Some(end) = self.act(machine.arrive(&hello, clock.now()), Some(line))
            {
                return end;
            }
            if let Some(end) = self.act(machine.tick(&self.door.remarks(), clock.now()), None) {
                return end;
            }
        }
    }

    /// Carries out actions about a newcomer, if there is one; the end of joining, if this was it.
    fn act(&mut self, actions: Vec<Action>, mut newcomer: Option<Line>) -> Option<End> {
        for action in actions {
            match action {
                Action::Seat { rank } => {
                    // A connection that broke at once is noticed as one that breaks later.
                    self.spokes.extend(newcomer.take().and_then(|line| Spoke::new(rank, line).ok()));
                }
                Action::SendAway(answer) => {
                    if let Some(line) = &mut newcomer {
                        tell_one(line, &answer);
                    }
                }
                Action::Beat { to, answer } => self.send(to, &answer, true),
                Action::Tell { to, answer } => self.send(to, &answer, false),
                Action::Drop { rank } => self.spokes.retain(|spoke| spoke.rank != rank),
                Action::Remark(sentence) => self.door.remark(sentence),
                Action::End(end) => {
                    self.flush();
                    return Some(end);
                }
            }
        }
        None
    }

    fn send(&mut self, to: usize, answer: &Answer, is_beat: bool) {
        if let Some(spoke) = self.spokes.iter_mut().find(|spoke| spoke.rank == to && !(is_beat && spoke.has_unsent())) {
            spoke.send(answer);
        }
    }

    /// Sends what is unsent, within a while. A rank that cannot be reached has just gone, and is noticed later.
    fn flush(&mut self) {
        let until = Instant::now() + ATTEMPT;
        while self.spokes.iter_mut().any(|spoke| !spoke.flush()) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
