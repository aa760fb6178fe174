//! The graph that a command works on.

use std::sync::Arc;

use kith_bucket::Wanted;
use kith_cli::{graph::GraphArgs, progress::say, pulled::local};
use kith_client::Whereabouts;
use kith_store::Cluster;
use kith_trainer::data::opened::Opened;

/// Opens it.
pub(crate) fn open(args: &GraphArgs) -> anyhow::Result<Opened> {
    open_as(args, 0)
}

/// Opens it for a rank: of several servers of a shard, each begins with another.
pub(crate) fn open_as(args: &GraphArgs, rank: usize) -> anyhow::Result<Opened> {
    if let Some(store) = &args.store {
        return Ok(Opened::open_store_with(&local(store, &Wanted::All)?, args.verify)?);
    }
    let cluster = match &args.shards {
        Some(dir) => Some(Arc::new(Cluster::open_with(&local(dir, &Wanted::All)?, args.verify)?)),
        None => None,
    };
    if cluster.is_none() && args.samplers.is_empty() {
        anyhow::bail!("give --store, --shards or --samplers");
    }
    if !args.samplers.is_empty() {
        // Servers that are not there yet are waited for.
        say(&format!("asking {}, at most {} s without an answer", args.samplers.join(", "), args.sampler_timeout));
    }
    let whereabouts = Whereabouts {
        cluster,
        samplers: args.samplers.clone(),
        rank,
        transport: args.transport,
        remote: args.remote()?,
        cached_percent: args.cache,
    };
    let opened = Opened::find(whereabouts)?;
    for server in opened.silent_servers() {
        say(&format!("note: no answer from {server}: going on without it, because others have all shards"));
    }
    Ok(opened)
}
