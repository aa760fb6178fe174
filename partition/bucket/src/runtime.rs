//! Shared tokio runtime for requests; callers block on it.

use std::{future::Future, sync::OnceLock};

use tokio::runtime::{Builder, Runtime};

/// Waits for a future on threads that all calls share. Not for use inside another runtime's tasks.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    #[cfg(test)]
    if let Some(writer) = crate::simulation::storage::writer() {
        return writer.wait(future);
    }
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("kith-bucket").enable_all();
        builder.build().expect("threads for requests can be started")
    });
    runtime.block_on(future)
}
