//! Accepts connections, up to the limits.

use std::{io, sync::Arc, time::Duration};

use rustix::process::{Resource, getrlimit};
use tokio::{net::TcpListener, sync::watch, time::sleep};
use tracing::warn;

use crate::server::{
    connection,
    connections::{Connections, Entered},
    refused::Broken,
    shared::Shared,
    tls::Tls,
};

/// Accepts connections.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) connections: Arc<Connections>,
}

/// The rest after an accept that failed: out of descriptors or memory, an accept would fail again at once.
const REST: Duration = Duration::from_millis(100);

/// Descriptors that are not for connections: files, the other port, what the runtime needs.
const OWN_DESCRIPTORS: usize = 64;

impl Listener {
    /// Accepts connections until the server stops, then closes the port.
    pub(crate) async fn run(self, mut stopped: watch::Receiver<bool>) {
        tokio::select! {
            () = self.accept() => {}
            _ = stopped.wait_for(|stop| *stop) => {} // A sender that is gone stops it too.
        }
    }

    async fn accept(&self) {
        loop {
            let (stream, address) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(_) => {
                    sleep(REST).await;
                    continue;
                }
            };
            let entered = match self.connections.enter(address.ip()) {
                Ok(entered) => entered,
                Err(reason) => {
                    self.shared.metrics.refused_connection(reason);
                    warn!(reason = reason.name(), %address, "a connection was refused");
                    continue;
                }
            };
            let (shared, tls) = (Arc::clone(&self.shared), self.tls.clone());
            tokio::spawn(async move {
                let Entered(connection) = &entered;
                let (metrics, connection) = (Arc::clone(&shared.metrics), Arc::clone(connection));
                let served = connection::serve(shared, tls, Arc::clone(&connection), stream).await;
                if let Err(Broken { stage, error }) = served
                    && !connection.is_known()
                {
                    metrics.refused_connection(stage);
                    warn!(reason = stage.name(), %address, problem = %error, "a connection was refused");
                }
            });
        }
    }
}

/// True for an error of one connection that came and went: the next accept may succeed.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// The connections that there may be: as many as asked for, or as there are descriptors.
pub(crate) fn max_connections(asked: usize) -> usize {
    let most = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize);
    asked.min(most.saturating_sub(OWN_DESCRIPTORS)).max(1)
}
