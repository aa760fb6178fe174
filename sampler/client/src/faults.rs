//! Faults by key: servers in this process, and a way to them on which answers get lost, come late, come twice, or come
//! in another order, and servers restart. What happens to a call is named (law 1, purpose "fault"), so every failure can
//! be had again. Time is virtual: a thousand runs with their waits take seconds.
//!
//! For tests: training must not notice any of it.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use kith_draw::{Name, Purpose};
use kith_proto::Call;
use kith_sampler::server::Unplugged;
use kith_store::Cluster;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{
    connect::places_of,
    error::{ClientError, Result},
    remote::{Asked, Read, RemoteConfig, RemoteProblem, RemoteSampler, Transport},
    sharded::{HeldOwners, Sharded},
    shards::Info,
};

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The answer never comes.
    Lost,
    /// The answer comes after so long: in time, or not.
    Late(Duration),
    /// A part of the answer comes, then the connection breaks: what came will come twice.
    Twice,
    /// The answer waits for the one to the next call.
    Swapped,
    /// The server goes, and is back after so long.
    Restarted(Duration),
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

    /// What happens to the `number`-th call.
    pub fn fault_of(&self, number: u64) -> Fault {
        let stream = Name { run_key: self.run_key, purpose: Purpose::Fault, step: 0, layer: 0 }.stream();
        let mut draws = stream.draws(self.server_number, number, 0);
        let kind = draws.below(20);
        let millis = |most| Duration::from_millis(draws.below(most));
        match kind {
            0 => Fault::Lost,
            1 | 2 => Fault::Late({ millis }(40_000)),
            3 | 4 => Fault::Twice,
            5 | 6 => Fault::Swapped,
            7 => Fault::Restarted({ millis }(5_000)),
            _ => Fault::None,
        }
    }

    fn is_away(&self) -> bool {
        self.back_at.lock().expect("nobody panics here").is_some_and(|back_at| Instant::now() < back_at)
    }

    async fn ask_faultily(
        &self,
        call: Call,
        request: Bytes,
        answer: &mut (dyn Read + Send),
    ) -> Result<(), RemoteProblem> {
        let number = self.n_calls.fetch_add(1, Ordering::Relaxed);
        let gone = || RemoteProblem::Lost("connection refused".to_owned());
        if self.is_away() {
            return Err(gone());
        }
        let fault = self.fault_of(number);
        let messages = self.server.answer(call, request).map_err(RemoteProblem::Refused)?;
        let n_read = match fault {
            Fault::Lost => std::future::pending().await,
            Fault::Late(by) => {
                sleep(by).await;
                messages.len()
            }
            Fault::Twice => messages.len().div_ceil(2),
            Fault::Swapped => {
                // There may be no next call.
                let mut answered = self.n_answered.subscribe();
                let _ = timeout(Duration::from_millis(50), answered.wait_for(|n| *n > number)).await;
                messages.len()
            }
            Fault::Restarted(after) => {
                *self.back_at.lock().expect("nobody panics here") = Some(Instant::now() + after);
                return Err(gone());
            }
            Fault::None => messages.len(),
        };
        if self.is_away() {
            return Err(gone()); // It went while the answer was on its way.
        }
        messages.into_iter().take(n_read).try_for_each(|message| answer.read(message))?;
        if fault == Fault::Twice {
            return Err(RemoteProblem::Lost("connection reset".to_owned()));
        }
        self.n_answered.send_modify(|n| *n = (*n).max(number + 1));
        Ok(answer.finish()?)
    }
}

impl Transport for FaultyTransport {
    fn ask<'a>(&'a self, call: Call, request: Bytes, answer: &'a mut (dyn Read + Send), _: Instant) -> Asked<'a> {
        Box::pin(self.ask_faultily(call, request, answer))
    }
}

/// A cluster behind servers of `shards_of_servers`, in virtual time: to be used from one thread. Without a key nothing
/// happens on the way.
pub fn faulty_cluster(
    dir: &Path,
    shards_of_servers: &[Vec<u32>],
    run_key: u64,
    config: &RemoteConfig,
) -> Result<Sharded> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| ClientError::NoThread { message: error.to_string() })?;
    let cluster = Arc::new(Cluster::open(dir)?);
    let mut servers = Vec::new();
    for (number, shards) in (0..).zip(shards_of_servers) {
        let server = Arc::new(Unplugged::open(dir, shards)?);
        let transport = Arc::new(FaultyTransport::new(server, run_key, number));
        let address = format!("server-{number}");
        let connected = RemoteSampler::open(transport, &address, Some(cluster.digest()), config.clone());
        servers.push(Arc::new(runtime.block_on(connected)?));
    }
    let places = places_of(&servers, 0, |_| Ok(None))?;
    let info = Info::new(cluster.store_digest(), cluster.manifest());
    Ok(Sharded::new(info, HeldOwners::Mapped(cluster), places, Some(runtime)))
}
