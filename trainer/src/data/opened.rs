//! A graph opened by a command: a store, or a partitioned graph. Only full-batch training needs the store.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    path::Path,
    sync::{Arc, OnceLock},
};

use kith_client::{CacheFacts, Info, LocalStore, RemoteCalls, Sharded, Shards, Whereabouts, remote::OwnIds, session};
use kith_run::graph_size::GraphSize;
use kith_store::{Cluster, Graph, Ids, Verify};

use crate::error::TrainError;

/// An open graph.
#[derive(Clone)]
pub struct Opened {
    shards: Arc<dyn Shards>,
    store: Option<Arc<Graph>>,
    cluster: Option<Arc<Cluster>>,
    /// Source of the users' node ids if no file has them; `sent_ids` caches the answer.
    sharded: Option<Arc<Sharded>>,
    sent_ids: Arc<OnceLock<Option<OwnIds>>>,
}

impl Opened {
    /// A store.
    pub fn store(store: Arc<Graph>) -> Opened {
        let shards = Arc::new(LocalStore::new(Arc::clone(&store)));
        Opened { shards, store: Some(store), cluster: None, sharded: None, sent_ids: Arc::default() }
    }

    /// The folder of a store, whose blocks are compared with their checksums when they are first read.
    pub fn open_store(dir: &Path) -> Result<Opened, TrainError> {
        Opened::open_store_with(dir, Verify::default())
    }

    /// [`Opened::open_store`], with checksums compared when `verify` says.
    pub fn open_store_with(dir: &Path, verify: Verify) -> Result<Opened, TrainError> {
        Ok(Opened::store(Arc::new(Graph::open_with(dir, verify)?)))
    }

    /// A cluster, in its folder or behind servers.
    pub fn find(whereabouts: Whereabouts) -> Result<Opened, TrainError> {
        let cluster = whereabouts.cluster.clone();
        let sharded = Arc::new(Sharded::find(whereabouts)?);
        let shards = Arc::clone(&sharded) as Arc<dyn Shards>;
        Ok(Opened { shards, store: None, cluster, sharded: Some(sharded), sent_ids: Arc::default() })
    }

    /// Servers that were named and gave no answer, where others have their shards.
    pub fn silent_servers(&self) -> &[String] {
        self.sharded.as_ref().map_or(&[], |sharded| sharded.silent())
    }

    /// Calls to sampling servers, if it is a partitioned graph.
    pub fn calls(&self) -> Option<RemoteCalls> {
        self.sharded.as_ref().map(|sharded| sharded.calls())
    }

    /// Facts about the cache of remote features; `None` without one.
    pub fn cache(&self) -> Option<CacheFacts> {
        self.sharded.as_ref().and_then(|sharded| sharded.cache())
    }

    /// Source of neighbors, features and labels.
    pub fn shards(&self) -> &Arc<dyn Shards> {
        &self.shards
    }

    /// Sizes that decide how it can be trained.
    pub fn size(&self) -> GraphSize {
        let info = self.info();
        GraphSize {
            n_nodes: info.n_nodes,
            n_edges: info.n_edges,
            dim: info.dim as u64,
            n_classes: info.n_classes as u64,
            is_partitioned: self.whole().is_err(),
        }
    }

    /// Properties of the graph.
    pub fn info(&self) -> &Info {
        self.shards.info()
    }

    /// Origin of the graph.
    pub fn source(&self) -> Source {
        let has_servers = self.sharded.as_ref().is_some_and(|sharded| sharded.has_servers());
        Source { session: has_servers.then(session), ..Source::of(self.info()) }
    }

    /// The whole store, for those who cannot do without.
    pub fn whole(&self) -> Result<&Arc<Graph>, TrainError> {
        self.store.as_ref().ok_or(TrainError::NeedsStore)
    }

    /// The user's id of a node; its number if it has no other id.
    pub fn id_of(&self, node: u64) -> Result<Cow<'_, str>, TrainError> {
        match (self.ids(), &self.sharded) {
            (Some(ids), _) => Ok(ids.of(node)?),
            (None, Some(servers)) if self.cluster.is_none() => match self.sent_ids(servers)? {
                Some(ids) => Ok(ids.of(node)),
                None => Ok(node.to_string().into()),
            },
            (None, _) => Ok(node.to_string().into()),
        }
    }

    /// Refuses graphs that link prediction is not for.
    pub(crate) fn check_for_links(&self) -> Result<(), TrainError> {
        let Info { n_nodes, is_set, .. } = *self.info();
        match u32::try_from(n_nodes) {
            _ if is_set => Err(TrainError::LinksOfSet),
            Ok(_) => Ok(()),
            Err(_) => Err(TrainError::LinksOfLarge { n: n_nodes, what: "nodes" }),
        }
    }

    /// Nodes by the user's ids; ids that no node has are missing.
    pub(crate) fn find_nodes<'t>(
        &self,
        ids: impl Iterator<Item = &'t str>,
    ) -> Result<HashMap<&'t str, u64>, TrainError> {
        let n_nodes = self.info().n_nodes;
        if self.has_no_ids()? {
            let node = |id: &'t str| id.parse().ok().filter(|node: &u64| *node < n_nodes && node.to_string() == id);
            return Ok(ids.filter_map(|id| Some((id, node(id)?))).collect());
        }
        let wanted: HashSet<&str> = ids.collect();
        let mut found = HashMap::new();
        for node in 0..n_nodes {
            if let Some(id) = wanted.get(&*self.id_of(node)?) {
                found.insert(*id, node);
            }
        }
        Ok(found)
    }

    /// True if the ids of nodes are their numbers.
    fn has_no_ids(&self) -> Result<bool, TrainError> {
        match (self.ids(), &self.sharded) {
            (Some(_), _) => Ok(false),
            (None, Some(servers)) if self.cluster.is_none() => Ok(self.sent_ids(servers)?.is_none()),
            (None, _) => Ok(true),
        }
    }

    fn sent_ids(&self, servers: &Sharded) -> Result<Option<&OwnIds>, TrainError> {
        if self.sent_ids.get().is_none() {
            let sent = servers.own_ids()?;
            return Ok(self.sent_ids.get_or_init(|| sent).as_ref());
        }
        Ok(self.sent_ids.get().and_then(Option::as_ref))
    }

    fn ids(&self) -> Option<&Ids> {
        let of_store = self.store.as_ref().and_then(|store| store.ids());
        of_store.or_else(|| self.cluster.as_ref().and_then(|cluster| cluster.ids()))
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("info", self.info()).finish_non_exhaustive()
    }
}

/// Origin of a run's graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The dataset or generator that the store was made from.
    pub dataset: String,
    /// Identity of the store.
    pub digest: String,
    /// Name of this process at sampling servers, if they have the graph.
    pub session: Option<&'static str>,
}

impl Source {
    /// Origin of an open graph.
    pub fn of(info: &Info) -> Source {
        let dataset = match info.source.split_once(" (").map_or(info.source.as_str(), |(name, _)| name) {
            // Graphs that are made are called what the command that makes them calls them.
            "random partition graph" => "partition-graph",
            "power-law graph" => "power-law",
            name => name,
        };
        Source { dataset: dataset.to_owned(), digest: info.digest.clone(), session: None }
    }
}
