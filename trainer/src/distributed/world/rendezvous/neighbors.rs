//! Connections of the ring: from each rank to the next, and from the previous.

use std::{io, thread, time::Instant};

use super::{ATTEMPT, Holder, Meeting, PAUSE, address::connect, turn_away, unwelcome};
use crate::distributed::world::{
    Board, JoinConfig, Seat, deadline, door::Arrival, hello::Opening, line::Line, token::GreetError, trust::Trust, wire,
};

/// Makes the lines of the ring: from the rank before, and to the next one. What keeps it from that, in a sentence.
pub(in crate::distributed::world) fn form_ring(
    seat: &Seat,
    config: &JoinConfig,
    trust: &Trust,
    meeting: &Meeting,
    board: &Board,
) -> Result<(Line, Line), String> {
    let deadline = Instant::now() + config.join_deadline.min(6 * ATTEMPT);
    let is_over = || board.verdict().is_some() || deadline::left(deadline).is_err();
    let (next_rank, before) = ((seat.rank + 1) % seat.n_ranks, (seat.rank + seat.n_ranks - 1) % seat.n_ranks);
    let next = loop {
        match knock(seat, trust, meeting, deadline) {
            Ok(next) => break next,
            Err(error) if is_over() => {
                let (name, place) = (board.name(next_rank), meeting.next);
                return Err(format!("it cannot connect to {name} at {place}: {error}; ranks need TCP between them"));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    };
    while !is_over() {
        let Some(Arrival { mut line, opening }) = meeting.door.next(PAUSE) else { continue };
        match opening {
            Opening::Ring { session, from } if session == meeting.session && from == before => {
                return Ok((line, next));
            }
            Opening::Ring { .. } => {}
            // The pulse will know more.
            Opening::Join(hello) => turn_away(&meeting.members, &mut line, &hello, |_| Holder::InDoubt),
        }
    }
    Err(format!("{} did not connect to it; ranks need TCP between them", board.name(before)))
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
