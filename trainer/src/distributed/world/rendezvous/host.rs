//! Rank 0's part of a rendezvous: waits for all others.

use std::{
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use super::{ATTEMPT, Holder, Meeting, PAUSE, address::listen, parsed, refusal, session, tell_one};
use crate::distributed::world::{
    Facts, JoinConfig, Seat, WorldError,
    contest::Contests,
    deadline,
    door::{Arrival, Door},
    hello::{Answer, Hello, Opening},
    line::Line,
    message::Message,
    spoke::Spoke,
    trust::Trust,
    waking::Waking,
};

/// Time for which rank 0 stays to refuse late ranks.
const LINGER: Duration = Duration::from_secs(10);

/// A rank that has come and waits for the others.
struct Guest {
    hello: Hello,
    spoke: Spoke,
}

/// Rank 0 and those who have come so far.
struct Host<'a> {
    seat: &'a Seat,
    config: &'a JoinConfig,
    own: Hello,
    door: Door,
    guests: Vec<Option<Guest>>,
    contests: Contests,
    waking: Waking,
    /// Time of the next sign of life to guests.
    next_beat: Instant,
}

/// Waits for all other ranks.
pub(in crate::distributed::world) fn host(
    seat: &Seat,
    config: &JoinConfig,
    facts: &Facts,
    trust: &Trust,
    listener: Option<TcpListener>,
) -> Result<Meeting, WorldError> {
    let deadline = Instant::now() + config.join_deadline;
    let listener = match listener {
        Some(listener) => listener,
        None => listen(seat, config, deadline)?,
    };
    let mut host = Host {
        seat,
        config,
        own: Hello::new(0, seat.n_ranks, seat.place(), facts),
        door: Door::open(listener, trust.clone())?,
        guests: (0..seat.n_ranks).map(|_| None).collect(),
        contests: Contests::new(config.heartbeat_every.max(2 * PAUSE), config.heartbeat_deadline),
        waking: Waking::new(config.heartbeat_deadline),
        next_beat: Instant::now(),
    };
    while host.guests[1..].iter().any(Option::is_none) {
        let Ok(left) = deadline::left(deadline) else {
            let sentence = host.never_came();
            host.tell_all(&Answer::NeverCame(sentence.clone()));
            return Err(WorldError::NeverCame(sentence));
        };
        if let Some(Arrival { line, opening: Opening::Join(hello) }) =
            host.door.next(left.min(PAUSE).min(config.heartbeat_every))
        {
            host.receive(line, hello, deadline)?;
        }
        host.beat();
    }
    host.welcome()
}

impl Host<'_> {
    /// Gives a rank its seat, or sends it away. Ranks that cannot work together at all are refused, all of them.
    fn receive(&mut self, mut line: Line, hello: Hello, deadline: Instant) -> Result<(), WorldError> {
        if let Some(sentence) = self.own.objection(&hello) {
            let answer = Answer::Refused(sentence.clone());
            tell_one(&mut line, &answer);
            let mut is_told: Vec<bool> = self.guests.iter().map(Option::is_some).collect();
            is_told[0] = true;
            is_told.get_mut(hello.member.rank).into_iter().for_each(|is_told| *is_told = true);
            self.tell_all(&answer);
            refuse_rest(&self.door, is_told, &answer, deadline.min(Instant::now() + LINGER));
            return Err(WorldError::Refused(sentence));
        }
        let rank = hello.member.rank;
        let (first, holder) = match &self.guests[rank] {
            _ if rank == 0 => (&self.own.member, Holder::Alive),
            None => {
                self.guests[rank] = Spoke::new(rank, line).ok().map(|spoke| Guest { hello, spoke });
                return Ok(());
            }
            Some(first) => {
                let is_alive = self.contests.is_refused(rank, first.spoke.heard, Instant::now());
                (&first.hello.member, if is_alive { Holder::Alive } else { Holder::InDoubt })
            }
        };
        let answer = refusal(first, &hello.member, holder);
        tell_one(&mut line, &answer);
        if let Answer::Taken(sentence) = answer {
            self.door.remark(sentence);
        }
        Ok(())
    }

    /// Exchanges signs of life with guests. A rank that has gone or is silent may come again, or another process in its
    /// place.
    fn beat(&mut self) {
        let (now, is_forgiven) = (Instant::now(), self.waking.was_paused());
        let is_due = now >= self.next_beat;
        if is_due {
            self.next_beat = now + self.config.heartbeat_every;
        }
        for rank in 1..self.guests.len() {
            let Some(Guest { spoke, .. }) = &mut self.guests[rank] else { continue };
            spoke.receive::<Message>();
            if is_forgiven {
                spoke.heard = now;
            }
            if is_due && !spoke.has_unsent() {
                spoke.send(&Answer::Wait);
            }
            spoke.flush();
            if spoke.closed.is_some() || spoke.heard.elapsed() > self.config.heartbeat_deadline {
                self.guests[rank] = None;
                self.contests.forget(rank);
            }
        }
    }

    /// Tells all who is where.
    fn welcome(mut self) -> Result<Meeting, WorldError> {
        let session = session()?;
        let guests = self.guests.iter().flatten().map(|guest| guest.hello.member.clone());
        let members: Vec<_> = std::iter::once(self.own.member.clone()).chain(guests).collect();
        // A guest that cannot be reached has just gone: the pulse will inform all others.
        self.tell_all(&Answer::Welcome { session: session.clone(), members: members.clone() });
        let spokes = self.guests.into_iter().flatten().map(|guest| guest.spoke).collect();
        let next = parsed(&members[1])?;
        Ok(Meeting { session, members, spokes, door: self.door, next })
    }

    /// Tells all guests, within a while.
    fn tell_all(&mut self, answer: &Answer) {
        let mut spokes: Vec<&mut Spoke> = self.guests.iter_mut().flatten().map(|guest| &mut guest.spoke).collect();
        spokes.iter_mut().for_each(|spoke| spoke.send(answer));
        let until = Instant::now() + ATTEMPT;
        while spokes.iter_mut().any(|spoke| !spoke.flush()) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn never_came(&self) -> String {
        let (seat, remarks) = (self.seat, self.door.remarks());
        let missing: Vec<String> =
            (1..self.guests.len()).filter(|rank| self.guests[*rank].is_none()).map(|rank| rank.to_string()).collect();
        let (ranks, they) = if missing.len() == 1 { ("rank", "it") } else { ("ranks", "them") };
        let mut sentence = format!(
            "{ranks} {} of {} never came to {} within {} s: see what became of {they}",
            missing.join(", "),
            seat.n_ranks,
            seat.place(),
            self.config.join_deadline.as_secs_f64()
        );
        if !remarks.is_empty() {
            sentence.push_str(&format!(" ({})", remarks.join("; ")));
        }
        sentence
    }
}

/// Refuses late ranks too, which would otherwise wait for a process that has gone.
fn refuse_rest(door: &Door, mut is_told: Vec<bool>, answer: &Answer, deadline: Instant) {
    while is_told.contains(&false)
        && let Ok(left) = deadline::left(deadline)
    {
        let Some(Arrival { mut line, opening: Opening::Join(hello) }) = door.next(left) else { continue };
        tell_one(&mut line, answer);
        is_told.get_mut(hello.member.rank).into_iter().for_each(|is_told| *is_told = true);
    }
}
