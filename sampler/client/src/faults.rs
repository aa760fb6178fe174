//! Reproducible fault injection: servers in this process, and a transport that loses, delays, repeats or reorders
//! answers and restarts servers. The fault of a call is a named draw (purpose `Fault`), so every failure can be
//! reproduced. Time is virtual: a thousand runs with their waits take seconds.
//!
//! For tests: no fault may change the result of training.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Buf, Bytes};
use kith_draw::{Draws, Name, Purpose};
use kith_proto::{Call, FRAME_HEAD_BYTES, Fields, Message, frame_fields, put_checksum};
use kith_sampler::server::Unplugged;
use kith_store::Cluster;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{
    connect::places_of,
    error::{ClientError, Result},
    remote::{self, Chunks, Progress, Question, Read, RemoteConfig, RemoteProblem, RemoteSampler, Transport},
    sharded::{HeldOwners, Sharded},
    shards::Info,
};

/// Fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The answer never comes.
    Lost,
    /// The answer comes after so long: in time, or not.
    Late(Duration),
    /// A part of the answer comes, then the connection breaks.
    Broken,
    /// A part of the answer comes, then nothing more.
    Stalled,
    /// The answer comes a little at a time, with so much between: no pause is too long, but all of them may be.
    Trickled(Duration),
    /// The answer waits for the one to the next call.
    Swapped,
    /// The server goes, and is back after so long.
    Restarted(Duration),
    /// A bit of the answer is another one than was sent.
    Flipped,
}

/// Servers that take their time, in virtual time.
#[derive(Clone, Copy, Debug)]
pub struct Slowness {
    /// The time that an answer takes, more or less.
    pub usual: Duration,
    /// The server that gets slow.
    pub server_number: u64,
    /// Times the usual that it takes then.
    pub factor: u32,
    /// From when to when, counted from the first question.
    pub during: (Duration, Duration),
}

/// Virtual time, and questions that were asked.
#[derive(Debug, Default)]
pub struct AskedLog {
    micros: AtomicU64,
    n_asked: Mutex<BTreeMap<u64, u64>>,
}

impl AskedLog {
    /// The time from the first question to the last answer.
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }

    /// Questions to a server so far.
    pub fn n_asked(&self, server_number: u64) -> u64 {
        self.n_asked.lock().expect("nobody panics here").get(&server_number).copied().unwrap_or(0)
    }
}

/// A way to a server that takes its time.
#[derive(Debug)]
struct SlowTransport {
    server: Arc<Unplugged>,
    number: u64,
    slowness: Slowness,
    started: Instant,
    asked: Arc<AskedLog>,
}

impl SlowTransport {
    async fn ask_slowly(
        &self,
        question: &Question,
        answer: &mut (dyn Read + Send),
        progress: &Progress,
    ) -> Result<(), RemoteProblem> {
        let n_before = {
            let mut n_asked = self.asked.n_asked.lock().expect("nobody panics here");
            let n_asked = n_asked.entry(self.number).or_default();
            *n_asked += 1;
            *n_asked
        };
        let Slowness { usual, server_number, factor, during: (from, to) } = self.slowness;
        let stream = Name { run_key: 0, purpose: Purpose::Fault, step: 0, layer: 0 }.stream();
        // From half of the usual to one and a half times as long.
        let mut time = usual.mul_f64(0.5 + stream.draws(self.number, n_before, 0).uniform());
        if self.number == server_number && (from..to).contains(&self.started.elapsed()) {
            time *= factor;
        }
        sleep(time).await;
        let messages = self.server.answer(question.call, question.request.clone());
        let mut chunks = Chunks::new(question, answer).checked();
        for message in messages.map_err(RemoteProblem::Refused)? {
            progress.received(message.remaining());
            chunks.take(message, answer)?;
        }
        self.asked.micros.store(self.started.elapsed().as_micros() as u64, Ordering::Relaxed);
        Ok(answer.finish()?)
    }
}

impl Transport for SlowTransport {
    fn ask<'a>(
        &'a self,
        question: &'a Question,
        answer: &'a mut (dyn Read + Send),
        progress: &'a Progress,
    ) -> remote::Attempt<'a> {
        Box::pin(self.ask_slowly(question, answer, progress))
    }
}

