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
    by_owner::{ByOwner, ShardPart, merge_drawn},
    cache::{RowCache, most_probable},
    error::{ClientError, Result},
    remote::{HedgeCounts, OwnIds, Places, RemoteOwners, RemoteSampler},
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
    /// Runtime for calls to servers; `None` without servers.
    runtime: Option<Runtime>,
    cache: Option<RowCache>,
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
        Sharded { info, owners, shards, runtime, cache: None, silent: Vec::new() }
    }

    /// Keeps rows of nodes that servers have: up to this percentage of all nodes, those that batches need most probably.
    pub fn keep_rows(&mut self, percent: f64) -> Result<()> {
        let Some((runtime, server)) = self.any_server().filter(|_| percent > 0.0) else { return Ok(()) };
        let sent;
        let inclusion = match &self.owners {
            HeldOwners::Mapped(cluster) => cluster.inclusion()?,
            HeldOwners::Sent(_) => {
                sent = runtime.block_on(server.inclusion())?;
                sent.as_deref()
            }
        };
        let inclusion = inclusion.ok_or(ClientError::NoInclusion)?;
        let n_rows = (self.info.n_nodes as f64 * percent / 100.0) as usize;
        let owners = self.owners.owners();
        let is_elsewhere = |node| {
            owners.of(node).and_then(|owner| self.shards.get(owner as usize)).is_some_and(|place| !place.is_here())
        };
        let nodes = most_probable(inclusion, n_rows, is_elsewhere);
        let mut rows = FetchedRows::default();
        self.fetch_features(&nodes, &mut rows)?;
        self.cache = Some(RowCache::new(self.info.n_nodes, &nodes, rows));
        Ok(())
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

    /// Counts of hedged calls to all servers.
    pub fn hedge_counts(&self) -> HedgeCounts {
        let mut servers: Vec<&Arc<RemoteSampler>> = Vec::new();
        for place in &self.shards {
            if let ShardPlace::There(server) = place
                && !servers.iter().any(|other| Arc::ptr_eq(other, server))
            {
                servers.push(server);
            }
        }
        servers.into_iter().map(|server| server.hedge_counts()).fold(HedgeCounts::default(), HedgeCounts::plus)
    }

    fn any_server(&self) -> Option<(&Runtime, &RemoteSampler)> {
        let server = self.shards.iter().find_map(|place| match place {
            ShardPlace::There(server) => Some(&**server),
            ShardPlace::Here(_) => None,
        });
        self.runtime.as_ref().zip(server)
    }

    fn by_owner(&self, nodes: &[u64]) -> Result<ByOwner> {
        ByOwner::new(self.owners.owners(), self.shards.len() as u32, nodes)
    }

    fn place(&self, shard: u32) -> &ShardPlace {
        &self.shards[shard as usize]
    }

    /// Asks each shard its question, and works on what is here while servers answer.
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

    fn fetch_dense(&self, by_owner: &ByOwner, rows: &mut FetchedRows) -> Result<()> {
        let rows = &Mutex::new(rows);
        self.ask_all(
            by_owner.parts().map(|part| (part.shard, part)),
            |server, part| server.fetch_dense(part.shard, part.nodes, Places::At(part.places), rows),
            |shard, part| {
                let stored = shard.shard().features().ok_or(ClientError::NoRows)?;
                let own = shard.rows_of(part.nodes)?;
                let places = part.places.iter().map(|place| *place as usize);
                rows.lock().expect("nobody panics while copying").gather_at(stored, &own, places)
            },
        )
    }

    /// Fetches sparse features: all parts first, because a feature vector's position depends on the lengths before it.
    fn fetch_sparse(
        &self,
        by_owner: &ByOwner,
        cached: &Cached<'_>,
        n_nodes: usize,
        rows: &mut FetchedRows,
    ) -> Result<()> {
        let mut parts: Vec<(ShardPart<'_>, FetchedRows)> =
            by_owner.parts().map(|part| (part, FetchedRows::default())).collect();
        self.ask_all(
            parts.iter_mut().map(|(part, rows)| (part.shard, (*part, rows))),
            |server, (part, rows)| server.fetch_features(part.shard, part.nodes, rows),
            |shard, (part, rows)| {
                let stored = shard.shard().features().ok_or(ClientError::NoRows)?;
                rows.gather(stored, &shard.rows_of(part.nodes)?)
            },
        )?;
        let mut lengths = vec![0; n_nodes];
        for (part, own) in &parts {
            for (place, bounds) in part.places.iter().zip(own.indptr.windows(2)) {
                lengths[*place as usize] = bounds[1] - bounds[0];
            }
        }
        cached.sparse().for_each(|(place, columns, _)| lengths[place] = columns.len());
        rows.begin_sparse(self.info.dim, lengths.into_iter());
        cached.sparse().for_each(|(place, columns, values)| rows.write_sparse(place, columns, values));
        for (part, own) in &parts {
            for (place, bounds) in part.places.iter().zip(own.indptr.windows(2)) {
                let stored = bounds[0]..bounds[1];
                rows.write_sparse(*place as usize, &own.columns[stored.clone()], &own.values[stored]);
            }
        }
        Ok(())
    }

    fn count_rows(&self, by_owner: &ByOwner, cached: &Cached<'_>) -> RowCounts {
        let mut counts = RowCounts { cached: cached.found.len() as u64, ..RowCounts::default() };
        for part in by_owner.parts() {
            match self.place(part.shard) {
                ShardPlace::Here(_) => counts.local += part.nodes.len() as u64,
                ShardPlace::There(_) => counts.remote += part.nodes.len() as u64,
            }
        }
        counts
    }
}

/// Nodes of a question that are in the cache.
#[derive(Debug, Default)]
struct Cached<'a> {
    cache: Option<&'a RowCache>,
    /// Position of each node in the question, and its row in the cache.
    found: Vec<(u32, usize)>,
}

