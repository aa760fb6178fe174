//! Every other rank's part of a rendezvous: connects to rank 0, and retries until it is answered.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use super::{
    ATTEMPT, Meeting, PAUSE,
    address::{check_token, connect, resolve, stays_on_host, unresolved},
    parsed, unwelcome,
};
use crate::distributed::world::{
    Facts, JoinConfig, Member, Seat, WorldError,
    board::Entry,
    deadline,
    door::Door,
    hello::{Answer, Hello, Opening},
    message::Message,
    spoke::Spoke,
    timespec,
    token::GreetError,
    trust::Trust,
    waking::Waking,
    wire,
};

/// Time limit for the processes of an ended process group to exit, once they have noticed its end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Failure of an attempt to join.
enum Missed {
    /// Rank 0 is not there yet, or not any more.
    ForNow(String),
    /// Refused by somebody who may belong to an earlier world and go: final only when it lasts.
    Refused(WorldError),
    Finally(WorldError),
}

impl From<io::Error> for Missed {
    fn from(error: io::Error) -> Missed {
        Missed::ForNow(error.to_string())
    }
}

/// Joins the world of rank 0.
pub(in crate::distributed::world) fn visit(
    seat: &Seat,
    config: &JoinConfig,
    facts: &Facts,
    trust: &Trust,
) -> Result<Meeting, WorldError> {
    let deadline = Instant::now() + config.join_deadline;
    let mut last = String::new();
    // The refusal of the last attempts, and when they began to be refused.
    let mut refused: Option<(WorldError, Instant)> = None;
    let mut visitor = Visitor { seat, config, facts, trust, had_seat: false };
    while let Ok(left) = deadline::left(deadline) {
        match visitor.attempt(Instant::now() + left.min(ATTEMPT)) {
            Ok(meeting) => return Ok(meeting),
            Err(Missed::Finally(error)) => return Err(error),
            Err(Missed::Refused(error)) => {
                let since = refused.take().map_or_else(Instant::now, |(_, since)| since);
                if since.elapsed() > config.heartbeat_deadline + FAREWELL {
                    return Err(error);
                }
                refused = Some((error, since));
            }
            Err(Missed::ForNow(problem)) => {
                last = problem;
                refused = None;
            }
        }
        thread::sleep(PAUSE.min(left));
    }
    Err(refused.map_or_else(
        || {
            WorldError::NeverCame(format!(
                "rank 0 did not come: no answer from {} within {} s ({last})",
                seat.place(),
                config.join_deadline.as_secs_f64()
            ))
        },
        |(error, _)| error,
    ))
}

/// A rank on its way to rank 0.
struct Visitor<'a> {
    seat: &'a Seat,
    config: &'a JoinConfig,
    facts: &'a Facts,
    trust: &'a Trust,
    /// True if rank 0 has accepted it before, to wait for the others.
    had_seat: bool,
}

impl Visitor<'_> {
    fn attempt(&mut self, deadline: Instant) -> Result<Meeting, Missed> {
        let Visitor { seat, config, facts, trust, .. } = *self;
        let addresses = resolve(seat).map_err(|error| Missed::ForNow(unresolved(seat, &error)))?;
        check_token(seat, config, &addresses).map_err(Missed::Finally)?;
        let mut line = match trust.ask(connect(&addresses, deadline)?, deadline) {
            Ok(line) => line,
            Err(GreetError::Io(error)) => return Err(error.into()),
            Err(other) => return Err(Missed::Refused(WorldError::Refused(unwelcome(&seat.place(), &other)))),
        };
        let (mut own, master) = (line.socket().local_addr()?, line.socket().peer_addr()?);
        own.set_port(0);
        if own.ip().is_loopback() && !stays_on_host(seat, config, &addresses) {
            // The rank before may be on another host, which sees this one where it sees rank 0.
            own.set_ip(if own.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() });
        }
        let door = Door::open(TcpListener::bind(own)?, trust.clone())?;
        let address = SocketAddr::new(line.socket().local_addr()?.ip(), door.address().port());
        let hello = Hello::new(seat.rank, seat.n_ranks, address.to_string(), facts);
        wire::send(&mut line, &Opening::Join(hello), deadline)?;
        let mut spoke = Spoke::new(0, line)?;
        let (session, members) = match self.await_answer(&mut spoke)? {
            Answer::Welcome { session, members } => (session, members),
            Answer::Refused(sentence) => return Err(Missed::Finally(WorldError::Refused(sentence))),
            Answer::NeverCame(sentence) => return Err(Missed::Finally(WorldError::NeverCame(sentence))),
            // This process sat there, and was replaced while it was silent.
            Answer::Taken(sentence) if self.had_seat => return Err(Missed::Finally(WorldError::NeverCame(sentence))),
            Answer::Taken(sentence) => return Err(Missed::Finally(WorldError::Refused(sentence))),
            Answer::Full(sentence) => return Err(Missed::Refused(WorldError::Refused(sentence))),
            Answer::Later(sentence) => return Err(Missed::ForNow(sentence)),
            Answer::Wait => return Err(Missed::ForNow("rank 0 only waits".to_owned())),
        };
        if members.len() != seat.n_ranks || members.iter().enumerate().any(|(rank, member)| member.rank != rank) {
            return Err(Missed::ForNow("rank 0 told nonsense".to_owned()));
        }
        let next = next_of(seat, &members, master).map_err(Missed::Finally)?;
        Ok(Meeting { session, members, spokes: vec![spoke], door, next })
    }

    /// Waits for rank 0's answer, and says meanwhile that this rank is there. Rank 0 does the same: one that is silent is gone.
    fn await_answer(&mut self, spoke: &mut Spoke) -> Result<Answer, Missed> {
        let config = self.config;
        // Rank 0's patience began before; a little more, for its answer to come.
        let deadline = Instant::now() + config.join_deadline + ATTEMPT;
        let mut waking = Waking::new(config.heartbeat_deadline);
        let mut next_beat = Instant::now();
        while deadline::left(deadline).is_ok() {
            if Instant::now() >= next_beat {
                next_beat = Instant::now() + config.heartbeat_every;
                if !spoke.has_unsent() {
                    spoke.send(&Message::Beat(Entry::default()));
                }
            }
            let out = if spoke.flush() { PollFlags::empty() } else { PollFlags::OUT };
            let nap = next_beat.saturating_duration_since(Instant::now());
            if poll(&mut [PollFd::new(spoke.socket(), PollFlags::IN | out)], Some(&timespec(nap))).is_err() {
                thread::sleep(nap.min(PAUSE));
            }
            if waking.was_paused() {
                spoke.heard = Instant::now();
            }
            spoke.fill();
            while let Some(answer) = spoke.next() {
                match answer {
                    Answer::Wait => self.had_seat = true,
                    answer => return Ok(answer),
                }
            }
            if let Some(error) = spoke.closed.take() {
                return Err(error.into());
            }
            if spoke.heard.elapsed() > config.heartbeat_deadline {
                let silence = config.heartbeat_deadline.as_secs_f64();
                return Err(Missed::ForNow(format!("nothing was heard of rank 0 for {silence} s")));
            }
        }
        Err(Missed::ForNow("rank 0 did not answer".to_owned()))
    }
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
