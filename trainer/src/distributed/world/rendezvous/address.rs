//! Address where ranks meet: resolution of rank 0's host name, and the hosts that can reach it.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    thread,
    time::{Duration, Instant},
};

use kith_group::limits::PAUSE;

use crate::distributed::world::{JoinConfig, Seat, WorldError, deadline};

/// Time limit for rank 0 to resolve its own name; a cluster that has just started it may need some time.
const RESOLVE_LIMIT: Duration = Duration::from_secs(60);

/// Time limit for an earlier rank 0 to exit, once it has noticed the end of its process group.
const FAREWELL: Duration = Duration::from_secs(5);

/// Listens where the others will come.
pub(super) fn listen(seat: &Seat, config: &JoinConfig, deadline: Instant) -> Result<TcpListener, WorldError> {
    let known_by = deadline.min(Instant::now() + RESOLVE_LIMIT);
    let addresses = loop {
        match resolve(seat) {
            Ok(addresses) => break addresses,
            Err(error) if deadline::left(known_by).is_err() => {
                return Err(WorldError::NeverCame(unresolved(seat, &error)));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    };
    check_token(seat, config, &addresses)?;
    let has_six = addresses.iter().any(SocketAddr::is_ipv6);
    let all_six = SocketAddr::from((Ipv6Addr::UNSPECIFIED, seat.port));
    let all_four = SocketAddr::from((Ipv4Addr::UNSPECIFIED, seat.port));
    let places = match () {
        () if stays_on_host(seat, config, &addresses) => addresses,
        () if has_six => vec![all_six, all_four],
        () => vec![all_four],
    };
    let freed_by = deadline.min(Instant::now() + config.heartbeat_deadline + FAREWELL);
    loop {
        let error = match bind(&places) {
            Ok(listener) => return Ok(listener),
            Err(error) => error,
        };
        match error.kind() {
            // An earlier rank 0 that has not ended yet holds it.
            ErrorKind::AddrInUse if deadline::left(freed_by).is_ok() => thread::sleep(PAUSE),
            ErrorKind::AddrInUse => {
                return Err(WorldError::NeverCame(format!(
                    "MASTER_PORT {} on {} is in use: choose another, or end what listens there",
                    seat.port, seat.host
                )));
            }
            kind => {
                let sentence = format!("rank 0 cannot listen on MASTER_PORT {} of {}: {error}", seat.port, seat.host);
                let is_wrong = kind == ErrorKind::PermissionDenied;
                return Err(if is_wrong { WorldError::Refused(sentence) } else { WorldError::NeverCame(sentence) });
            }
        }
    }
}

/// Listens at the first of some places that there is. Many hosts have a name for version 6 and no network for it.
fn bind(places: &[SocketAddr]) -> io::Result<TcpListener> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for place in places {
        match TcpListener::bind(place) {
            Err(error) if error.kind() != ErrorKind::AddrInUse => last = error,
            bound => return bound,
        }
    }
    Err(last)
}

/// True if all ranks are on this host. Many hosts give their own name a loopback address, which others cannot reach:
/// with a token, such a name does not exclude other hosts.
pub(super) fn stays_on_host(seat: &Seat, config: &JoinConfig, addresses: &[SocketAddr]) -> bool {
    let is_said = seat.host == "localhost" || bare(&seat.host).parse::<IpAddr>().is_ok();
    is_loopback(addresses) && (is_said || config.token.is_none())
}

pub(super) fn resolve(seat: &Seat) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = (bare(&seat.host), seat.port).to_socket_addrs()?.collect();
    if addresses.is_empty() { Err(io::Error::other("it has no address")) } else { Ok(addresses) }
}

/// An address of version 6 may stand in brackets.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

pub(super) fn unresolved(seat: &Seat, error: &io::Error) -> String {
    format!("MASTER_ADDR {:?} is no name or address that is known here: {error}", seat.host)
}

/// Only ranks of one host may do without a token.
pub(super) fn check_token(seat: &Seat, config: &JoinConfig, addresses: &[SocketAddr]) -> Result<(), WorldError> {
    if config.token.is_some() || is_loopback(addresses) {
        return Ok(());
    }
    Err(WorldError::Refused(format!(
        "ranks that meet at {} can be reached from other hosts: set KITH_TOKEN to the same secret text on every rank",
        seat.host
    )))
}

fn is_loopback(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|address| address.ip().to_canonical().is_loopback())
}

pub(super) fn connect(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(ErrorKind::TimedOut);
    for address in addresses {
        match TcpStream::connect_timeout(address, deadline::left(deadline)?) {
            // Without a listener, a connection may by chance be made with itself.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => last = ErrorKind::ConnectionRefused.into(),
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
