//! How ranks find each other: rank 0 listens, all others come to it, in any order and late. It compares what they bring,
//! and once all are here it tells everybody who is where.

mod address;

use std::{
    io::{self, ErrorKind},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use self::address::{check_token, connect, listen, resolve, stays_on_host, unresolved};
use super::{
    Board, Facts, JoinConfig, Member, Seat, WorldError,
    door::{Arrival, Door},
    hello::{Answer, Hello, Opening},
    token::{self, GreetError, VERSION},
    wire,
};

/// How long one attempt to connect may take, and one answer to be sent.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// What comes out of a rendezvous.
#[derive(Debug)]
pub(super) struct Meeting {
    /// A name that no other world has.
    pub(super) session: String,
    pub(super) members: Vec<Member>,
    /// The connections of the pulse: from rank 0 to all others, by rank; from another rank to rank 0 alone.
    pub(super) spokes: Vec<(usize, TcpStream)>,
    /// Where the rank before will knock.
    pub(super) door: Door,
    /// Where the next rank's door is.
    pub(super) next: SocketAddr,
}

/// Rank 0: waits for all others.
pub(super) fn host(
    seat: &Seat,
    config: &JoinConfig,
    facts: &Facts,
    listener: Option<TcpListener>,
) -> Result<Meeting, WorldError> {
    let deadline = Instant::now() + config.join_deadline;
    let listener = match listener {
        Some(listener) => listener,
        None => listen(seat, config, deadline)?,
    };
    let door = Door::open(listener, config.token.clone())?;
    let own = Hello::new(0, seat.n_ranks, seat.place(), facts);
    let mut guests: Vec<Option<(Hello, TcpStream)>> = (0..seat.n_ranks).map(|_| None).collect();
    while guests[1..].iter().any(Option::is_none) {
        let Ok(left) = wire::left(deadline) else {
            let sentence = never_came(seat, config, &guests, &door.remarks());
            tell(&guests, &Answer::NeverCame(sentence.clone()));
            return Err(WorldError::NeverCame(sentence));
        };
        let arrival = door.next(left.min(PAUSE));
        // A rank that went away may come again.
        for guest in &mut guests {
            guest.take_if(|(_, stream)| is_gone(stream));
        }
        let Some(Arrival { stream, opening: Opening::Join(hello) }) = arrival else { continue };
        if let Some(sentence) = own.objection(&hello) {
            tell_one(&stream, &Answer::Refused(sentence.clone()));
            tell(&guests, &Answer::Refused(sentence.clone()));
            return Err(WorldError::Refused(sentence));
        }
        let rank = hello.member.rank;
        let first = if rank == 0 { Some(&own) } else { guests[rank].as_ref().map(|(first, _)| first) };
        if let Some(first) = first {
            let sentence = taken(&first.member, &hello.member);
            tell_one(&stream, &Answer::Refused(sentence.clone()));
            door.remark(sentence);
            continue;
        }
        guests[rank] = Some((hello, stream));
    }
    let session = session()?;
    let mut members = vec![own.member];
    let mut spokes = Vec::new();
    for (hello, stream) in guests.into_iter().flatten() {
        spokes.push((hello.member.rank, stream));
        members.push(hello.member);
    }
    let welcome = Answer::Welcome { session: session.clone(), members: members.clone() };
    // Who cannot be told has gone in this moment: the pulse will say so to all others.
    for (_, stream) in &spokes {
        tell_one(stream, &welcome);
    }
    let next = parsed(&members[1])?;
    Ok(Meeting { session, members, spokes, door, next })
}

/// Any other rank: comes to rank 0, and comes again until it is answered.
pub(super) fn visit(seat: &Seat, config: &JoinConfig, facts: &Facts) -> Result<Meeting, WorldError> {
    let deadline = Instant::now() + config.join_deadline;
    let mut last = String::new();
    while let Ok(left) = wire::left(deadline) {
        match attempt(seat, config, facts, Instant::now() + left.min(ATTEMPT)) {
            Ok(meeting) => return Ok(meeting),
            Err(Missed::Finally(error)) => return Err(error),
            Err(Missed::ForNow(problem)) => last = problem,
        }
        thread::sleep(PAUSE.min(left));
    }
    Err(WorldError::NeverCame(format!(
        "rank 0 did not come: no answer from {} within {} s ({last})",
        seat.place(),
        config.join_deadline.as_secs_f64()
    )))
}

/// Why an attempt to join failed.
enum Missed {
    ForNow(String),
    Finally(WorldError),
}

impl From<io::Error> for Missed {
    fn from(error: io::Error) -> Missed {
        Missed::ForNow(error.to_string())
    }
}

fn attempt(seat: &Seat, config: &JoinConfig, facts: &Facts, deadline: Instant) -> Result<Meeting, Missed> {
    let addresses = resolve(seat).map_err(|error| Missed::ForNow(unresolved(seat, &error)))?;
    check_token(seat, config, &addresses).map_err(Missed::Finally)?;
    let stream = connect(&addresses, deadline)?;
    match token::ask(&stream, config.token.as_ref(), deadline) {
        Ok(()) => {}
        Err(GreetError::Io(error)) => return Err(error.into()),
        Err(other) => return Err(Missed::Finally(WorldError::Refused(unwelcome(&seat.place(), &other)))),
    }
    let (mut own, master) = (stream.local_addr()?, stream.peer_addr()?);
    own.set_port(0);
    if own.ip().is_loopback() && !stays_on_host(seat, config, &addresses) {
        // The rank before may be on another host, which sees this one where it sees rank 0.
        own.set_ip(if own.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() });
    }
    let door = Door::open(TcpListener::bind(own)?, config.token.clone())?;
    let address = SocketAddr::new(stream.local_addr()?.ip(), door.address().port());
    let hello = Hello::new(seat.rank, seat.n_ranks, address.to_string(), facts);
    wire::send(&stream, &Opening::Join(hello), deadline)?;
    // From here on rank 0's patience counts, which began before; a little more, for its answer to come.
    let (session, members) = match wire::receive(&stream, Instant::now() + config.join_deadline + ATTEMPT)? {
        Answer::Welcome { session, members } => (session, members),
        Answer::Refused(sentence) => return Err(Missed::Finally(WorldError::Refused(sentence))),
        Answer::NeverCame(sentence) => return Err(Missed::Finally(WorldError::NeverCame(sentence))),
        Answer::Later => return Err(Missed::ForNow("another world is about to end there".to_owned())),
    };
    if members.len() != seat.n_ranks || members.iter().enumerate().any(|(rank, member)| member.rank != rank) {
        return Err(Missed::ForNow("rank 0 told nonsense".to_owned()));
    }
    let next = match (seat.rank + 1) % seat.n_ranks {
        0 => master,
        next => match parsed(&members[next]).map_err(Missed::Finally)? {
            next if next.ip().is_loopback() && !master.ip().is_loopback() => SocketAddr::new(master.ip(), next.port()),
            next => next,
        },
    };
    Ok(Meeting { session, members, spokes: vec![(0, stream)], door, next })
}

