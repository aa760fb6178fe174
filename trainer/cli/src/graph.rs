//! Which graph a command works on.

use std::path::PathBuf;

use kith_trainer::opened::Opened;

/// The graph: a store, or what `kith partition` made of it.
#[derive(clap::Args, Clone, Debug)]
#[group(multiple = false)]
pub(crate) struct GraphArgs {
    /// The store to work on.
    #[arg(long, value_name = "STORE")]
    store: Option<PathBuf>,
    /// The folder that `kith partition` made of the store, with all its shards.
    #[arg(long, value_name = "DIR")]
    shards: Option<PathBuf>,
}

impl GraphArgs {
    /// Opens it.
    pub(crate) fn open(&self) -> anyhow::Result<Opened> {
        match (&self.store, &self.shards) {
            (Some(store), _) => Ok(Opened::open_store(store)?),
            (None, Some(dir)) => Ok(Opened::open_cluster(dir)?),
            (None, None) => anyhow::bail!("give --store, or --shards for what was cut"),
        }
    }
}
