//! From addresses and folders to a graph that answers.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::try_join_all;
use kith_sampler::ShardSampler;
use kith_store::Cluster;
use tokio::runtime::Runtime;

use crate::{
    error::{ClientError, Result},
    remote::{RemoteConfig, RemoteSampler},
    sharded::{HeldOwners, Place, Sharded},
};

/// How shards are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// Files that are here are read here; the rest is asked of servers.
    #[default]
    Auto,
    /// Servers are asked for everything.
    Grpc,
    /// Files only.
    Local,
}

/// Where a cluster is.
#[derive(Clone, Debug, Default)]
pub struct Whereabouts {
    /// Its folder, if it is here; some of its shards may not be.
    pub cluster: Option<Arc<Cluster>>,
    /// Servers, as HOST:PORT.
    pub samplers: Vec<String>,
    /// How shards are reached.
    pub transport: TransportChoice,
    /// How servers are talked to.
    pub remote: RemoteConfig,
    /// Rows of servers to keep here, in percent of all nodes.
    pub cached_percent: f64,
}

/// Threads that wait for servers and read what they send.
const N_THREADS: usize = 2;

impl Sharded {
    /// Finds every shard of a cluster: in its folder, or at a server.
    pub fn find(whereabouts: Whereabouts) -> Result<Sharded> {
        let Whereabouts { cluster, samplers, transport, remote, cached_percent } = whereabouts;
        if samplers.is_empty() && transport == TransportChoice::Grpc {
            return Err(ClientError::NoServers);
        }
        if samplers.is_empty() || transport == TransportChoice::Local {
            let cluster = cluster.ok_or(ClientError::NoCluster)?;
            return Sharded::local(cluster);
        }
        let no_runtime = |error: std::io::Error| ClientError::NoThread { message: error.to_string() };
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(N_THREADS).thread_name("network").enable_all().build();
        let runtime = runtime.map_err(no_runtime)?;
        let (servers, sent) = connect_all(&runtime, &samplers, cluster.as_deref(), &remote)?;
        let places = places_of(&servers, |shard| match &cluster {
            Some(cluster) if transport == TransportChoice::Auto && cluster.shard_dir(shard).exists() => {
                Ok(Some(ShardSampler::new(cluster.open_shard(shard)?)))
            }
            _ => Ok(None),
        })?;
        let info = servers[0].facts().info.clone();
        let owners = match (cluster, sent) {
            (Some(cluster), _) => HeldOwners::Mapped(cluster),
            (None, Some(sent)) => HeldOwners::Sent(sent),
            (None, None) => unreachable!("owners are asked for where there is no file"),
        };
        let mut sharded = Sharded::new(info, owners, places, Some(runtime));
        sharded.keep_rows(cached_percent)?;
        Ok(sharded)
    }
}

/// Where each shard is: here, if it can be opened, or at the first server that has it.
pub(crate) fn places_of(
    servers: &[Arc<RemoteSampler>],
    open: impl Fn(u32) -> Result<Option<ShardSampler>>,
) -> Result<Vec<Place>> {
    let mut there: BTreeMap<u32, &Arc<RemoteSampler>> = BTreeMap::new();
    for server in servers {
        for shard in &server.facts().shards {
            there.entry(*shard).or_insert(server);
        }
    }
    let n_shards = servers.first().map_or(0, |server| server.facts().n_shards);
    let find = |shard: u32| match (open(shard)?, there.get(&shard)) {
        (Some(here), _) => Ok(Place::Here(Arc::new(here))),
        (None, Some(server)) => Ok(Place::There(Arc::clone(server))),
        (None, None) => Err(ClientError::NobodyServes { shard, n_shards }),
    };
    (0..n_shards).map(find).collect()
}

type Connected = (Vec<Arc<RemoteSampler>>, Option<crate::remote::RemoteOwners>);

/// Connects to all servers at once; the first also sends the owners, unless they are here.
fn connect_all(
    runtime: &Runtime,
    samplers: &[String],
    cluster: Option<&Cluster>,
    remote: &RemoteConfig,
) -> Result<Connected> {
    let digest = cluster.map(|cluster| cluster.digest());
    let (first, sent) = match digest {
        Some(_) => (runtime.block_on(RemoteSampler::connect(&samplers[0], digest, remote.clone()))?, None),
        None => {
            let connected = RemoteSampler::connect_with_owners(&samplers[0], None, remote.clone());
            let (first, sent) = runtime.block_on(connected)?;
            (first, Some(sent))
        }
    };
    let digest = first.facts().cluster.clone();
    let others = samplers[1..].iter().map(|address| RemoteSampler::connect(address, Some(&digest), remote.clone()));
    let others = runtime.block_on(try_join_all(others))?;
    Ok((std::iter::once(first).chain(others).map(Arc::new).collect(), sent))
}
