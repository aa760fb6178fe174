//! An open graph: a store, a partitioned graph, or sampling servers.

use std::{path::PathBuf, sync::Arc, time::Duration};

use kith_client::{
    FetchedRows, Labels, LocalStore, Seeds, Sharded, Shards, Whereabouts,
    remote::{RemoteConfig, RemoteTls, TokenSource},
};
use kith_store::{Cluster, CutEntry, LabelKind, Manifest, SplitPart};
use pyo3::prelude::*;

use crate::{array::Array, error::Failed};

/// Certificate authority, certificate and key of the client, and name of the server.
type Tls = (PathBuf, Option<(PathBuf, PathBuf)>, Option<String>);

/// A graph, wherever it is.
#[pyclass(frozen, module = "kith._kith")]
pub struct Graph {
    pub(crate) shards: Arc<dyn Shards>,
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
        Ok(py.detach(|| open(folder, servers, remote))?)
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
        let seeds = py.detach(|| self.shards.seeds(split.as_deref(), part)).map_err(Failed::from)?;
        Ok((ids_of(seeds.ids()), labels_of(&seeds)))
    }

    /// Features of nodes, given by their ids as bytes.
    fn features(&self, py: Python<'_>, ids: &[u8]) -> PyResult<Array> {
        let ids = read_ids(ids)?;
        Ok(py.detach(|| features_of(&*self.shards, &ids))?)
    }
}

fn open(folder: Option<PathBuf>, samplers: Vec<String>, remote: RemoteConfig) -> Result<Graph, Failed> {
    let cluster = match &folder {
        None => None,
        Some(dir) => match Manifest::read(dir)?.contents.cut {
            None => {
                let store = kith_store::Graph::open(dir)?;
                return Ok(Graph { shards: Arc::new(LocalStore::new(Arc::new(store))) });
            }
            Some(CutEntry::Cluster(_)) => Some(Arc::new(Cluster::open(dir)?)),
            Some(CutEntry::Shard(_)) => {
                let problem = "one shard of a partitioned graph: open the folder of the partitioned graph";
                return Err(Failed::new(format!("{}: {problem}", dir.display())));
            }
        },
    };
    let whereabouts = Whereabouts { cluster, samplers, remote, ..Whereabouts::default() };
    Ok(Graph { shards: Arc::new(Sharded::find(whereabouts)?) })
}

/// Ids as numpy has them: whole numbers of 64 bits, as bytes.
pub(crate) fn read_ids(bytes: &[u8]) -> Result<Vec<u64>, Failed> {
    let (numbers, []) = bytes.as_chunks::<8>() else { return Err(Failed::new("ids: expected int64 numbers")) };
    let ids = numbers.iter().map(|bytes| u64::try_from(i64::from_le_bytes(*bytes)));
    ids.collect::<Result<_, _>>().map_err(|_| Failed::new("ids: expected numbers from 0, found a negative one"))
}

pub(crate) fn ids_of(ids: &[u64]) -> Array {
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

/// Dense features of nodes.
pub(crate) fn features_of(shards: &dyn Shards, ids: &[u64]) -> Result<Array, Failed> {
    let mut rows = FetchedRows::default();
    shards.fetch_features(ids, &mut rows)?;
    Ok(dense(rows, ids.len()))
}

/// Features as an array, zeros included.
pub(crate) fn dense(rows: FetchedRows, n_rows: usize) -> Array {
    let dim = rows.dim;
    if !rows.is_sparse() {
        return Array::float32(rows.values, &[n_rows, dim]);
    }
    let mut values = vec![0.0; n_rows * dim];
    for (row, bounds) in values.chunks_exact_mut(dim.max(1)).zip(rows.indptr.windows(2)) {
        for place in bounds[0]..bounds[1] {
            row[rows.columns[place] as usize] = rows.values[place];
        }
    }
    Array::float32(values, &[n_rows, dim])
}