/// Makes the connections of the ring: to the next rank, and from the one before. What keeps it from that, in a sentence.
pub(super) fn form_ring(
    seat: &Seat,
    config: &JoinConfig,
    meeting: &Meeting,
    board: &Board,
) -> Result<(TcpStream, TcpStream), String> {
    let deadline = Instant::now() + config.join_deadline.min(6 * ATTEMPT);
    let is_over = || board.verdict().is_some() || wire::left(deadline).is_err();
    let (next_rank, before) = ((seat.rank + 1) % seat.n_ranks, (seat.rank + seat.n_ranks - 1) % seat.n_ranks);
    let next = loop {
        match knock(seat, config, meeting, deadline) {
            Ok(next) => break next,
            Err(error) if is_over() => {
                let (name, place) = (board.name(next_rank), meeting.next);
                return Err(format!("it cannot connect to {name} at {place}: {error}; ranks need TCP between them"));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    };
    while !is_over() {
        let Some(Arrival { stream, opening }) = meeting.door.next(PAUSE) else { continue };
        match opening {
            Opening::Ring { session, from } if session == meeting.session && from == before => {
                return Ok((stream, next));
            }
            Opening::Ring { .. } => {}
            Opening::Join(hello) => turn_away(&meeting.members, &stream, &hello, |_| false),
        }
    }
    Err(format!("{} did not connect to it; ranks need TCP between them", board.name(before)))
}

fn knock(seat: &Seat, config: &JoinConfig, meeting: &Meeting, deadline: Instant) -> io::Result<TcpStream> {
    let stream = connect(&[meeting.next], deadline)?;
    token::ask(&stream, config.token.as_ref(), deadline).map_err(|error| match error {
        GreetError::Io(error) => error,
        other => io::Error::other(unwelcome(&meeting.next.to_string(), &other)),
    })?;
    wire::send(&stream, &Opening::Ring { session: meeting.session.clone(), from: seat.rank }, deadline)?;
    Ok(stream)
}

/// Says to somebody who comes to a world that is complete, that it is; to one whose seat may be free soon, to come again.
pub(super) fn turn_away(members: &[Member], stream: &TcpStream, hello: &Hello, is_ending: impl Fn(usize) -> bool) {
    let answer = match members.get(hello.member.rank) {
        Some(member) if is_ending(member.rank) => Answer::Later,
        Some(member) => Answer::Refused(taken(member, &hello.member)),
        None => {
            let (name, n_ranks) = (hello.name(), members.len());
            Answer::Refused(format!("{name} is refused: the world of {n_ranks} ranks is complete"))
        }
    };
    tell_one(stream, &answer);
}

fn taken(first: &Member, second: &Member) -> String {
    format!(
        "a second rank {} came, on {} (process {}): the first sits on {} (process {}); give every rank its own number",
        first.rank, second.host, second.pid, first.host, first.pid
    )
}

fn never_came(seat: &Seat, config: &JoinConfig, guests: &[Option<(Hello, TcpStream)>], remarks: &[String]) -> String {
    let missing: Vec<String> =
        (1..guests.len()).filter(|rank| guests[*rank].is_none()).map(|rank| rank.to_string()).collect();
    let (ranks, they) = if missing.len() == 1 { ("rank", "it") } else { ("ranks", "them") };
    let mut sentence = format!(
        "{ranks} {} of {} never came to {} within {} s: see what became of {they}",
        missing.join(", "),
        seat.n_ranks,
        seat.place(),
        config.join_deadline.as_secs_f64()
    );
    if !remarks.is_empty() {
        sentence.push_str(&format!(" ({})", remarks.join("; ")));
    }
    sentence
}

fn unwelcome(place: &str, error: &GreetError) -> String {
    match error {
        GreetError::Token => {
            format!("the rank at {place} has another token: set KITH_TOKEN to the same secret text on every rank")
        }
        GreetError::Version(version) => format!(
            "the rank at {place} speaks protocol {version} and this one {VERSION}: run the same kith on every rank"
        ),
        GreetError::Stranger => format!(
            "what listens at {place} is no rank of kith: set MASTER_ADDR and MASTER_PORT to where rank 0 listens"
        ),
        GreetError::Io(error) => error.to_string(),
    }
}

fn tell(guests: &[Option<(Hello, TcpStream)>], answer: &Answer) {
    guests.iter().flatten().for_each(|(_, stream)| tell_one(stream, answer));
}

/// Whoever cannot be told any more, has gone.
fn tell_one(stream: &TcpStream, answer: &Answer) {
    let _ = stream.set_nonblocking(false);
    let _ = wire::send(stream, answer, Instant::now() + ATTEMPT);
}

fn is_gone(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    match stream.peek(&mut [0]) {
        Ok(n) => n == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

fn parsed(member: &Member) -> Result<SocketAddr, WorldError> {
    member.address.parse().map_err(|_| {
        WorldError::Refused(format!("rank {} told {:?} as its address, which is none", member.rank, member.address))
    })
}

fn session() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
