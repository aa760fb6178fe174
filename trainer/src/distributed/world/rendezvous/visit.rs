//! Every other rank's part of a rendezvous: the connection of [`kith_group::visit`] to rank 0.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    thread,
    time::Instant,
};

use kith_group::{
    limits::PAUSE,
    member::Member,
    message::Opening,
    visit::{Action, End, Missed, Visit},
};
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    Meeting,
    address::{check_token, connect, resolve, stays_on_host, unresolved},
    parsed, unwelcome,
};
use crate::distributed::world::{
    Facts, JoinConfig, Seat, WorldError, deadline::Clock, door::Door, facts::hello, spoke::Spoke, timespec,
    token::GreetError, trust::Trust, wire,
};

/// Failure of an attempt to connect.
enum Failure {
    Missed(Missed),
    Finally(WorldError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Missed(Missed::ForNow(error.to_string()))
    }
}

/// The connection to rank 0, and what came with it.
struct Contact {
    spoke: Spoke,
    /// Listener for the previous rank.
    door: Door,
    /// Address of rank 0.
    master: SocketAddr,
}

/// Joins the world of rank 0.
pub(in crate::distributed::world) fn visit(
    seat: &Seat,
    config: &JoinConfig,
    facts: &Facts,
    trust: &Trust,
) -> Result<Meeting, WorldError> {
    let clock = Clock::start();
    let mut machine = Visit::new(seat.n_ranks, seat.place(), config.limits(), clock.now());
    let mut contact = None;
    loop {
        let mut actions = machine.tick(clock.now());
        if actions.is_empty() {
            actions = await_answer(&mut machine, &mut contact, clock);
        }
        for action in actions {
            match action {
                Action::Knock { until } => match knock(seat, config, (facts, trust), clock.at(until)) {
                    Ok(made) => {
                        contact = Some(made);
                        machine.connected(clock.now());
                    }
                    Err(Failure::Finally(error)) => return Err(error),
                    Err(Failure::Missed(missed)) => {
                        if let Some(error) = machine.missed(missed, clock.now()).into_iter().find_map(failed) {
                            return Err(error);
                        }
                    }
                },
                Action::Beat(message) => {
                    if let Some(Contact { spoke, .. }) = &mut contact
                        && !spoke.has_unsent()
                    {
                        spoke.send(&message);
                    }
                }
                Action::HangUp => contact = None,
                Action::End(End::Welcome { session, members, number }) => {
                    let Contact { spoke, door, master } = contact.expect("rank 0 answered on it");
                    let next = next_of(seat, &members, master)?;
                    return Ok(Meeting { session, members, number, spokes: vec![spoke], door, next });
                }
                Action::End(end) => return Err(error_of(end)),
            }
        }
    }
}

/// The error of an action that ends joining.
fn failed(action: Action) -> Option<WorldError> {
    match action {
        Action::End(end) => Some(error_of(end)),
        _ => None,
    }
}

fn error_of(end: End) -> WorldError {
    match end {
        End::Refused(sentence) => WorldError::Refused(sentence),
        End::NeverCame(sentence) => WorldError::NeverCame(sentence),
        End::Welcome { .. } => unreachable!("a welcome is no error"),
    }
}

/// Waits for an answer of rank 0 or for the next tick, and tells the machine what came.
fn await_answer(machine: &mut Visit, contact: &mut Option<Contact>, clock: Clock) -> Vec<Action> {
    let nap = clock.until(machine.next_tick());
    let Some(Contact { spoke, .. }) = contact else {
        thread::sleep(nap);
        return Vec::new();
    };
    let out = if spoke.flush() { PollFlags::empty() } else { PollFlags::OUT };
    if poll(&mut [PollFd::new(spoke.socket(), PollFlags::IN | out)], Some(&timespec(nap))).is_err() {
        thread::sleep(nap.min(PAUSE));
    }
    machine.wake(clock.now());
    spoke.fill();
    while let Some(answer) = spoke.next() {
        let actions = machine.receive(answer, clock.now());
        if !actions.is_empty() {
            return actions;
        }
    }
    match spoke.closed.take() {
        Some(error) => machine.closed(error.to_string(), clock.now()),
        None => Vec::new(),
    }
}

/// Connects to rank 0 and introduces this rank.
fn knock(
    seat: &Seat,
    config: &JoinConfig,
    (facts, trust): (&Facts, &Trust),
    deadline: Instant,
) -> Result<Contact, Failure> {
    let addresses = resolve(seat).map_err(|error| Failure::Missed(Missed::ForNow(unresolved(seat, &error))))?;
    check_token(seat, config, &addresses).map_err(Failure::Finally)?;
    let mut line = match trust.ask(connect(&addresses, deadline)?, deadline) {
        Ok(line) => line,
        Err(GreetError::Io(error)) => return Err(error.into()),
        Err(other) => return Err(Failure::Missed(Missed::Refused(unwelcome(&seat.place(), &other)))),
    };
    let (mut own, master) = (line.socket().local_addr()?, line.socket().peer_addr()?);
    own.set_port(0);
    if own.ip().is_loopback() && !stays_on_host(seat, config, &addresses) {
        // The rank before may be on another host, which sees this one where it sees rank 0.
        own.set_ip(if own.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() });
    }
    let door = Door::open(TcpListener::bind(own)?, trust.clone())?;
    let address = SocketAddr::new(line.socket().local_addr()?.ip(), door.address().port());
    let hello = hello(seat.rank, seat.n_ranks, address.to_string(), facts);
    wire::send(&mut line, &Opening::Join(hello), deadline)?;
    Ok(Contact { spoke: Spoke::new(0, line)?, door, master })
}

/// Address of the next rank's listener.
fn next_of(seat: &Seat, members: &[Member], master: SocketAddr) -> Result<SocketAddr, WorldError> {
    let next = (seat.rank + 1) % seat.n_ranks;
    if next == 0 {
        return Ok(master);
    }
    let next = parsed(&members[next])?;
    let is_of_master = next.ip().is_loopback() && !master.ip().is_loopback();
    Ok(if is_of_master { SocketAddr::new(master.ip(), next.port()) } else { next })
}