impl<'a> Cached<'a> {
    /// Splits nodes into cached ones, and the others with their positions.
    fn find(cache: &'a RowCache, nodes: &[u64]) -> (Cached<'a>, Vec<u64>, Vec<u32>) {
        let (mut found, mut rest, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (place, node) in (0..).zip(nodes) {
            match cache.find(*node) {
                Some(row) => found.push((place, row)),
                None => {
                    rest.push(*node);
                    places.push(place);
                }
            }
        }
        (Cached { cache: Some(cache), found }, rest, places)
    }

    fn dense(&self) -> impl Iterator<Item = (usize, &[f32])> {
        self.cache
            .into_iter()
            .flat_map(|cache| self.found.iter().map(|(place, row)| (*place as usize, cache.dense(*row))))
    }

    fn sparse(&self) -> impl Iterator<Item = (usize, &[u32], &[f32])> {
        self.cache.into_iter().flat_map(|cache| {
            self.found.iter().map(|(place, row)| {
                let (columns, values) = cache.sparse(*row);
                (*place as usize, columns, values)
            })
        })
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
        let mut answers: Vec<(ShardPart<'_>, Drawn)> = by_owner.parts().map(|part| (part, Drawn::default())).collect();
        self.ask_all(
            answers.iter_mut().map(|(part, drawn)| (part.shard, (*part, drawn))),
            |server, (part, drawn)| server.sample_hop(part.shard, hop, part.nodes, drawn),
            |sampler, (part, drawn)| Ok(sampler.sample_hop(hop, part.nodes, drawn)?),
        )?;
        merge_drawn(frontier.len(), &answers, drawn);
        Ok(())
    }

    fn fetch_features(&self, nodes: &[u64], rows: &mut FetchedRows) -> Result<RowCounts> {
        let form = self.info.rows.ok_or(ClientError::NoRows)?;
        let (cached, by_owner) = match &self.cache {
            None => (Cached::default(), self.by_owner(nodes)?),
            Some(cache) => {
                let (cached, rest, places) = Cached::find(cache, nodes);
                let mut by_owner = self.by_owner(&rest)?;
                by_owner.stand_at(&places);
                (cached, by_owner)
            }
        };
        match form {
            FeatureLayout::Dense => {
                rows.begin_dense(nodes.len(), self.info.dim);
                cached
                    .dense()
                    .for_each(|(place, row)| rows.values[place * row.len()..][..row.len()].copy_from_slice(row));
                self.fetch_dense(&by_owner, rows)?;
            }
            FeatureLayout::Sparse => self.fetch_sparse(&by_owner, &cached, nodes.len(), rows)?,
        }
        Ok(self.count_rows(&by_owner, &cached))
    }

    fn has_edges(&self, pairs: &[(u64, u64)], direction: Direction, found: &mut [bool]) -> Result<()> {
        let destinations: Vec<u64> = pairs.iter().map(|(_, destination)| *destination).collect();
        let by_owner = self.by_owner(&destinations)?;
        type EdgesPart<'a> = (ShardPart<'a>, Vec<(u64, u64)>, Vec<bool>);
        let asked = |part: ShardPart<'_>| part.places.iter().map(|place| pairs[*place as usize]).collect::<Vec<_>>();
        let mut parts: Vec<EdgesPart<'_>> =
            by_owner.parts().map(|part| (part, asked(part), vec![false; part.nodes.len()])).collect();
        self.ask_all(
            parts.iter_mut().map(|(part, pairs, found)| (part.shard, (part.shard, &*pairs, found))),
            |server, (shard, pairs, found)| server.has_edges(shard, pairs, direction, found),
            |sampler, (_, pairs, found)| Ok(sampler.has_edges(pairs, direction, found)?),
        )?;
        for (part, _, answers) in parts {
            part.places.iter().zip(answers).for_each(|(place, answer)| found[*place as usize] = answer);
        }
        Ok(())
    }
}
