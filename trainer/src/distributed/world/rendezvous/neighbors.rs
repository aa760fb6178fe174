//! Connections of the ring, as [`kith_group::ring::forming`] makes them.

use std::{io, time::Instant};

use kith_group::{
    limits::PAUSE,
    message::Opening,
    refusal::{Holder, to_late},
    ring::forming::{Action, Forming},
};

use super::{Meeting, address::connect, tell_one, unwelcome};
use crate::distributed::world::{
    Board, JoinConfig, Seat, deadline::Clock, door::Arrival, line::Line, token::GreetError, trust::Trust, wire,
};

/// Makes the lines of the ring: from the rank before, and to the next one. What keeps it from that, in a sentence.
pub(in crate::distributed::world) fn form_ring(
    seat: &Seat,
    config: &JoinConfig,
    trust: &Trust,
    meeting: &Meeting,
    board: &Board,
) -> Result<(Line, Line), String> {
    let clock = Clock::start();
    let group = (meeting.session.clone(), meeting.members.clone());
    let mut machine = Forming::new(seat.rank, group, meeting.next.to_string(), config.limits(), clock.now());
    let (mut previous, mut next) = (None, None);
    loop {
        match machine.next(board.verdict().is_some(), clock.now()) {
            Action::Knock { until } => match knock(seat, trust, meeting, clock.at(until)) {
                Ok(line) => {
                    next = Some(line);
                    machine.connected();
                }
                Err(error) => machine.missed(error.to_string(), clock.now()),
            },
            Action::Wait { until } => {
                let Some(Arrival { mut line, opening }) = meeting.door.next(clock.until(until).min(PAUSE)) else {
                    continue;
                };
                if machine.is_previous(&opening) {
                    previous = Some(line);
                } else if let Opening::Join(hello) = opening {
                    // The pulse will know more.
                    tell_one(&mut line, &to_late(&meeting.members, &hello, |_| Holder::InDoubt));
                }
            }
            Action::Done => break,
            Action::Fail(sentence) => return Err(sentence),
        }
    }
    previous.zip(next).ok_or_else(|| "the ring is not complete".to_owned())
}

fn knock(seat: &Seat, trust: &Trust, meeting: &Meeting, deadline: Instant) -> io::Result<Line> {
    let socket = connect(&[meeting.next], deadline)?;
    let mut line = trust.ask(socket, deadline).map_err(|error| match error {
        GreetError::Io(error) => error,
        other => io::Error::other(unwelcome(&meeting.next.to_string(), &other)),
    })?;
    wire::send(&mut line, &Opening::Ring { session: meeting.session.clone(), from: seat.rank }, deadline)?;
    Ok(line)
}
