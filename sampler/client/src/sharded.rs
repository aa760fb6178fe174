//! Partitioned graph: every question goes to the owners of its nodes, in this process or on servers.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use futures_util::future::{try_join, try_join_all};
use kith_sampler::{Direction, Drawn, Hop, Seeds, ShardSampler};
use kith_store::{Cluster, FeatureLayout, Owners, SplitPart};
use tokio::runtime::Runtime;

use crate::{
    asked::Asked,
    by_owner::{AskedOrder, ByOwner, Part, merge_drawn},
    cache::{CacheFacts, CacheSize, Choice, DenseCache, FeatureCache, SparseCache, StoredFeatures},
    calls::RemoteCalls,
    error::{ClientError, Result},
    remote::{OfShards, OwnIds, Places, RemoteOwners, RemoteSampler},
    rows::FetchedRows,
    shards::{Info, RowCounts, Shards},
};

/// The shards of a cluster.
#[derive(Debug)]
pub struct Sharded {
    info: Info,
    owners: HeldOwners,
    /// By number.
    shards: Vec<ShardPlace>,
    /// Shards of one server are asked together.
    order: AskedOrder,
    /// Runtime for calls to servers; `None` without servers.
    runtime: Option<Runtime>,
    cache: Option<FeatureCache>,
    /// Servers that were named and are done without.
    pub(crate) silent: Vec<String>,
}

/// Location of a shard: files of this process, or servers.
#[derive(Clone, Debug)]
pub(crate) enum ShardPlace {
    Here(Arc<ShardSampler>),
    There(Arc<RemoteSampler>),
}

impl ShardPlace {
    fn is_here(&self) -> bool {
        matches!(self, ShardPlace::Here(_))
    }
}

/// The owners of all nodes, in a file or as a server sent them.
#[derive(Debug)]
pub(crate) enum HeldOwners {
    Mapped(Arc<Cluster>),
    Sent(RemoteOwners),
}

impl HeldOwners {
    fn owners(&self) -> Owners<'_> {
        match self {
            HeldOwners::Mapped(cluster) => cluster.owners(),
            HeldOwners::Sent(owners) => owners.owners(),
        }
    }
}

impl Sharded {
    /// All shards in this process.
    pub fn local(cluster: Arc<Cluster>) -> Result<Sharded> {
        let open = |shard| Ok(ShardPlace::Here(Arc::new(ShardSampler::new(cluster.open_shard(shard)?))));
        let shards = (0..cluster.n_shards()).map(open).collect::<Result<_>>()?;
        let info = Info::new(cluster.store_digest(), cluster.manifest());
        Ok(Sharded::new(info, HeldOwners::Mapped(cluster), shards, None))
    }

    pub(crate) fn new(info: Info, owners: HeldOwners, shards: Vec<ShardPlace>, runtime: Option<Runtime>) -> Sharded {
        let order = AskedOrder::new(shards.len(), |shard| match &shards[shard as usize] {
            ShardPlace::Here(_) => None,
            ShardPlace::There(server) => Some(Arc::as_ptr(server)),
        });
        Sharded { info, owners, shards, order, runtime, cache: None, silent: Vec::new() }
    }

