//! Opens the graph that a command reads.

use std::sync::Arc;

use kith_cli::{
    graph::{GraphArgs, GraphPlace},
    progress::{bytes, grouped, say},
};
use kith_client::{CacheFacts, Whereabouts};
use kith_store::Cluster;
use kith_trainer::data::opened::Opened;

/// Opens it.
pub(crate) fn open(args: &GraphArgs) -> anyhow::Result<Opened> {
    open_as(args, 0)
}

/// Opens it for a rank: of several servers of a shard, each begins with another.
pub(crate) fn open_as(args: &GraphArgs, rank: usize) -> anyhow::Result<Opened> {
    let GraphPlace { store, shards, samplers } = args.place()?;
    if let Some(store) = store {
        return Ok(Opened::open_store_with(&store, args.verify)?);
    }
    let cluster = match shards {
        Some(dir) => Some(Arc::new(Cluster::open_with(&dir, args.verify)?)),
        None => None,
    };
    if !samplers.is_empty() {
        // Servers may still be starting.
        say(&format!("connecting to {}, at most {} s", samplers.join(", "), args.sampler_timeout));
    }
    let whereabouts = Whereabouts {
        cluster,
        samplers,
        rank,
        transport: args.transport,
        remote: args.remote()?,
        cache: args.cache.size(),
    };
    let opened = Opened::find(whereabouts)?;
    for server in opened.silent_servers() {
        say(&format!("warning: no answer from {server}: skipped, other servers have all shards"));
    }
    if let Some(CacheFacts { n_nodes, n_bytes, is_shared }) = opened.cache() {
        let whose = if is_shared { "shared by the ranks of this host" } else { "of this process" };
        say(&format!("cache of remote features, {whose}: up to {} nodes, {}", grouped(n_nodes), bytes(n_bytes)));
    }
    Ok(opened)
}
