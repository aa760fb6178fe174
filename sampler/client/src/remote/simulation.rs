//! Clients and replicas of a server in virtual time, disturbed by named draws. The code that asks, retries and hedges is the
//! real one; servers answer rows of numbers, and are down, silent, slow, damaged or draining for a while.

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use kith_draw::{Draws, Name, Purpose};
use kith_proto::{Call, Message};
use tokio::time::{Instant, sleep, timeout};

use crate::remote::{
    answers::Read,
    asker::{Asker, Memory, Wanted},
    chunks::Chunks,
    config::RemoteConfig,
    error::RemoteProblem,
    hedge::HedgeCounts,
    numbers::Numbers,
    parts::OfShards,
    progress::Progress,
    replicas::Replicas,
    transport::{Attempt, Question, Transport},
};

/// Rows of a message.
const CHUNK: usize = 100;

/// Time that may be lost while all replicas are away before a call may fail: the limit of a call, less an attempt that hangs.
const SURVIVED: Duration = Duration::from_secs(35);

/// Limit of a call while one server has no fault.
const WAITED: Duration = Duration::from_secs(3);

/// A fault of a server, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nobody listens.
    Down,
    /// Nothing comes, and nothing ends.
    Silent,
    /// It stops for maintenance, and refuses calls.
    Draining,
    /// Everything takes this much longer.
    Slow(u32),
    /// Connections break after this many rows.
    Breaks(usize),
    /// Its file is damaged.
    Damaged,
}

impl Fault {
    /// True if no row comes.
    fn is_away(self) -> bool {
        !matches!(self, Fault::Slow(_) | Fault::Breaks(1..))
    }
}

/// A server with a fault from time to time.
#[derive(Debug)]
struct Server {
    began: Instant,
    faults: Vec<(Range<Duration>, Fault)>,
}

impl Server {
    fn fault(&self) -> Option<Fault> {
        let now = self.began.elapsed();
        self.faults.iter().find(|(span, _)| span.contains(&now)).map(|(_, fault)| *fault)
    }

    /// Takes part of an answer's time; an error if the server fails meanwhile.
    async fn pass(&self, time: Duration, n_sent: usize) -> Result<(), RemoteProblem> {
        let factor = match self.fault() {
            Some(Fault::Slow(factor)) => factor,
            _ => 1,
        };
        sleep(time * factor).await;
        match self.fault() {
            Some(Fault::Down) => Err(RemoteProblem::Lost("connection reset".to_owned())),
            Some(Fault::Silent) => std::future::pending().await,
            Some(Fault::Draining) if n_sent == 0 => {
                Err(RemoteProblem::of_status(&tonic::Status::unavailable("it is draining")))
            }
            Some(Fault::Breaks(n_rows)) if n_sent >= n_rows => Err(RemoteProblem::Lost("broken pipe".to_owned())),
            Some(Fault::Damaged) => Err(RemoteProblem::of_status(&tonic::Status::data_loss("block 7 is damaged"))),
            _ => Ok(()),
        }
    }
}

impl Transport for Server {
    fn ask<'a>(
        &'a self,
        question: &'a Question,
        answer: &'a mut (dyn Read + Send),
        progress: &'a Progress,
    ) -> Attempt<'a> {
        Box::pin(async move {
            self.pass(Duration::from_millis(2), 0).await?;
            let mut chunks = Chunks::new(question, answer);
            let rows: Vec<usize> = question.rows.clone().collect();
            for (number, of_chunk) in rows.chunks(CHUNK).enumerate() {
                self.pass(Duration::from_millis(1), number * CHUNK).await?;
                let mut message = BytesMut::new();
                of_chunk.iter().for_each(|row| message.put_u32_le(*row as u32));
                progress.received(message.len());
                chunks.take(Message::from(message.freeze()), answer)?;
            }
            Ok(answer.finish()?)
        })
    }
}

fn below(draws: &mut Draws, n: u64) -> u64 {
    (u64::from(draws.word()) * n) >> 32
}

fn millis(draws: &mut Draws, most: u64) -> Duration {
    Duration::from_millis(below(draws, most))
}

/// Faults of a server: none at the same time.
fn faults(draws: &mut Draws) -> Vec<(Range<Duration>, Fault)> {
    let mut from = Duration::ZERO;
    (0..below(draws, 4))
        .map(|_| {
            from += millis(draws, 20_000);
            let most = [100, 3_000, 30_000][below(draws, 3) as usize];
            let until = from + millis(draws, most);
            let fault = match below(draws, 7) {
                0 => Fault::Down,
                1 => Fault::Silent,
                2 => Fault::Draining,
                3 | 4 => Fault::Slow(2 + below(draws, 500) as u32),
                5 => Fault::Breaks(below(draws, 500) as usize),
                _ => Fault::Damaged,
            };
            (std::mem::replace(&mut from, until)..until, fault)
        })
        .collect()
}

