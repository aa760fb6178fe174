//! Open connections: their limits, the memory that their calls hold, and the choice of connections to close for new
//! ones.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use tonic::Status;
use tracing::warn;

use crate::server::{
    limit::{Limit, LimitCounts},
    refused::Refused,
    session::Session,
};

/// All connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    max_connections: usize,
    max_per_address: usize,
    max_bytes: usize,
    started: Instant,
    limits: LimitCounts,
    /// Bytes that all calls hold.
    n_bytes: AtomicUsize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    by_id: HashMap<u64, Arc<Connection>>,
    n_by_address: HashMap<IpAddr, usize>,
    next_id: u64,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: u64,
    address: IpAddr,
    all: Arc<Connections>,
    /// Bytes that its calls hold.
    n_bytes: AtomicUsize,
    n_calls: AtomicUsize,
    /// Calls of services beside the sampler's, which need no token.
    n_tool_calls: AtomicUsize,
    /// Set when one of its calls was let in.
    is_known: AtomicBool,
    /// Name of the client, as its first call that was let in gave it.
    session: OnceLock<Session>,
    /// Milliseconds after the server's start: when it was accepted or its last call ended.
    idle_since: AtomicU64,
    is_ending: AtomicBool,
    /// Wakes its task.
    signal: Notify,
}

/// A known connection without calls makes room for a new one after this time.
const MIN_IDLE: Duration = Duration::from_secs(10);

/// Calls of services beside the sampler's that a connection may have at a time.
const MAX_TOOL_CALLS: usize = 4;

impl Connections {
    pub(crate) fn new(
        max_connections: usize,
        max_per_address: usize,
        max_bytes: usize,
        limits: LimitCounts,
    ) -> Connections {
        let (started, n_bytes, open) = (Instant::now(), AtomicUsize::new(0), Mutex::default());
        Connections { max_connections, max_per_address, max_bytes, started, limits, n_bytes, open }
    }

    /// Lets a connection in. When there is no room, for all or for its address, a connection that was never let ask
    /// leaves, the oldest first, then one that has been idle; the new one is refused when all are at work.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Result<Entered, Refused> {
        let address = network_of(address);
        let mut open = self.open();
        let mut closed = Vec::new();
        let n_of_address = open.n_by_address.get(&address).copied().unwrap_or(0);
        if n_of_address >= self.max_per_address {
            self.limits.reached(Limit::MaxPerAddress);
            let is_meant = |connection: &Connection| connection.address == address;
            closed.push((Limit::MaxPerAddress, self.dismiss(&mut open, is_meant).ok_or(Refused::MaxPerAddress)?));
        }
        if open.by_id.len() >= self.max_connections {
            self.limits.reached(Limit::MaxConnections);
            closed.push((Limit::MaxConnections, self.dismiss(&mut open, |_| true).ok_or(Refused::MaxConnections)?));
        }
        let id = open.next_id;
        open.next_id += 1;
        let connection = Arc::new(Connection {
            id,
            address,
            all: Arc::clone(self),
            n_bytes: AtomicUsize::new(0),
            n_calls: AtomicUsize::new(0),
            n_tool_calls: AtomicUsize::new(0),
            is_known: AtomicBool::new(false),
            session: OnceLock::new(),
            idle_since: AtomicU64::new(self.millis()),
            is_ending: AtomicBool::new(false),
            signal: Notify::new(),
        });
        open.by_id.insert(id, Arc::clone(&connection));
        *open.n_by_address.entry(address).or_default() += 1;
        drop(open); // Nobody waits for lines of the log.
        closed.iter().for_each(|(limit, connection)| connection.write_closed(*limit));
        Ok(Entered(connection))
    }

    /// Ends the connection that is missed least, if there is one.
    fn dismiss(&self, open: &mut Open, is_meant: impl Fn(&Connection) -> bool) -> Option<Arc<Connection>> {
        let now = self.millis();
        let is_idle = |connection: &&Arc<Connection>| {
            let idle = now.saturating_sub(connection.idle_since.load(Ordering::Relaxed));
            !connection.is_known() || connection.n_calls() == 0 && idle >= MIN_IDLE.as_millis() as u64
        };
        let meant = open.by_id.values().filter(|connection| is_meant(connection)).filter(is_idle);
        let least = meant.min_by_key(|connection| {
            (connection.is_known(), connection.idle_since.load(Ordering::Relaxed), connection.id)
        })?;
        let least = Arc::clone(least);
        least.end();
        open.remove(&least);
        Some(least)
    }

    /// Makes room for what `asking` holds now: the connection that holds most ends, unless it is the one that asks.
    #[cold]
    fn make_room(&self, asking: &Connection) -> Result<(), Status> {
        let open = self.open();
        let held = |connection: &Connection| connection.n_bytes.load(Ordering::Relaxed);
        let (mut n_leaving, mut most) = (0, None::<&Arc<Connection>>);
        for connection in open.by_id.values() {
            if connection.is_ending() {
                n_leaving += held(connection);
            } else if most.is_none_or(|most| held(connection) > held(most)) {
                most = Some(connection);
            }
        }
        if self.n_bytes.load(Ordering::Relaxed).saturating_sub(n_leaving) <= self.max_bytes {
            return Ok(());
        }
        match most {
            Some(most) if most.id != asking.id && held(most) > held(asking) => {
                most.end();
                let most = Arc::clone(most);
                drop(open); // Nobody waits for lines of the log.
                self.limits.reached(Limit::RequestMemory);
                most.write_closed(Limit::RequestMemory);
                Ok(())
            }
            _ => Err(Limit::RequestMemory.status(Status::unavailable(format!(
                "calls hold all of the {} bytes that they may: ask again, or raise --request-memory",
                self.max_bytes
            )))),
        }
    }

    /// Connections that are open.
    pub(crate) fn n_open(&self) -> usize {
        self.open().by_id.len()
    }

    /// Bytes that calls hold.
    pub(crate) fn n_bytes(&self) -> usize {
        self.n_bytes.load(Ordering::Relaxed)
    }

    /// True if there is memory to compute ahead of what clients read.
    pub(crate) fn has_ample_memory(&self) -> bool {
        self.n_bytes() <= self.max_bytes / 2
    }

    /// Wakes the tasks of all connections.
    pub(crate) fn signal_all(&self) {
        self.open().by_id.values().for_each(|connection| connection.signal.notify_one());
    }

    fn millis(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn remove(&mut self, connection: &Connection) {
        if self.by_id.remove(&connection.id).is_some()
            && let Some(n) = self.n_by_address.get_mut(&connection.address)
        {
            *n -= 1;
            if *n == 0 {
                self.n_by_address.remove(&connection.address);
            }
        }
    }
}

