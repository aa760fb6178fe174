//! The sampling server: shards of one cluster, over gRPC.
//!
//! tokio talks, rayon computes. Every answer is made of chunks; a chunk is computed when the one before it was handed
//! over, so that a client that does not read holds two chunks and no thread.

use std::{
    fmt, fs,
    net::SocketAddr,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use kith_proto::{FILE_DESCRIPTORS, SERVICE, sentence};
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_stream::StreamExt;
use tonic::transport::{Certificate, Identity, ServerTlsConfig, server::TcpIncoming};
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{
    prometheus,
    server::{metrics::Metrics, served::Served, service::SamplerService, socket::PatientSocket, work::Work},
};

mod answer;
mod args;
mod config;
mod error;
mod health;
mod metrics;
mod reply;
mod request;
mod served;
mod service;
mod socket;
mod unplugged;
mod work;

pub use crate::server::{
    args::ServeArgs,
    config::{Limits, ServerConfig, ShardChoice, TlsFiles},
    error::ServeError,
    health::{HealthArgs, ask_health},
    request::{Expected, FetchRowsRequest, HasEdgesRequest, InfoRequest, SampleHopRequest, SeedsRequest},
    service::parse_timeout,
    unplugged::Unplugged,
};

/// HTTP/2: what a client may send ahead, and how large its frames may be. What a client takes is up to it.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const MAX_FRAME_BYTES: u32 = 1 << 20;

/// A connection that does not answer pings is given up.
const PING_EVERY: Duration = Duration::from_secs(20);

/// The longest that connections without calls may take to close.
const MAX_CLOSING: Duration = Duration::from_secs(1);

/// A server that runs. Dropping it ends it at once; [`Server::stop`] lets calls in flight end first.
#[derive(Debug)]
pub struct Server {
    runtime: Runtime,
    address: SocketAddr,
    metrics_address: Option<SocketAddr>,
    shards: Vec<u32>,
    n_shards: u32,
    shared: Arc<service::Shared>,
    health: HealthReporter,
    stop: watch::Sender<bool>,
    running: JoinHandle<Result<(), tonic::transport::Error>>,
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
    let Server { runtime, running, .. } = &mut server;
    let ended_early = runtime.block_on(async {
        tokio::select! {
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
            ended = running => Some(ended),
        }
    });
    match ended_early {
        None => server.stop(),
        Some(Ok(Ok(()))) => Ok(()),
        Some(Ok(Err(error))) => Err(ServeError::Transport(error.to_string())),
        Some(Err(error)) => Err(ServeError::Transport(error.to_string())),
    }
}

impl Server {
    /// Opens the shards and listens.
    pub fn start(config: &ServerConfig) -> Result<Server, ServeError> {
        let served = Served::open(&config.cluster, &config.shards, config.limits, config.verify)?;
        let tls = config.tls.as_ref().map(tls_config).transpose()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("network")
            .build()
            .map_err(|error| ServeError::System(error.to_string()))?;
        let (shards, n_shards) = (served.shards.keys().copied().collect(), served.cluster.n_shards());
        let shared = Arc::new(service::Shared {
            served: Arc::new(served),
            work: Work::new(config.n_threads)?,
            metrics: Arc::new(Metrics::default()),
            is_draining: false.into(),
        });
        let (stop, stopped) = watch::channel(false);
        let context = runtime.enter();
        let (listener, address) = listen(config.listen)?;
        let metrics_address = match config.metrics {
            None => None,
            Some(address) => {
                let (listener, address) = listen(address)?;
                let metrics = Arc::clone(&shared.metrics);
                tokio::spawn(prometheus::serve(listener, Arc::new(move || metrics.page())));
                Some(address)
            }
        };
        drop(context);
        let (health, health_service) = tonic_health::server::health_reporter();
        runtime.block_on(health.set_service_status(SERVICE, ServingStatus::Serving));
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTORS)
            .build_v1()
            .map_err(|error| ServeError::System(error.to_string()))?;
        let mut transport = tonic::transport::Server::builder()
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(MAX_FRAME_BYTES)
            .max_concurrent_streams(config.limits.max_in_flight)
            .http2_keepalive_interval(Some(PING_EVERY));
        if let Some(tls) = tls {
            transport = transport.tls_config(tls).map_err(|error| ServeError::Transport(sentence(&error)))?;
        }
        let router = transport
            .add_service(SamplerService(Arc::clone(&shared)))
            .add_service(health_service)
            .add_service(reflection);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let incoming = incoming.map(|stream| stream.map(PatientSocket::new));
        let running = runtime.spawn(router.serve_with_incoming_shutdown(incoming, async move {
            let mut stopped = stopped;
            let _ = stopped.wait_for(|stop| *stop).await; // A sender that is gone stops it too.
        }));
        Ok(Server { runtime, address, metrics_address, shards, n_shards, shared, health, stop, running })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its metrics are.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Takes no more calls, lets those in flight end within the limit, and ends.
    pub fn stop(self) -> Result<(), ServeError> {
        let Server { runtime, shared, health, stop, running, .. } = self;
        let max_drain = shared.served.expected.limits.max_drain;
        shared.is_draining.store(true, Ordering::Relaxed);
        runtime.block_on(async {
            health.set_service_status("", ServingStatus::NotServing).await;
            health.set_service_status(SERVICE, ServingStatus::NotServing).await;
            let _ = stop.send(true); // It may have ended by itself.
            let drained = async {
                tokio::select! {
                    _ = running => {}
                    // Somebody who watches our health holds a connection for as long as there is one.
                    () = idle(&shared.metrics) => {}
                }
            };
            let _ = timeout(max_drain, drained).await; // What is left is cut: clients ask again.
        });
        runtime.shutdown_background();
        Ok(())
    }
}

/// Waits until no call is in flight, and then for connections to be closed.
async fn idle(metrics: &Metrics) {
    while metrics.n_in_flight() > 0 {
        sleep(Duration::from_millis(20)).await;
    }
    sleep(MAX_CLOSING).await;
}

/// `serving shards 0,1 of 3 on 127.0.0.1:4000 (metrics on 127.0.0.1:4001)`
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards: Vec<String> = self.shards.iter().map(u32::to_string).collect();
        write!(f, "serving shards {} of {} on {}", shards.join(","), self.n_shards, self.address)?;
        match self.metrics_address {
            Some(address) => write!(f, " (metrics on {address})"),
            None => Ok(()),
        }
    }
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let failed = |source| ServeError::Listen { address, source };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = TcpListener::from_std(listener).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

fn tls_config(files: &TlsFiles) -> Result<ServerTlsConfig, ServeError> {
    let TlsFiles { certificate, key, client_ca } = files;
    let read = |path: &Path| {
        fs::read(path).map_err(|error| ServeError::Tls { path: path.to_owned(), problem: error.to_string() })
    };
    let mut config = ServerTlsConfig::new().identity(Identity::from_pem(read(certificate)?, read(key)?));
    if let Some(client_ca) = client_ca {
        config = config.client_ca_root(Certificate::from_pem(read(client_ca)?));
    }
    Ok(config)
}
