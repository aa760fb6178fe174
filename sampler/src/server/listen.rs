//! Opens the ports of a server.

use std::net::SocketAddr;

use tokio::{net::TcpListener, runtime::Runtime};

use crate::server::error::ServeError;

/// Binds a port, and gives the address that it got.
pub(crate) fn listen(runtime: &Runtime, address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let _context = runtime.enter();
    let failed = |source| ServeError::Listen { address, source };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = TcpListener::from_std(listener).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}