/// A connection's place among all; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Entered(pub(crate) Arc<Connection>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.all.open().remove(&self.0);
    }
}

impl Connection {
    /// Takes memory for one of its calls, before the memory is used.
    pub(crate) fn take(self: &Arc<Self>, n_bytes: usize) -> Result<Held, Status> {
        let all = &self.all;
        if n_bytes > all.max_bytes {
            return Err(Limit::RequestMemory.status(Status::resource_exhausted(format!(
                "{n_bytes} bytes are over the limit of {} that calls may hold: ask for less at once, or raise \
                 --request-memory",
                all.max_bytes
            ))));
        }
        self.n_bytes.fetch_add(n_bytes, Ordering::Relaxed);
        let n_all = all.n_bytes.fetch_add(n_bytes, Ordering::Relaxed) + n_bytes;
        let held = Held { connection: Arc::clone(self), n_bytes };
        if n_all > all.max_bytes {
            all.make_room(self)?;
        }
        Ok(held)
    }

    /// The address of its client.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Ends it: its task sees that, and its calls with it.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.signal.notify_one();
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Returns when the connection was asked to end, or all were asked to look around.
    pub(crate) async fn signaled(&self) {
        self.signal.notified().await;
    }

    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// One of its calls was let in.
    pub(crate) fn set_known(&self, session: Option<&Session>) {
        if !self.is_known() {
            if let Some(session) = session {
                let _ = self.session.set(session.clone()); // Several calls may be the first.
            }
            self.is_known.store(true, Ordering::Relaxed);
        }
    }

    /// Writes a line: it is closed for others, because of a limit.
    fn write_closed(&self, limit: Limit) {
        let session = self.session.get().map(Session::as_str);
        warn!(reason = limit.name(), address = %self.address, session, "a connection is closed to make room");
    }

    pub(crate) fn n_calls(&self) -> usize {
        self.n_calls.load(Ordering::Relaxed)
    }

    /// The time since its last call ended, or since it was accepted.
    pub(crate) fn idle(&self) -> Duration {
        match self.n_calls() {
            0 => Duration::from_millis(self.all.millis().saturating_sub(self.idle_since.load(Ordering::Relaxed))),
            _ => Duration::ZERO,
        }
    }