/// A way on which things happen.
#[derive(Debug)]
pub struct FaultyTransport {
    server: Arc<Unplugged>,
    run_key: u64,
    /// Names the way, where there are several.
    server_number: u64,
    n_calls: AtomicU64,
    n_answered: watch::Sender<u64>,
    back_at: Mutex<Option<Instant>>,
}

impl FaultyTransport {
    /// The way to the `server_number`-th server of a cluster.
    pub fn new(server: Arc<Unplugged>, run_key: u64, server_number: u64) -> FaultyTransport {
        let (n_calls, n_answered, back_at) = (AtomicU64::new(0), watch::Sender::new(0), Mutex::new(None));
        FaultyTransport { server, run_key, server_number, n_calls, n_answered, back_at }
    }

    /// Fault of the `number`-th call.
    pub fn fault_of(&self, number: u64) -> Fault {
        let mut draws = self.draws(number, 0);
        let kind = draws.below(24);
        let millis = |most| Duration::from_millis(draws.below(most));
        match kind {
            0 => Fault::Lost,
            1 | 2 => Fault::Late({ millis }(40_000)),
            3 | 4 => Fault::Broken,
            5 | 6 => Fault::Swapped,
            7 => Fault::Restarted({ millis }(5_000)),
            8 => Fault::Stalled,
            9 | 10 => Fault::Trickled({ millis }(15_000)),
            11 => Fault::Flipped,
            _ => Fault::None,
        }
    }

    fn is_away(&self) -> bool {
        self.back_at.lock().expect("nobody panics here").is_some_and(|back_at| Instant::now() < back_at)
    }

    async fn ask_faultily(
        &self,
        question: &Question,
        answer: &mut (dyn Read + Send),
        progress: &Progress,
    ) -> Result<(), RemoteProblem> {
        let number = self.n_calls.fetch_add(1, Ordering::Relaxed);
        let gone = || RemoteProblem::Lost("connection refused".to_owned());
        if self.is_away() {
            return Err(gone());
        }
        let fault = self.fault_of(number);
        let messages = self.server.answer(question.call, question.request.clone());
        let messages = messages.map_err(RemoteProblem::Refused)?;
        let mut chunks = Chunks::new(question, answer).checked();
        let pieces = match fault {
            Fault::Broken | Fault::Stalled | Fault::Trickled(_) => self.recut(question.call, messages, number),
            Fault::Flipped => self.flipped(messages, number),
            _ => messages,
        };
        let mut n_read = pieces.len();
        match fault {
            Fault::Lost => std::future::pending().await,
            Fault::Late(by) => sleep(by).await,
            Fault::Broken | Fault::Stalled => n_read /= 2,
            Fault::Swapped => {
                // There may be no next call.
                let mut answered = self.n_answered.subscribe();
                let _ = timeout(Duration::from_millis(50), answered.wait_for(|n| *n > number)).await;
            }
            Fault::Restarted(after) => {
                *self.back_at.lock().expect("nobody panics here") = Some(Instant::now() + after);
                return Err(gone());
            }
            Fault::Trickled(_) | Fault::Flipped | Fault::None => {}
        }
        for piece in pieces.into_iter().take(n_read) {
            if let Fault::Trickled(pause) = fault {
                sleep(pause).await;
            }
            if self.is_away() {
                return Err(gone()); // It went while the answer was on its way.
            }
            // In truth, chunks are long.
            progress.received(1 << 10);
            chunks.take(piece, answer)?;
        }
        match fault {
            Fault::Broken => return Err(RemoteProblem::Lost("connection reset".to_owned())),
            Fault::Stalled => std::future::pending().await,
            _ => {}
        }
        self.n_answered.send_modify(|n| *n = (*n).max(number + 1));
        Ok(answer.finish()?)
    }

