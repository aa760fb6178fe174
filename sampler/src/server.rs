//! Sampling server: serves shards of one partitioned graph over gRPC.
//!
//! tokio does the I/O, rayon computes. Every answer is a sequence of chunks. A chunk is computed when the previous one
//! was handed over, so a client that does not read holds two chunks and no thread.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use kith_proto::SERVICE;
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tonic_health::ServingStatus;
use tracing::info;

use crate::server::{
    access::{Access, Tokens},
    connections::Connections,
    input::MAX_EXTRA_BYTES,
    listen::listen,
    listener::{Listener, max_connections},
    metrics::Metrics,
    served::Served,
    shared::Shared,
    side::Side,
    tls::Tls,
    tools::Tools,
    work::Work,
};

mod access;
mod answer;
mod args;
mod call;
mod config;
mod connection;
mod connections;
mod error;
mod health;
mod ids;
mod input;
mod limit;
mod listen;
mod listener;
mod metrics;
mod names;
mod parts;
mod record;
mod refused;
mod request;
mod served;
mod service;
mod session;
mod shared;
mod side;
mod socket;
mod tls;
mod tools;
mod unplugged;
mod work;

pub use crate::server::{
    args::{ServeArgs, seconds},
    call::parse_timeout,
    config::{AccessConfig, Checksums, Limits, ServerConfig, ShardChoice, TlsFiles},
    error::ServeError,
    health::{HealthArgs, ask_health},
    ids::PackedIds,
    request::{
        Expected, FetchFeaturesRequest, HasEdgesRequest, InfoRequest, MAX_TEXT_BYTES, SampleHopRequest, SeedsRequest,
    },
    unplugged::Unplugged,
};

/// The variable that holds a token, where no file is named.
pub const TOKEN_VARIABLE: &str = "KITH_SAMPLER_TOKEN";

/// The longest that connections without calls may take to close.
const MAX_CLOSING: Duration = Duration::from_secs(1);

/// A server that runs. Dropping it ends it at once; [`Server::stop`] lets calls in flight end first.
#[derive(Debug)]
pub struct Server {
    runtime: Runtime,
    address: SocketAddr,
    shards: Vec<u32>,
    n_shards: u32,
    shared: Arc<Shared>,
    connections: Arc<Connections>,
    side: Side,
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
}

/// Serves until SIGTERM or SIGINT, lets calls in flight end, and returns. `on_ready` is called once clients can connect.
pub fn serve(config: &ServerConfig, on_ready: impl FnOnce(&Server)) -> Result<(), ServeError> {
    let mut server = Server::start(config)?;
    let system = |error: std::io::Error| ServeError::System(error.to_string());
    let (mut terminate, mut interrupt) = {
        // Before anybody knows that we are here: an earlier signal would end us on the spot.
        let _context = server.runtime.enter();
        (signal(SignalKind::terminate()).map_err(system)?, signal(SignalKind::interrupt()).map_err(system)?)
    };
    on_ready(&server);
    info!(address = %server.address, "serving");
    let Server { runtime, running, .. } = &mut server;
    let ended_early = runtime.block_on(async {
        tokio::select! {
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
            ended = running => Some(ended),
        }
    });
    match ended_early {
        None => {
            info!("stopping");
            server.stop()
        }
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(ServeError::Transport(error.to_string())),
    }
}