    /// Opens the cache of remote features.
    pub fn cache_features(&mut self, size: CacheSize) -> Result<()> {
        let (Some((runtime, server)), Some(layout)) = (self.any_server(), self.info.rows) else { return Ok(()) };
        let stored =
            StoredFeatures { graph: &server.facts().cluster, dim: self.info.dim, dtype: server.facts().rows_dtype };
        let n_rows = match (size, layout) {
            (CacheSize::Percent(percent), _) => (self.info.n_nodes as f64 * percent / 100.0) as u64,
            (CacheSize::Bytes(bytes), FeatureLayout::Dense) => bytes / stored.slot_bytes(),
            (CacheSize::Bytes(_), FeatureLayout::Sparse) => 0,
        };
        if n_rows == 0 || stored.dim == 0 {
            return Ok(());
        }
        let owners = self.owners.owners();
        let is_elsewhere = |node| {
            owners.of(node).and_then(|owner| self.shards.get(owner as usize)).is_some_and(|place| !place.is_here())
        };
        let n_nodes = self.info.n_nodes;
        let nodes = if n_rows >= (0..n_nodes).filter(|node| is_elsewhere(*node)).count() as u64 {
            Choice::All.rows(n_nodes, is_elsewhere)
        } else {
            let sent;
            let inclusion = match &self.owners {
                HeldOwners::Mapped(cluster) => cluster.inclusion()?,
                HeldOwners::Sent(_) => {
                    sent = runtime.block_on(server.inclusion())?;
                    sent.as_deref()
                }
            };
            match (inclusion, size) {
                (Some(inclusion), _) => {
                    Choice::most_probable(inclusion, n_rows, is_elsewhere).rows(n_nodes, is_elsewhere)
                }
                (None, CacheSize::Bytes(_)) => return Ok(()),
                (None, CacheSize::Percent(_)) => return Err(ClientError::NoInclusion),
            }
        };
        if nodes.n_rows() == 0 {
            return Ok(());
        }
        self.cache = Some(match layout {
            FeatureLayout::Dense => {
                let cache = DenseCache::open(stored, nodes)?;
                // Its share of the memory is that of one cache per host.
                if !cache.facts().is_shared && matches!(size, CacheSize::Bytes(_)) {
                    return Ok(());
                }
                FeatureCache::Dense(cache)
            }
            FeatureLayout::Sparse => {
                let ids: Vec<u64> = (0..n_nodes).filter(|node| nodes.row_of(*node).is_some()).collect();
                let mut rows = FetchedRows::default();
                self.fetch_features(&ids, &mut rows)?;
                FeatureCache::Sparse(SparseCache::new(nodes, rows))
            }
        });
        Ok(())
    }

    /// Facts about the cache of remote features; `None` without one.
    pub fn cache(&self) -> Option<CacheFacts> {
        self.cache.as_ref().map(|cache| match cache {
            FeatureCache::Dense(cache) => cache.facts(),
            FeatureCache::Sparse(cache) => cache.facts(),
        })
    }

    /// Users' own ids, from a server; `None` if ids are node numbers, or without servers.
    pub fn own_ids(&self) -> Result<Option<OwnIds>> {
        match self.any_server() {
            Some((runtime, server)) => runtime.block_on(server.own_ids()),
            None => Ok(None),
        }
    }

    /// Servers that gave no answer when the shards were looked for; others have all of them.
    pub fn silent(&self) -> &[String] {
        &self.silent
    }

    /// True if any shard is on servers.
    pub fn has_servers(&self) -> bool {
        self.any_server().is_some()
    }

    /// Calls to all servers.
    pub fn calls(&self) -> RemoteCalls {
        let servers = self.shards.iter().filter_map(|place| match place {
            ShardPlace::There(server) => Some(server),
            ShardPlace::Here(_) => None,
        });
        RemoteCalls::new(servers)
    }

    fn any_server(&self) -> Option<(&Runtime, &RemoteSampler)> {
        let server = self.shards.iter().find_map(|place| match place {
            ShardPlace::There(server) => Some(&**server),
            ShardPlace::Here(_) => None,
        });
        self.runtime.as_ref().zip(server)
    }

    fn by_owner(&self, nodes: &[u64]) -> Result<ByOwner> {
        ByOwner::new(self.owners.owners(), &self.order, nodes)
    }

    fn by_owner_at(&self, asked: &Asked) -> Result<ByOwner> {
        let mut by_owner = self.by_owner(&asked.nodes)?;
        by_owner.stand_at(&asked.places);
        Ok(by_owner)
    }

    fn place(&self, shard: u32) -> &ShardPlace {
        &self.shards[shard as usize]
    }