/// The time that calls lose because all servers give no rows at once: an attempt that began in silence hangs to its limit.
fn lost(servers: &[Arc<Server>]) -> Duration {
    let tick = Duration::from_millis(50);
    let fault = |server: &Server, at: Duration| {
        let here = server.faults.iter().find(|(span, _)| span.start < at + tick && at < span.end);
        here.map(|(_, fault)| *fault).filter(|fault| fault.is_away())
    };
    let end = servers.iter().flat_map(|server| &server.faults).map(|(span, _)| span.end).max().unwrap_or_default();
    let (mut n_away, mut n_silences, mut is_silent) = (0, 0u32, false);
    for at in (0..).map(|n| tick * n).take_while(|at| *at <= end) {
        let faults: Option<Vec<Fault>> = servers.iter().map(|server| fault(server, at)).collect();
        let silent = faults.as_ref().is_some_and(|faults| faults.contains(&Fault::Silent));
        n_away += u32::from(faults.is_some());
        n_silences += u32::from(silent && !is_silent);
        is_silent = silent;
    }
    tick * n_away + RemoteConfig::default().max_silence * n_silences.saturating_sub(1)
}

/// Results of a key.
#[derive(Debug, Default)]
struct Done {
    n_calls: u64,
    n_failed: u64,
    /// The longest call while some server had no fault all the time.
    longest: Duration,
    counts: HedgeCounts,
    took: Duration,
}

/// Runs a key: some clients ask the same servers for a minute.
fn run(key: u64) -> Done {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut draws = Name { run_key: key, purpose: Purpose::Fault, step: 3, layer: 0 }.stream().draws(0, 0, 0);
        let began = Instant::now();
        let n_servers = 1 + below(&mut draws, 3);
        let servers: Vec<Arc<Server>> =
            (0..n_servers).map(|_| Arc::new(Server { began, faults: faults(&mut draws) })).collect();
        let is_damaged = servers.iter().all(|server| server.faults.iter().any(|(_, fault)| *fault == Fault::Damaged));
        let is_one_sound = servers.iter().any(|server| server.faults.is_empty());
        let may_fail = is_damaged || lost(&servers) > SURVIVED;
        let ways = servers.iter().map(|server| Arc::clone(server) as Arc<dyn Transport>).collect();
        let replicas = Arc::new(Replicas::new(ways, below(&mut draws, 3) as usize));
        let clients: Vec<_> = (0..1 + below(&mut draws, 4))
            .map(|client| {
                let replicas = Arc::clone(&replicas);
                let n_rows = 1 + below(&mut draws, 3_000) as usize;
                let pause = millis(&mut draws, 300);
                tokio::spawn(async move { client_of(&replicas, (key, client), (n_rows, pause), may_fail).await })
            })
            .collect();
        let mut done = Done::default();
        for client in clients {
            let (n_calls, n_failed, longest) = client.await.expect("a client's checks");
            done.n_calls += n_calls;
            done.n_failed += n_failed;
            if is_one_sound {
                done.longest = done.longest.max(longest);
            }
        }
        done.counts = replicas.counts();
        done.took = began.elapsed();
        let HedgeCounts { calls, hedges, rescues, won, .. } = done.counts;
        assert!(rescues <= 4 * done.took.as_secs() + 4, "key {key}: {:?}", done.counts);
        assert!((hedges - rescues) * 20 <= calls && won <= hedges, "key {key}: {:?}", done.counts);
        done
    })
}

/// Asks until a minute has passed; calls, those that failed, and the longest one's time.
async fn client_of(
    replicas: &Replicas,
    (key, client): (u64, u64),
    (n_rows, pause): (usize, Duration),
    may_fail: bool,
) -> (u64, u64, Duration) {
    let config = RemoteConfig { jitter: Some(key + client), ..RemoteConfig::default() };
    let (memory, began) = (Memory::new(&config), Instant::now());
    let asker = Asker { address: "here", config: &config, transport: replicas, memory: &memory };
    let (mut n_calls, mut n_failed, mut longest) = (0, 0, Duration::ZERO);
    while began.elapsed() < Duration::from_secs(60) {
        let request = |rows: Range<usize>| Ok(Bytes::from(vec![0; rows.len()]));
        let wanted = Wanted { n_rows, at_once: 1_000, request: &request };
        let mut answer = Numbers::default();
        let asked_at = Instant::now();
        let call = asker.ask(Call::FetchFeatures, Some(OfShards::One(0)), wanted, &mut answer);
        // No call outlasts its limit without rows that are new; slow servers give some.
        let asked = timeout(Duration::from_secs(2_000), call).await;
        let asked = asked.unwrap_or_else(|_| panic!("key {key}: a call does not end"));
        n_calls += 1;
        longest = longest.max(asked_at.elapsed());
        match asked {
            Ok(()) => assert!(answer.read.into_iter().eq(0..n_rows as u32), "key {key}: rows twice, or not at all"),
            Err(error) => {
                assert!(may_fail, "key {key}: {error}");
                n_failed += 1;
            }
        }
        sleep(pause + Duration::from_millis(1)).await;
    }
    (n_calls, n_failed, longest)
}