    /// Starts a call of a service beside the sampler's, unless there are too many.
    pub(crate) fn start_tool_call(self: &Arc<Self>) -> Option<OpenToolCall> {
        let open = OpenToolCall(Arc::clone(self));
        (self.n_tool_calls.fetch_add(1, Ordering::Relaxed) < MAX_TOOL_CALLS).then_some(open)
    }

    pub(crate) fn all(&self) -> &Connections {
        &self.all
    }

    /// A call, from its first byte to its end.
    pub(crate) fn start_call(self: &Arc<Self>) -> OpenCall {
        self.n_calls.fetch_add(1, Ordering::Relaxed);
        OpenCall(Arc::clone(self))
    }
}

/// A call of a connection.
#[derive(Debug)]
pub(crate) struct OpenCall(Arc<Connection>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.idle_since.store(self.0.all.millis(), Ordering::Relaxed);
        self.0.n_calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call of a service beside the sampler's.
#[derive(Debug)]
pub(crate) struct OpenToolCall(Arc<Connection>);

impl Drop for OpenToolCall {
    fn drop(&mut self) {
        self.0.n_tool_calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Memory of a call; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    connection: Arc<Connection>,
    n_bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.connection.n_bytes.fetch_sub(self.n_bytes, Ordering::Relaxed);
        self.connection.all.n_bytes.fetch_sub(self.n_bytes, Ordering::Relaxed);
    }
}

/// An address as one client has it: of an IPv6 address, its network of 64 bits.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn newcomers_displace_strangers_and_nobody_at_work() {
        let limits = LimitCounts::default();
        let all = Arc::new(Connections::new(3, 2, 1000, limits.clone()));
        let (one, two) = (all.enter(address(1)).unwrap(), all.enter(address(1)).unwrap());
        two.0.set_known(None);
        // The address is full: its stranger leaves.
        let three = all.enter(address(1)).unwrap();
        assert!(one.0.is_ending() && !two.0.is_ending());
        let four = all.enter(address(2)).unwrap();
        // All are full: the oldest stranger leaves.
        let five = all.enter(address(3)).unwrap();
        assert!(three.0.is_ending() && !four.0.is_ending());
        four.0.set_known(None);
        five.0.set_known(None);
        let _call = four.0.start_call();
        let refused = all.enter(address(4)).unwrap_err();
        assert_eq!(refused, Refused::MaxConnections, "two, four and five are known and were at work just now");
        assert_eq!((limits.of(Limit::MaxPerAddress), limits.of(Limit::MaxConnections)), (1, 2));
        drop(two);
        assert!(all.enter(address(4)).is_ok());
        drop((one, three, four, five));
        assert_eq!(all.n_open(), 0);
        assert!(all.open().n_by_address.is_empty());
    }

    #[test]
    fn the_connection_that_holds_most_makes_room() {
        let limits = LimitCounts::default();
        let all = Arc::new(Connections::new(9, 9, 1000, limits.clone()));
        let (greedy, modest) = (all.enter(address(1)).unwrap(), all.enter(address(1)).unwrap());
        let held: Vec<Held> = (0..9).map(|_| greedy.0.take(100).unwrap()).collect();
        assert!(!all.has_ample_memory());
        let status = greedy.0.take(200).unwrap_err();
        assert_eq!(
            (status.code(), Limit::of(&status)),
            (tonic::Code::Unavailable, Some(Limit::RequestMemory)),
            "{status}"
        );
        assert_eq!(all.n_bytes(), 900, "a refusal holds nothing");
        let own = modest.0.take(200).unwrap();
        assert!(greedy.0.is_ending() && !modest.0.is_ending());
        let more = modest.0.take(300).unwrap();
        assert!(!modest.0.is_ending(), "the greedy one's memory is being returned");
        drop((held, own, more));
        assert_eq!(all.n_bytes(), 0);
        assert_eq!(limits.of(Limit::RequestMemory), 1, "the greedy one was closed for others");
        let status = modest.0.take(1001).unwrap_err();
        assert_eq!((status.code(), Limit::of(&status)), (tonic::Code::ResourceExhausted, Some(Limit::RequestMemory)));
    }

    #[test]
    fn addresses_of_one_network_are_one() {
        let of = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::3"), of("2001:db8:1:3::3"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