    /// Asks shards their questions, and works on what is here while servers answer.
    fn ask_all<'s, Q, F: Future<Output = Result<()>>>(
        &'s self,
        questions: impl IntoIterator<Item = (u32, Q)>,
        there: impl Fn(&'s RemoteSampler, Q) -> F,
        here: impl Fn(&ShardSampler, Q) -> Result<()>,
    ) -> Result<()> {
        let (mut calls, mut own) = (Vec::new(), Vec::new());
        for (shard, question) in questions {
            match self.place(shard) {
                ShardPlace::Here(shard) => own.push((shard, question)),
                ShardPlace::There(server) => calls.push(there(server, question)),
            }
        }
        let work = || own.into_iter().try_for_each(|(shard, question)| here(shard, question));
        match &self.runtime {
            // Futures are polled in this order: requests are on their way before the work here begins.
            Some(runtime) if !calls.is_empty() => {
                runtime.block_on(try_join(try_join_all(calls), async { work() })).map(drop)
            }
            _ => work(),
        }
    }

    fn fetch_dense(&self, nodes: &[u64], rows: &mut FetchedRows) -> Result<RowCounts> {
        rows.begin_dense(nodes.len(), self.info.dim);
        let Some(FeatureCache::Dense(cache)) = &self.cache else {
            let by_owner = self.by_owner(nodes)?;
            self.fetch_parts(&by_owner, rows)?;
            return Ok(self.count_rows(&by_owner, 0));
        };
        let asked = Asked::split(nodes, |node| cache.slot_of(node), |slot| cache.is_filled(slot));
        let by_owner = self.by_owner_at(&asked)?;
        self.fetch_parts(&by_owner, rows)?;
        cache.read(&asked.found, &mut rows.values);
        cache.fill(&asked.missing, &rows.values);
        Ok(self.count_rows(&by_owner, asked.found.len()))
    }

    /// Fetches dense features of all parts into their places.
    fn fetch_parts(&self, by_owner: &ByOwner, rows: &mut FetchedRows) -> Result<()> {
        let rows = &Mutex::new(rows);
        self.ask_all(
            by_owner.parts().map(|part| (part.shard(), part)),
            |server, part| {
                server.fetch_dense(OfShards::Several(part.shards), part.nodes, Places::At(part.places), rows)
            },
            |shard, part| {
                let stored = shard.shard().features().ok_or(ClientError::NoRows)?;
                let own = shard.rows_of(part.nodes)?;
                let places = part.places.iter().map(|place| *place as usize);
                rows.lock().expect("nobody panics while copying").gather_at(stored, &own, places)
            },
        )
    }

    /// Fetches sparse features: all parts first, because a feature vector's position depends on the lengths before it.
    fn fetch_sparse(&self, nodes: &[u64], rows: &mut FetchedRows) -> Result<RowCounts> {
        let cache = match &self.cache {
            Some(FeatureCache::Sparse(cache)) => Some(cache),
            _ => None,
        };
        let asked = Asked::split(nodes, |node| cache.and_then(|cache| cache.find(node)), |_| true);
        let by_owner = self.by_owner_at(&asked)?;
        let cached = || {
            let row = |(place, row): &(u32, usize)| cache.map(|cache| (*place as usize, cache.row(*row)));
            asked.found.iter().filter_map(row)
        };
        let mut parts: Vec<(Part<'_>, FetchedRows)> =
            by_owner.parts().map(|part| (part, FetchedRows::default())).collect();
        self.ask_all(
            parts.iter_mut().map(|(part, rows)| (part.shard(), (*part, rows))),
            |server, (part, rows)| server.fetch_features(OfShards::Several(part.shards), part.nodes, rows),
            |shard, (part, rows)| {
                let stored = shard.shard().features().ok_or(ClientError::NoRows)?;
                rows.gather(stored, &shard.rows_of(part.nodes)?)
            },
        )?;
        let mut lengths = vec![0; nodes.len()];
        for (part, own) in &parts {
            for (place, bounds) in part.places.iter().zip(own.indptr.windows(2)) {
                lengths[*place as usize] = bounds[1] - bounds[0];
            }
        }
        cached().for_each(|(place, (columns, _))| lengths[place] = columns.len());
        rows.begin_sparse(self.info.dim, lengths.into_iter());
        cached().for_each(|(place, (columns, values))| rows.write_sparse(place, columns, values));
        for (part, own) in &parts {
            for (place, bounds) in part.places.iter().zip(own.indptr.windows(2)) {
                let stored = bounds[0]..bounds[1];
                rows.write_sparse(*place as usize, &own.columns[stored.clone()], &own.values[stored]);
            }
        }
        Ok(self.count_rows(&by_owner, asked.found.len()))
    }

    fn count_rows(&self, by_owner: &ByOwner, n_cached: usize) -> RowCounts {
        let mut counts = RowCounts { cached: n_cached as u64, ..RowCounts::default() };
        for part in by_owner.parts() {
            match self.place(part.shard()) {
                ShardPlace::Here(_) => counts.local += part.nodes.len() as u64,
                ShardPlace::There(_) => counts.remote += part.nodes.len() as u64,
            }
        }
        counts
    }
}

impl Shards for Sharded {
    fn info(&self) -> &Info {
        &self.info
    }