impl Server {
    /// Opens the shards and listens.
    pub fn start(config: &ServerConfig) -> Result<Server, ServeError> {
        let limits = config.limits;
        if limits.max_message_bytes.saturating_add(MAX_EXTRA_BYTES) > limits.request_memory {
            let (max_message, request_memory) = (limits.max_message_bytes, limits.request_memory);
            return Err(ServeError::Memory { max_message, request_memory });
        }
        let served = Served::open(&config.cluster, &config.shards, limits, config.verify)?;
        let tls = config.tls.as_ref().map(Tls::read).transpose()?.map(Arc::new);
        let tokens = tokens(config)?;
        let has_client_ca = config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let is_guarded = tls.is_some() && (has_client_ca || tokens.is_some());
        if !config.listen.ip().is_loopback() && !is_guarded && !config.access.is_insecure {
            return Err(ServeError::Open { address: config.listen });
        }
        let system = |error: std::io::Error| ServeError::System(error.to_string());
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("network").build();
        let runtime = runtime.map_err(system)?;
        let (shards, n_shards) = (served.shards.keys().copied().collect(), served.cluster.n_shards());
        let metrics = Arc::new(Metrics::new());
        let limit_counts = metrics.limits().clone();
        let shared = Arc::new(Shared {
            served: Arc::new(served),
            work: Work::new(config.n_threads, metrics.queue().clone())?,
            metrics,
            access: Access::new(tokens, config.access.client_names.clone()),
            tools: runtime.block_on(Tools::new())?,
            is_draining: false.into(),
            checksums: match config.checksums {
                // Every record of TLS has a tag that covers it.
                Checksums::Auto if tls.is_some() => Checksums::Off,
                checksums => checksums,
            },
        });
        let n_connections = max_connections(limits.max_connections);
        let connections = Connections::new(n_connections, limits.max_per_address, limits.request_memory, limit_counts);
        let connections = Arc::new(connections);
        let (stop, stopped) = watch::channel(false);
        let (listener, address) = listen(&runtime, config.listen)?;
        let side = Side::start(config, &shared, &connections, tls.as_ref())?;
        let listener = Listener { listener, tls, shared: Arc::clone(&shared), connections: Arc::clone(&connections) };
        let running = runtime.spawn(listener.run(stopped));
        Ok(Server { runtime, address, shards, n_shards, shared, connections, side, stop, running })
    }

    /// Listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address of its metrics and its health.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.side.address()
    }

    /// Takes no more calls, lets those in flight end within the limit, and ends.
    pub fn stop(self) -> Result<(), ServeError> {
        let Server { runtime, shared, connections, stop, running, .. } = self;
        let max_drain = shared.served.expected.limits.max_drain;
        shared.is_draining.store(true, Ordering::Relaxed);
        runtime.block_on(async {
            let health = &shared.tools.reporter;
            health.set_service_status("", ServingStatus::NotServing).await;
            health.set_service_status(SERVICE, ServingStatus::NotServing).await;
            let _ = stop.send(true); // It may have ended by itself.
            let _ = running.await; // The port is closed.
            connections.signal_all();
            let drained = async {
                tokio::select! {
                    () = closed(&connections) => {}
                    // Somebody who watches our health holds a connection for as long as there is one.
                    () = idle(&shared.metrics) => {}
                }
            };
            let _ = timeout(max_drain, drained).await; // Remaining calls are cut; clients retry them.
        });
        runtime.shutdown_background();
        Ok(())
    }
}

/// The tokens that callers must have, if any.
fn tokens(config: &ServerConfig) -> Result<Option<Tokens>, ServeError> {
    if let Some(path) = &config.access.token_file {
        return Tokens::read(path).map(Some);
    }
    match std::env::var(TOKEN_VARIABLE) {
        Ok(token) if !token.is_empty() => Tokens::parse(&token).map(Some).map_err(ServeError::TokenVariable),
        _ => Ok(None),
    }
}

/// Interval of waits without a signal.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until no connection is open.
async fn closed(connections: &Connections) {
    while connections.n_open() > 0 {
        sleep(LOOK_EVERY).await;
    }
}

/// Waits until no call is in flight, and then for connections to be closed.
async fn idle(metrics: &Metrics) {
    while metrics.n_in_flight() > 0 {
        sleep(LOOK_EVERY).await;
    }
    sleep(MAX_CLOSING).await;
}

/// `serving shards 0,1 of 3 on 127.0.0.1:4000 (metrics on 127.0.0.1:4001)`
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards: Vec<String> = self.shards.iter().map(u32::to_string).collect();
        write!(f, "serving shards {} of {} on {}", shards.join(","), self.n_shards, self.address)?;
        match self.metrics_address() {
            Some(address) => write!(f, " (metrics on {address})"),
            None => Ok(()),
        }
    }
}
