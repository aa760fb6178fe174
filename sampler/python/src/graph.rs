//! An open graph: a store, a partitioned graph, or sampling servers.

use std::{mem, path::PathBuf, process, sync::Arc, time::Duration};

use kith_client::{
    FetchedRows, Labels, LocalStore, Seeds, Sharded, Shards, Whereabouts,
    remote::{RemoteConfig, RemoteTls, TokenSource},
};
use kith_store::{Cluster, CutEntry, LabelKind, Manifest, SplitPart};
use pyo3::prelude::*;

use crate::{
    array::Array,
    error::Failed,
    memory::{Borrowed, Shelf},
    waiting::wait_for,
};

/// Certificate authority, certificate and key of the client, and name of the server.
type Tls = (PathBuf, Option<(PathBuf, PathBuf)>, Option<String>);

/// A graph, wherever it is.
#[pyclass(frozen, module = "kith._kith")]
pub struct Graph {
    pub(crate) shards: Arc<dyn Shards>,
    /// The store, if it is one.
    store: Option<Arc<kith_store::Graph>>,
    opened_by: u32,
}

impl Drop for Graph {
    /// In a fork, threads that talk to servers are not there: nobody can wait for them.
    fn drop(&mut self) {
        if self.opened_by != process::id() {
            mem::forget(Arc::clone(&self.shards));
        }
    }
}

#[pymethods]
impl Graph {
    /// Opens a folder with a store or a partitioned graph, or servers, or both.
    #[new]
    fn new(
        py: Python<'_>,
        folder: Option<PathBuf>,
        servers: Vec<String>,
        timeout: f64,
        token: (Option<PathBuf>, Option<String>),
        tls: Option<Tls>,
    ) -> PyResult<Graph> {
        let tls = tls.map(|(ca, identity, server_name)| RemoteTls { ca, identity, server_name });
        let token = match token {
            (Some(path), _) => Some(TokenSource::File(path)),
            (None, Some(token)) => Some(TokenSource::Text { origin: "KITH_SAMPLER_TOKEN", token: token.into() }),
            (None, None) => None,
        };
        let max_call = Duration::try_from_secs_f64(timeout).map_err(|_| Failed::new("timeout: expected seconds"))?;
        let usual = RemoteConfig::default();
        let max_silence = usual.max_silence.min(max_call / 3);
        let remote = RemoteConfig { max_call, max_silence, tls, token, ..usual };
        wait_for(py, move || open(folder, servers, remote))
    }

    /// Number of nodes.
    #[getter]
    fn n_nodes(&self) -> u64 {
        self.shards.info().n_nodes
    }

    /// Number of directed edges.
    #[getter]
    fn n_edges(&self) -> u64 {
        self.shards.info().n_edges
    }

    /// Length of a feature vector.
    #[getter]
    fn dim(&self) -> usize {
        self.shards.info().dim
    }

    /// Number of classes, or targets of a node.
    #[getter]
    fn n_classes(&self) -> usize {
        self.shards.info().n_classes
    }

    /// Kind of the labels: classes, multi-label or targets.
    #[getter]
    fn label_kind(&self) -> &'static str {
        match self.shards.info().labels {
            LabelKind::Classes => "classes",
            LabelKind::MultiLabel => "multi-label",
            LabelKind::Targets => "targets",
        }
    }

    /// True if every edge has its reverse.
    #[getter]
    fn is_symmetric(&self) -> bool {
        self.shards.info().is_symmetric
    }

    /// True if edges have weights.
    #[getter]
    fn has_edge_weights(&self) -> bool {
        self.shards.info().has_edge_weights
    }

    /// Length of an edge's feature vector.
    #[getter]
    fn edge_dim(&self) -> usize {
        self.shards.info().edge_dim
    }

    /// Names of the splits; the first is the default.
    #[getter]
    fn splits(&self) -> Vec<String> {
        self.shards.info().splits.clone()
    }

    /// True if it is a store, whose edges have ids.
    #[getter]
    fn is_store(&self) -> bool {
        self.store.is_some()
    }

    /// Identity of the store.
    #[getter]
    fn digest(&self) -> String {
        self.shards.info().digest.clone()
    }

    /// The nodes of a part of a split, ascending, and their labels.
    fn seeds(&self, py: Python<'_>, split: Option<String>, part: &str) -> PyResult<(Array, Array)> {
        let part = match part {
            "train" => SplitPart::Train,
            "valid" => SplitPart::Valid,
            "test" => SplitPart::Test,
            "none" => SplitPart::None,
            other => {
                let problem = format!("part: expected train, valid, test or none, found {other}");
                return Err(Failed::new(problem).into());
            }
        };
        let shards = Arc::clone(&self.shards);
        let seeds = wait_for(py, move || Ok(shards.seeds(split.as_deref(), part)?))?;
        Ok((ids_of(seeds.ids()), labels_of(&seeds)))
    }

    /// Features of nodes, by their ids.
    fn features(&self, py: Python<'_>, ids: &Bound<'_, PyAny>) -> PyResult<Array> {
        let ids = ids_of_numbers(Borrowed::of(ids, "nodes")?.numbers(), "nodes")?;
        let shards = Arc::clone(&self.shards);
        wait_for(py, move || {
            let mut rows = FetchedRows::default();
            shards.fetch_features(&ids, &mut rows)?;
            let (values, dim) = dense_into(rows, ids.len(), None);
            Ok(Array::float32(values, &[ids.len(), dim]))
        })
    }

    /// Sources and destinations of all edges of a store, by id.
    fn edge_index(&self, py: Python<'_>) -> PyResult<Array> {
        let Some(store) = self.store.clone() else {
            return Err(Failed::new("edge_index: expected a store: open it instead of its shards").into());
        };
        wait_for(py, move || {
            let lists = store.lists();
            let (indptr, sources, n_edges) = (lists.indptr()?, lists.all()?, store.n_edges() as usize);
            let mut ends = Vec::with_capacity(2 * n_edges);
            ends.extend(sources.iter().map(|source| source as i64));
            for (node, bounds) in (0..).zip(indptr.windows(2)) {
                ends.extend(std::iter::repeat_n(node, (bounds[1] - bounds[0]) as usize));
            }
            Ok(Array::int64(ends, &[2, n_edges]))
        })
    }

    /// Labels of all nodes of a store; `None` if it is no store, or has none.
    fn labels(&self, py: Python<'_>) -> PyResult<Option<Array>> {
        let Some(store) = self.store.clone() else { return Ok(None) };
        wait_for(py, move || labels_of_store(&store))
    }
}

