//! Opens a graph from addresses of servers and folders.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use kith_sampler::ShardSampler;
use kith_store::Cluster;
use tokio::time::{Instant, timeout_at};

use crate::{
    cache::CacheSize,
    error::{ClientError, Result},
    remote::{RemoteConfig, RemoteSampler},
    sharded::{HeldOwners, ShardPlace, Sharded},
    shards::Info,
};

/// Access to shards: files, servers, or both.
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

/// Location of a partitioned graph, and options for reaching it.
#[derive(Clone, Debug, Default)]
pub struct Whereabouts {
    /// Its folder, if it is here; some of its shards may not be.
    pub cluster: Option<Arc<Cluster>>,
    /// Servers, as HOST:PORT. Several may have the same shard.
    pub samplers: Vec<String>,
    /// Rank of this process: each rank starts with a different server of a shard.
    pub rank: usize,
    /// Access to shards.
    pub transport: TransportChoice,
    /// Options for connections to servers.
    pub remote: RemoteConfig,
    /// Memory for features that servers have.
    pub cache: CacheSize,
}

/// Threads that wait for servers and read what they send.
const N_THREADS: usize = 2;

impl Sharded {
    /// Finds every shard of a cluster: in its folder, or at a server.
    pub fn find(whereabouts: Whereabouts) -> Result<Sharded> {
        let Whereabouts { cluster, samplers, rank, transport, remote, cache } = whereabouts;
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
        let digest = cluster.as_ref().map(|cluster| cluster.digest());
        let Connected { servers, silent } = runtime.block_on(connect_all(&samplers, digest, &remote))?;
        let places = places_of(&servers, rank, |shard| match &cluster {
            Some(cluster) if transport == TransportChoice::Auto && cluster.shard_dir(shard).exists() => {
                Ok(Some(ShardSampler::new(cluster.open_shard(shard)?)))
            }
            _ => Ok(None),
        })?;
        let info = match &cluster {
            Some(cluster) => Info::new(cluster.store_digest(), cluster.manifest()),
            None => servers[0].facts().info.clone(),
        };
        servers.iter().try_for_each(|server| server.expect_info(&info))?;
        let owners = match cluster {
            Some(cluster) => HeldOwners::Mapped(cluster),
            None => HeldOwners::Sent(runtime.block_on(servers[0].owners())?),
        };
        let mut sharded = Sharded::new(info, owners, places, Some(runtime));
        sharded.silent = silent;
        sharded.cache_features(cache)?;
        Ok(sharded)
    }
}

/// Place of each shard: local if it can be opened, else the servers that have it.
pub(crate) fn places_of(
    servers: &[Arc<RemoteSampler>],
    rank: usize,
    open: impl Fn(u32) -> Result<Option<ShardSampler>>,
) -> Result<Vec<ShardPlace>> {
    // By the servers' numbers: shards that are at the same servers share what is known of these.
    let mut stand_ins: BTreeMap<Vec<usize>, Arc<RemoteSampler>> = BTreeMap::new();
    let n_shards = servers.first().map_or(0, |server| server.facts().n_shards);
    let mut find = |shard: u32| {
        if let Some(here) = open(shard)? {
            return Ok(ShardPlace::Here(Arc::new(here)));
        }
        let has_it = |number: &usize| servers[*number].facts().shards.contains(&shard);
        let numbers: Vec<usize> = (0..servers.len()).filter(has_it).collect();
        match *numbers {
            [] => Err(ClientError::NobodyServes { shard, n_shards }),
            [only] => Ok(ShardPlace::There(Arc::clone(&servers[only]))),
            _ => {
                let own: Vec<&RemoteSampler> = numbers.iter().map(|number| &*servers[*number]).collect();
                let stand_in =
                    stand_ins.entry(numbers).or_insert_with(|| Arc::new(RemoteSampler::stand_in(&own, rank)));
                Ok(ShardPlace::There(Arc::clone(stand_in)))
            }
        }
    };
    (0..n_shards).map(&mut find).collect()
}

/// Servers of one cluster, in the order in which they were named.
struct Connected {
    servers: Vec<Arc<RemoteSampler>>,
    /// Addresses that gave no answer.
    silent: Vec<String>,
}

/// Connects to all servers at once. As soon as all shards are found, the others have the time of one silence left; servers that
/// have not answered by then are skipped.
async fn connect_all<'a>(
    samplers: &'a [String],
    digest: Option<&'a str>,
    remote: &'a RemoteConfig,
) -> Result<Connected> {
    let connect = |(number, address): (usize, &'a String)| async move {
        (number, RemoteSampler::connect(address, digest, remote.clone()).await)
    };
    let mut connecting: FuturesUnordered<_> = samplers.iter().enumerate().map(connect).collect();
    let (mut found, mut lost) = (BTreeMap::new(), BTreeMap::new());
    let mut end = None;
    loop {
        let next = match end {
            None => connecting.next().await,
            Some(end) => timeout_at(end, connecting.next()).await.unwrap_or(None),
        };
        match next {
            None => break,
            Some((number, Ok(server))) => drop(found.insert(number, server)),
            Some((number, Err(error))) if error.may_be_tried_again() => drop(lost.insert(number, error)),
            Some((_, Err(error))) => return Err(error),
        }
        if end.is_none() && are_all_shards(found.values()) {
            end = Some(Instant::now() + remote.max_silence);
        }
    }
    if end.is_none()
        && let Some((_, error)) = lost.pop_first()
    {
        return Err(error);
    }
    let silent =
        (0..).zip(samplers).filter(|(number, _)| !found.contains_key(number)).map(|(_, address)| address.clone());
    let silent = silent.collect();
    let mut servers: Vec<Arc<RemoteSampler>> = Vec::new();
    for mut server in found.into_values() {
        if let Some(first) = servers.first().filter(|first| first.facts().cluster != server.facts().cluster) {
            // It says itself why it does not belong to the first.
            server = RemoteSampler::connect(server.address(), Some(&first.facts().cluster), remote.clone()).await?;
        }
        servers.push(Arc::new(server));
    }
    Ok(Connected { servers, silent })
}

fn are_all_shards<'a>(servers: impl Iterator<Item = &'a RemoteSampler>) -> bool {
    let (mut n_shards, mut there) = (0, BTreeSet::<u32>::new());
    for server in servers {
        n_shards = server.facts().n_shards;
        there.extend(server.facts().shards.iter().copied());
    }
    n_shards > 0 && (0..n_shards).all(|shard| there.contains(&shard))
}