    fn waits(&self) -> bool {
        self.runtime.is_some()
    }

    fn seeds(&self, split: Option<&str>, part: SplitPart) -> Result<Seeds> {
        let mut found: Vec<Option<Seeds>> = vec![None; self.shards.len()];
        self.ask_all(
            (0..).zip(&mut found).map(|(shard, found)| (shard, (shard, found))),
            async |server, (shard, found)| {
                *found = Some(server.seeds(shard, split, part).await?);
                Ok(())
            },
            |sampler, (_, found)| {
                *found = Some(sampler.seeds(split, part)?);
                Ok(())
            },
        )?;
        found.into_iter().flatten().reduce(|all, own| all.union(&own)).ok_or(ClientError::NoSeeds)
    }

    fn sample_hop(&self, hop: &Hop, frontier: &[u64], drawn: &mut Drawn) -> Result<()> {
        if hop.edge_data.ids {
            return Err(ClientError::NoEdgeIds);
        }
        let by_owner = self.by_owner(frontier)?;
        if let Some(shard) = by_owner.only_shard() {
            return self.ask_all(
                [(shard, drawn)],
                |server, drawn| server.sample_hop(shard, hop, frontier, drawn),
                |sampler, drawn| Ok(sampler.sample_hop(hop, frontier, drawn)?),
            );
        }
        let mut answers: Vec<(Part<'_>, Drawn)> = by_owner.parts().map(|part| (part, Drawn::default())).collect();
        self.ask_all(
            answers.iter_mut().map(|(part, drawn)| (part.shard(), (*part, drawn))),
            |server, (part, drawn)| server.sample_hop(OfShards::Several(part.shards), hop, part.nodes, drawn),
            |sampler, (part, drawn)| Ok(sampler.sample_hop(hop, part.nodes, drawn)?),
        )?;
        merge_drawn(frontier.len(), &answers, drawn);
        Ok(())
    }

    fn fetch_features(&self, nodes: &[u64], rows: &mut FetchedRows) -> Result<RowCounts> {
        match self.info.rows.ok_or(ClientError::NoRows)? {
            FeatureLayout::Dense => self.fetch_dense(nodes, rows),
            FeatureLayout::Sparse => self.fetch_sparse(nodes, rows),
        }
    }

    fn has_edges(&self, pairs: &[(u64, u64)], direction: Direction, found: &mut [bool]) -> Result<()> {
        let destinations: Vec<u64> = pairs.iter().map(|(_, destination)| *destination).collect();
        let by_owner = self.by_owner(&destinations)?;
        type EdgesPart<'a> = (Part<'a>, Vec<(u64, u64)>, Vec<bool>);
        let asked = |part: Part<'_>| part.places.iter().map(|place| pairs[*place as usize]).collect::<Vec<_>>();
        let mut parts: Vec<EdgesPart<'_>> =
            by_owner.parts().map(|part| (part, asked(part), vec![false; part.nodes.len()])).collect();
        self.ask_all(
            parts.iter_mut().map(|(part, pairs, found)| (part.shard(), (part.shards, &*pairs, found))),
            |server, (shards, pairs, found)| server.has_edges(OfShards::Several(shards), pairs, direction, found),
            |sampler, (_, pairs, found)| Ok(sampler.has_edges(pairs, direction, found)?),
        )?;
        for (part, _, answers) in parts {
            part.places.iter().zip(answers).for_each(|(place, answer)| found[*place as usize] = answer);
        }
        Ok(())
    }
}
