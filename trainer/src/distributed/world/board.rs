//! State of all ranks as one rank knows it: the progress of each, and the verdict once they must stop. The pulse thread
//! keeps it up to date; collectives check it while they wait.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed},
        mpsc::Sender,
    },
    time::{Duration, Instant},
};

use kith_group::{
    member::Member,
    progress::{Entry, Verdict},
};
use kith_run::phase::Phase;
use rustix::event::{PollFd, PollFlags, poll};

use super::{WorldError, deadline::timespec, door::Door};

/// Request to the pulse.
#[derive(Debug)]
pub(crate) enum Order {
    /// Send the verdict to all ranks, then notify the caller.
    Tell { verdict: Verdict, told: Option<Sender<()>> },
    /// Keep rank 0's door, for those who come too late.
    Keep(Door),
    /// Say goodbye and end.
    Leave,
    /// End without a word, as a process does that is killed.
    #[cfg(test)]
    Vanish,
}

impl Order {
    pub(crate) fn tell(verdict: Verdict) -> Order {
        Order::Tell { verdict, told: None }
    }
}

/// Called when ranks must stop and nobody in this process notices.
pub(super) type OnLost = Box<dyn Fn(&WorldError) + Send>;

/// State of all ranks as this rank knows it.
pub(crate) struct Board {
    rank: usize,
    members: Vec<Member>,
    step: AtomicU64,
    phase: AtomicU8,
    n_collectives: AtomicU64,
    entries: Mutex<Vec<Entry>>,
    /// Time of the last message of each rank that sent any.
    heard: Mutex<BTreeMap<usize, Instant>>,
    verdict: OnceLock<Verdict>,
    is_noticed: AtomicBool,
    /// Readable from the verdict on.
    alarm: UnixStream,
    raised: UnixStream,
    /// Requests to the pulse; a byte through `knocked` wakes it.
    orders: Mutex<Vec<Order>>,
    knocked: UnixStream,
    knock: UnixStream,
    on_lost: Mutex<Option<OnLost>>,
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").field("rank", &self.rank).field("verdict", &self.verdict).finish_non_exhaustive()
    }
}

impl Board {
    pub(crate) fn new(rank: usize, members: Vec<Member>) -> io::Result<Board> {
        let (alarm, raised) = UnixStream::pair()?;
        let (knocked, knock) = UnixStream::pair()?;
        for end in [&alarm, &raised, &knocked, &knock] {
            end.set_nonblocking(true)?;
        }
        Ok(Board {
            rank,
            step: AtomicU64::new(0),
            phase: AtomicU8::new(0),
            n_collectives: AtomicU64::new(0),
            entries: Mutex::new(vec![Entry::default(); members.len()]),
            heard: Mutex::default(),
            members,
            verdict: OnceLock::new(),
            is_noticed: AtomicBool::new(false),
            alarm,
            raised,
            orders: Mutex::new(Vec::new()),
            knocked,
            knock,
            on_lost: Mutex::new(None),
        })
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(crate) fn enter(&self, step: u64, phase: Phase) {
        self.step.store(step, Relaxed);
        self.phase.store(phase as u8, Relaxed);
    }

    /// Counts a collective that this rank enters; its number.
    pub(crate) fn enter_collective(&self) -> u64 {
        self.n_collectives.fetch_add(1, Relaxed) + 1
    }

    /// Progress of this rank.
    pub(super) fn own(&self) -> Entry {
        let (step, phase) = (self.step.load(Relaxed), self.phase.load(Relaxed));
        Entry { step, phase, n_collectives: self.n_collectives.load(Relaxed), has_left: false }
    }

    /// Progress of all ranks, as last received.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = locked(&self.entries);
        entries[self.rank] = self.own();
        entries.clone()
    }

    /// Replaces the progress of all ranks by what the pulse knows.
    pub(crate) fn publish(&self, entries: &[Entry]) {
        locked(&self.entries).copy_from_slice(entries);
    }

    /// A rank sent a message.
    pub(super) fn hear(&self, rank: usize) {
        locked(&self.heard).insert(rank, Instant::now());
    }

    /// Time since the last message of each rank that sent any and has not ended well.
    fn silences(&self) -> Vec<(usize, Duration)> {
        let entries = locked(&self.entries).clone();
        let has_left = |rank: usize| entries.get(rank).is_some_and(|entry| entry.has_left);
        let heard = locked(&self.heard);
        heard.iter().filter(|(rank, _)| !has_left(**rank)).map(|(rank, when)| (*rank, when.elapsed())).collect()
    }

    /// The verdict, if all ranks must stop.
    pub(crate) fn verdict(&self) -> Option<&Verdict> {
        self.verdict.get()
    }

    /// Sets the verdict and raises the alarm. The first verdict stands.
    pub(crate) fn decide(&self, verdict: Verdict) {
        if self.verdict.set(verdict).is_ok() {
            let _ = (&self.raised).write(&[1]);
        }
    }

    /// Readable from the verdict on.
    pub(crate) fn alarm(&self) -> &UnixStream {
        &self.alarm
    }

    /// Waits a little for a verdict that may be on its way.
    pub(crate) fn await_verdict(&self, patience: Duration) -> Option<&Verdict> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.verdict.get().is_some() || left.is_zero() {
                return self.verdict.get();
            }
            let _ = poll(&mut [PollFd::new(&self.alarm, PollFlags::IN)], Some(&timespec(left)));
        }
    }

    /// From now on nobody needs to call this process.
    pub(super) fn notice(&self) {
        self.is_noticed.store(true, Relaxed);
    }

    /// The error that a verdict means here; from now on this process has noticed.
    pub(crate) fn error(&self, verdict: &Verdict) -> WorldError {
        self.notice();
        let host = |rank: usize| self.members.get(rank).map_or_else(String::new, |member| member.host.clone());
        match verdict.clone() {
            Verdict::Lost { rank, at, why } => {
                WorldError::Lost { rank, host: host(rank), step: at.step, phase: Phase::name_of(at.phase), why }
            }
            Verdict::Stopped { rank, code, sentence } => WorldError::Stopped { rank, host: host(rank), sentence, code },
            Verdict::OutOfStep { sentence } => WorldError::OutOfStep(sentence),
        }
    }

    /// Gives the pulse something to do.
    pub(crate) fn order(&self, order: Order) {
        locked(&self.orders).push(order);
        let _ = (&self.knock).write(&[1]);
    }

    pub(super) fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut locked(&self.orders))
    }

    /// Readable when there are orders.
    pub(super) fn knocked(&self) -> &UnixStream {
        &self.knocked
    }

    pub(super) fn on_lost(&self, call: OnLost) {
        *locked(&self.on_lost) = Some(call);
    }

    /// Calls the `on_lost` callback, unless this process has noticed already.
    pub(super) fn call_if_unnoticed(&self) {
        if let Some(verdict) = self.verdict()
            && !self.is_noticed.load(Relaxed)
            && let Some(call) = &*locked(&self.on_lost)
        {
            call(&self.error(verdict));
        }
    }
}

/// Heartbeats of other ranks, for metrics: rank 0 hears all ranks, the others hear rank 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heartbeats(pub(super) Option<Arc<Board>>);

impl Heartbeats {
    /// Time since the last message of each rank that sent any.
    pub(crate) fn silences(&self) -> Vec<(usize, Duration)> {
        self.0.as_ref().map_or_else(Vec::new, |board| board.silences())
    }
}

/// Locks a mutex, even if a holder panicked: the values behind these locks are consistent at every moment.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