    /// Cuts messages into smaller ones, of a few numbers each: where answers are cut means nothing.
    fn recut(&self, call: Call, messages: Vec<Message>, number: u64) -> Vec<Message> {
        let mut pieces = Vec::new();
        let is_cut = |place: usize| call != Call::HasEdges && (call != Call::Info || place > 0);
        let mut draws = self.draws(number, 1);
        for (place, message) in messages.into_iter().enumerate() {
            if !is_cut(place) {
                pieces.push(message);
                continue;
            }
            let mut fields: Vec<(u32, Message)> = Fields::new(message).flatten().collect();
            // Numbers of values come before values.
            fields.sort_by_key(|(field, _)| (call == Call::FetchFeatures && *field != 2, *field));
            for (field, mut packed) in fields {
                while packed.has_remaining() {
                    let n_bytes = (8 * (1 + draws.below(4) as usize)).min(packed.remaining());
                    pieces.push(unframed(field, packed.copy_to_bytes(n_bytes)));
                }
            }
        }
        pieces
    }

    /// Flips a bit of one of the messages.
    fn flipped(&self, mut messages: Vec<Message>, number: u64) -> Vec<Message> {
        let mut draws = self.draws(number, 1);
        let place = draws.below(messages.len() as u64) as usize;
        let message = &mut messages[place];
        let mut bytes = message.copy_to_bytes(message.remaining()).to_vec();
        let bit = draws.below(8 * bytes.len() as u64) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        *message = Bytes::from(bytes).into();
        messages
    }

    fn draws(&self, number: u64, attempt: u16) -> Draws {
        let stream = Name { run_key: self.run_key, purpose: Purpose::Fault, step: 0, layer: 0 }.stream();
        stream.draws(self.server_number, number, attempt)
    }
}

/// A message of one field.
fn unframed(field: u32, bytes: Bytes) -> Message {
    let mut message = Message::default();
    let mut frame = frame_fields([(field, bytes)]);
    put_checksum(&mut frame);
    frame.into_iter().for_each(|piece| message.push(piece));
    message.advance(FRAME_HEAD_BYTES);
    message
}

impl Transport for FaultyTransport {
    fn ask<'a>(
        &'a self,
        question: &'a Question,
        answer: &'a mut (dyn Read + Send),
        progress: &'a Progress,
    ) -> remote::Attempt<'a> {
        Box::pin(self.ask_faultily(question, answer, progress))
    }
}

/// A cluster behind servers of `shards_of_servers`, in virtual time: to be used from one thread.
pub fn faulty_cluster(
    dir: &Path,
    shards_of_servers: &[Vec<u32>],
    run_key: u64,
    config: &RemoteConfig,
) -> Result<Sharded> {
    let config = RemoteConfig { jitter: Some(run_key), ..config.clone() };
    cluster_behind(dir, shards_of_servers, &config, |server, number| {
        Arc::new(FaultyTransport::new(server, run_key, number))
    })
}

/// A cluster behind `n_servers` servers of all shards, of which one gets slow, in virtual time: to be used from one thread.
pub fn slow_cluster(
    dir: &Path,
    n_servers: usize,
    slowness: Slowness,
    config: &RemoteConfig,
) -> Result<(Sharded, Arc<AskedLog>)> {
    let asked = Arc::new(AskedLog::default());
    let all = vec![Vec::new(); n_servers];
    let sharded = cluster_behind(dir, &all, config, |server, number| {
        let (started, asked) = (Instant::now(), Arc::clone(&asked));
        Arc::new(SlowTransport { server, number, slowness, started, asked })
    })?;
    Ok((sharded, asked))
}

fn cluster_behind(
    dir: &Path,
    shards_of_servers: &[Vec<u32>],
    config: &RemoteConfig,
    way: impl Fn(Arc<Unplugged>, u64) -> Arc<dyn Transport>,
) -> Result<Sharded> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| ClientError::NoThread { message: error.to_string() })?;
    let cluster = Arc::new(Cluster::open(dir)?);
    let mut servers = Vec::new();
    let entered = runtime.enter(); // Ways look at the clock.
    for (number, shards) in (0..).zip(shards_of_servers) {
        let transport = way(Arc::new(Unplugged::open(dir, shards)?), number);
        let address = format!("server-{number}");
        let connected = RemoteSampler::open(transport, &address, Some(cluster.digest()), config.clone());
        servers.push(Arc::new(runtime.block_on(connected)?));
    }
    let places = places_of(&servers, 0, |_| Ok(None))?;
    drop(entered);
    let info = Info::new(cluster.store_digest(), cluster.manifest());
    Ok(Sharded::new(info, HeldOwners::Mapped(cluster), places, Some(runtime)))
}