#[test]
fn every_row_comes_once_whatever_servers_do() {
    check(0..150);
}

#[test]
fn slow_every_row_comes_once_with_many_keys() {
    if std::env::var_os("KITH_SLOW").is_some() {
        check(150..3_000);
    }
}

fn check(keys: Range<u64>) {
    let (mut all, n_keys) = (Done::default(), keys.end - keys.start);
    for key in keys {
        let done = run(key);
        all.n_calls += done.n_calls;
        all.n_failed += done.n_failed;
        all.longest = all.longest.max(done.longest);
        assert!(done.longest < WAITED, "key {key}: a healthy server, and a call of {:?}", done.longest);
        all.counts = all.counts.plus(done.counts);
        all.took += done.took;
    }
    let HedgeCounts { hedges, rescues, won, left, probes, .. } = all.counts;
    assert!(hedges > n_keys && rescues > 0 && won > 0 && left > 0 && probes > 0, "{all:?}");
    assert!(all.n_failed * 20 < all.n_calls, "{all:?}");
}

/// Time of one call of 3,000 rows to servers with these faults, after 20 calls before them.
fn call_with(faults: &[&[(Range<Duration>, Fault)]]) -> (Duration, HedgeCounts) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let began = Instant::now();
        let server = |faults: &&[_]| Arc::new(Server { began, faults: faults.to_vec() }) as Arc<dyn Transport>;
        let replicas = Replicas::new(faults.iter().map(server).collect(), 0);
        let config = RemoteConfig { jitter: Some(0), ..RemoteConfig::default() };
        let memory = Memory::new(&config);
        let asker = Asker { address: "here", config: &config, transport: &replicas, memory: &memory };
        let mut took = Duration::ZERO;
        for call in 0..21 {
            tokio::time::sleep_until(began + Duration::from_millis(if call < 20 { 40 * call } else { 1_000 })).await;
            let request = |rows: Range<usize>| Ok(Bytes::from(vec![0; rows.len()]));
            let wanted = Wanted { n_rows: 3_000, at_once: 3_000, request: &request };
            let (asked_at, mut answer) = (Instant::now(), Numbers::default());
            asker.ask(Call::FetchFeatures, Some(OfShards::One(0)), wanted, &mut answer).await.unwrap();
            assert!(answer.read.into_iter().eq(0..3_000));
            took = asked_at.elapsed();
        }
        (took, replicas.counts())
    })
}

fn ten_minutes(fault: Fault) -> Vec<(Range<Duration>, Fault)> {
    vec![(Duration::from_secs(1)..Duration::from_secs(601), fault)]
}

/// The rows of a server whose answers break off come by asking it, not by hedges of a call to a silent one.
#[test]
fn a_stalled_call_moves_on_to_a_server_whose_answers_break_off() {
    let (took, counts) = call_with(&[&ten_minutes(Fault::Silent), &ten_minutes(Fault::Breaks(250))]);
    assert!(took < Duration::from_secs(30), "{took:?}, {counts:?}");
}

/// A line that is slow for all is not asked twice beyond the budget.
#[test]
fn slow_calls_that_advance_are_not_rescued() {
    let (took, counts) = call_with(&[&ten_minutes(Fault::Slow(100)), &ten_minutes(Fault::Slow(100))]);
    assert!(took > Duration::from_secs(3) && counts.rescues == 0, "{took:?}, {counts:?}");
}

/// Of three replicas, two are silent and the third was slow a moment ago.
#[test]
fn a_stalled_call_reaches_a_server_that_was_slow() {
    let was_slow = [(Duration::ZERO..Duration::from_millis(900), Fault::Slow(50))];
    let (took, counts) = call_with(&[&ten_minutes(Fault::Silent), &ten_minutes(Fault::Silent), &was_slow]);
    assert!(took < Duration::from_secs(8), "{took:?}, {counts:?}");
}

/// A damaged replica was asked twice while the other one was down, and both counted as damaged.
#[test]
fn a_damaged_replica_counts_once() {
    run(15);
}

#[test]
fn a_key_is_one_order_of_events() {
    for key in 0..10 {
        let (one, other) = (run(key), run(key));
        assert_eq!((one.counts, one.n_calls, one.took), (other.counts, other.n_calls, other.took), "key {key}");
    }
}