fn open(folder: Option<PathBuf>, samplers: Vec<String>, remote: RemoteConfig) -> Result<Graph, Failed> {
    let cluster = match &folder {
        None => None,
        Some(dir) => match Manifest::read(dir)?.contents.cut {
            None => {
                let store = kith_store::Graph::open(dir)?;
                let store = Arc::new(store);
                let shards = Arc::new(LocalStore::new(Arc::clone(&store)));
                return Ok(Graph { shards, store: Some(store), opened_by: process::id() });
            }
            Some(CutEntry::Cluster(_)) => Some(Arc::new(Cluster::open(dir)?)),
            Some(CutEntry::Shard(_)) => {
                let problem = "one shard of a partitioned graph: open the folder of the partitioned graph";
                return Err(Failed::new(format!("{}: {problem}", dir.display())));
            }
        },
    };
    let whereabouts = Whereabouts { cluster, samplers, remote, ..Whereabouts::default() };
    Ok(Graph { shards: Arc::new(Sharded::find(whereabouts)?), store: None, opened_by: process::id() })
}

/// Ids as numpy has them.
pub(crate) fn ids_of_numbers(numbers: &[i64], name: &str) -> Result<Vec<u64>, Failed> {
    let id = |number: &i64| {
        u64::try_from(*number).map_err(|_| Failed::new(format!("{name}: expected ids from 0, found {number}")))
    };
    numbers.iter().map(id).collect()
}

fn ids_of(ids: &[u64]) -> Array {
    Array::int64(ids.iter().map(|id| *id as i64).collect(), &[ids.len()])
}

fn labels_of(seeds: &Seeds) -> Array {
    match seeds.labels() {
        Labels::Classes(classes) => Array::int64(classes.clone(), &[classes.len()]),
        Labels::Bits { n_classes, bits } => {
            let numbers = bits.iter().map(|bit| f32::from(u8::from(*bit))).collect();
            Array::float32(numbers, &[seeds.len(), *n_classes])
        }
        Labels::Numbers { width, values } => Array::float32(values.clone(), &[seeds.len(), *width]),
    }
}

fn labels_of_store(store: &kith_store::Graph) -> Result<Option<Array>, Failed> {
    let Some(labels) = store.labels() else { return Ok(None) };
    let (n_nodes, width) = (store.n_nodes(), labels.n_classes() as usize);
    let shape = [n_nodes as usize, width];
    Ok(Some(match labels.kind() {
        LabelKind::Classes => {
            let class = |node| Ok(labels.class(node)?.map_or(-1, i64::from));
            Array::int64((0..n_nodes).map(class).collect::<Result<_, Failed>>()?, &shape[..1])
        }
        LabelKind::MultiLabel => {
            let mut numbers = Vec::with_capacity(shape[0] * width);
            for node in 0..n_nodes {
                let words = labels.bits(node)?;
                numbers.extend((0..width).map(|class| (words[class / 64] >> (class % 64) & 1) as f32));
            }
            Array::float32(numbers, &shape)
        }
        LabelKind::Targets => {
            let mut numbers = Vec::with_capacity(shape[0] * width);
            for node in 0..n_nodes {
                numbers.extend_from_slice(labels.numbers(node)?);
            }
            Array::float32(numbers, &shape)
        }
    }))
}

/// Features in one piece, zeros included, and their length. Vectors come from the shelf, and go back to it.
pub(crate) fn dense_into(rows: FetchedRows, n_rows: usize, shelf: Option<&Shelf<f32>>) -> (Vec<f32>, usize) {
    let dim = rows.dim;
    if !rows.is_sparse() {
        return (rows.values, dim);
    }
    let mut values = shelf.map(Shelf::take).unwrap_or_default();
    values.clear();
    values.resize(n_rows * dim, 0.0);
    for (row, bounds) in values.chunks_exact_mut(dim.max(1)).zip(rows.indptr.windows(2)) {
        for place in bounds[0]..bounds[1] {
            row[rows.columns[place] as usize] = rows.values[place];
        }
    }
    shelf.inspect(|shelf| shelf.put(rows.values));
    (values, dim)
}
