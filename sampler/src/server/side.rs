//! Second port of a server, for metrics and health, and reloading of changed files. Both run on a thread of their own,
//! so that calls cannot delay them.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use kith_log::say;
use tokio::{
    sync::oneshot,
    time::{MissedTickBehavior, interval},
};

use crate::{
    prometheus::{self, Shown},
    server::{
        access::{Tokens, Watched},
        config::ServerConfig,
        connections::Connections,
        error::ServeError,
        listen::listen,
        shared::Shared,
        tls::Tls,
    },
};

/// The thread beside the server; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Side {
    address: Option<SocketAddr>,
    _end: oneshot::Sender<()>,
}

/// Interval of looks at files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Side {
    pub(crate) fn start(
        config: &ServerConfig,
        shared: &Arc<Shared>,
        connections: &Arc<Connections>,
        tls: Option<&Arc<Tls>>,
    ) -> Result<Side, ServeError> {
        let system = |error: std::io::Error| ServeError::System(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
        let listener = config.metrics.map(|address| listen(&runtime, address)).transpose()?;
        let address = listener.as_ref().map(|(_, address)| *address);
        let (_end, ended) = oneshot::channel::<()>();
        let files = Files::new(config, shared, tls);
        let (shared, connections) = (Arc::clone(shared), Arc::clone(connections));
        let page = move |path: &str| shown(path, &shared, &connections);
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = ended => {}
                    () = files.watch() => {}
                    () = async {
                        match listener {
                            Some((listener, _)) => prometheus::serve_pages(listener, Arc::new(page)).await,
                            None => std::future::pending().await,
                        }
                    } => {}
                }
            });
        };
        thread::Builder::new().name("side".to_owned()).spawn(run).map_err(system)?;
        Ok(Side { address, _end })
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

fn shown(path: &str, shared: &Shared, connections: &Connections) -> Option<Shown> {
    match path {
        "/metrics" => Some(shared.metrics.page(connections)),
        "/health" if shared.is_draining.load(Ordering::Relaxed) => Some(Shown::unavailable("stopping\n")),
        "/health" => Some(Shown::page("serving\n".to_owned())),
        _ => None,
    }
}

/// Files that are read again when they change.
struct Files {
    tokens: Option<(PathBuf, Watched)>,
    tls: Option<(Arc<Tls>, Vec<Watched>)>,
    shared: Arc<Shared>,
}

impl Files {
    fn new(config: &ServerConfig, shared: &Arc<Shared>, tls: Option<&Arc<Tls>>) -> Files {
        Files {
            tokens: config.access.token_file.as_ref().map(|path| (path.clone(), Watched::new(path))),
            tls: tls.map(|tls| (Arc::clone(tls), tls.paths().map(|path| Watched::new(path)).collect())),
            shared: Arc::clone(shared),
        }
    }

    async fn watch(mut self) {
        if self.tokens.is_none() && self.tls.is_none() {
            return std::future::pending().await;
        }
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some((path, watched)) = &mut self.tokens
                && watched.has_changed()
            {
                let read = Tokens::read(path).map(|tokens| self.shared.access.set_tokens(tokens));
                told("tokens", read);
            }
            if let Some((tls, watched)) = &mut self.tls {
                // All are asked: each remembers what it saw.
                let n_changed = watched.iter_mut().map(Watched::has_changed).filter(|changed| *changed).count();
                if n_changed > 0 {
                    told("certificates", tls.reload());
                }
            }
        }
    }
}

/// Tells the operator that files were read again, or why those from before stay.
fn told(what: &str, read: Result<(), ServeError>) {
    match read {
        Ok(()) => say(&format!("note: {what} were read again")),
        Err(error) => say(&format!("warning: {what} stay as they were: {error}")),
    }
}
