//! Samples the neighborhood of some nodes, as a batch for Python.

use kith_client::{ClientError, Digest, FetchedRows, Neighborhood, NeighborhoodMaker, Shards};
use kith_sampler::Fanout;
use pyo3::prelude::*;

use crate::{
    array::{Column, Memory, few, labels_of},
    error::Failed,
    graph::dense_into,
    memory::Labels,
    settings::SampleConfig,
};

/// A batch before Python sees it.
pub(crate) struct MadeBatch {
    step: u64,
    n_id: Column,
    edge_index: Column,
    e_id: Option<Column>,
    edge_weight: Option<Column>,
    edge_attr: Option<Column>,
    x: Option<Column>,
    y: Option<Column>,
    n_nodes: Vec<usize>,
    n_edges: Vec<usize>,
    digest: u64,
    input_id: Option<Column>,
    pairs: Option<Column>,
}

/// One batch.
#[pyclass(frozen, get_all, module = "kith._kith")]
pub(crate) struct Batch {
    /// Its step, over all epochs.
    step: u64,
    /// Ids of its nodes: the seeds, then the others in the order in which they were found.
    n_id: Py<PyAny>,
    /// Sources and destinations of edges, as positions in `n_id`.
    edge_index: Py<PyAny>,
    /// Ids of edges; `None` if the graph has none.
    e_id: Option<Py<PyAny>>,
    /// Weights of edges.
    edge_weight: Option<Py<PyAny>>,
    /// Features of edges.
    edge_attr: Option<Py<PyAny>>,
    /// Features of the nodes.
    x: Option<Py<PyAny>>,
    /// Labels of the nodes.
    y: Option<Py<PyAny>>,
    /// The seeds, then the nodes that each hop found.
    num_sampled_nodes: Vec<usize>,
    /// Edges of each hop.
    num_sampled_edges: Vec<usize>,
    /// Digest of everything drawn.
    digest: String,
    /// Places of the seeds among those of the loader.
    input_id: Option<Py<PyAny>>,
    /// Ends of pairs as positions in `n_id`: see `PairNodes`.
    pairs: Option<Py<PyAny>>,
}

/// Samples neighborhoods.
pub(crate) struct NeighborhoodSampler {
    config: SampleConfig,
    labels: Option<Py<Labels>>,
    pub(crate) fanouts: Vec<Fanout>,
}

impl NeighborhoodSampler {
    pub(crate) fn new(config: SampleConfig, labels: Option<Py<Labels>>) -> Result<NeighborhoodSampler, Failed> {
        Ok(NeighborhoodSampler { fanouts: config.fanouts()?, config, labels })
    }

    /// Seed of all random draws.
    pub(crate) fn seed(&self) -> u64 {
        self.config.seed
    }

    /// The neighborhood of some nodes, which must differ.
    pub(crate) fn make(
        &self,
        shards: &dyn Shards,
        maker: &mut NeighborhoodMaker,
        memory: &Memory,
        step: u64,
        seeds: &[u64],
    ) -> Result<MadeBatch, ClientError> {
        let NeighborhoodSampler { config, labels, fanouts } = self;
        let data = config.edge_data();
        let found = maker.sample(shards, (config.seed, step), fanouts, (config.sampling(), data), seeds)?;
        let x = match config.with_x {
            true => {
                let mut rows = FetchedRows { values: memory.floats.take(), ..FetchedRows::default() };
                shards.fetch_features(&found.nodes, &mut rows)?;
                let (values, dim) = dense_into(rows, found.nodes.len(), Some(&memory.floats));
                Some(memory.float32(values, &[found.nodes.len(), dim]))
            }
            false => None,
        };
        let dim = if data.features { shards.info().edge_dim } else { 0 };
        let (edge_weight, edge_attr) = memory.edge_data(&found.edge_data, data.weights, dim);
        Ok(MadeBatch {
            step,
            n_id: memory.ids(found.nodes.iter().copied()),
            edge_index: memory.edge_index(|ends| {
                ends.extend(found.sources.iter().map(|position| i64::from(*position)));
                ends.extend(found.destinations.iter().map(|position| i64::from(*position)));
            }),
            e_id: data.ids.then(|| memory.ids(found.edge_ids.iter().copied())),
            edge_weight,
            edge_attr,
            x,
            y: labels.as_ref().map(|labels| labels_of(labels.get(), &found.nodes)),
            n_nodes: found.n_nodes.clone(),
            n_edges: found.n_edges.clone(),
            digest: digest_of(step, found),
            input_id: None,
            pairs: None,
        })
    }
}

/// Digest of what was drawn for a batch.
fn digest_of(step: u64, found: &Neighborhood) -> u64 {
    let mut digest = Digest::default();
    digest.add(&[step]);
    digest.add(&found.nodes);
    digest.add_u32(&found.sources);
    digest.add_u32(&found.destinations);
    digest.finish()
}

impl MadeBatch {
    /// Adds the places of the seeds among those of the loader.
    pub(crate) fn put_places(&mut self, places: &[u32]) {
        self.input_id = Some(few(places.iter().map(|place| i64::from(*place)).collect()));
    }

    /// Adds pairs, by the positions of their ends.
    pub(crate) fn put_pairs(&mut self, positions: Vec<i64>) {
        let mut digest = Digest::default();
        digest.add(&[self.digest]);
        digest.add_u32(&positions.iter().map(|position| *position as u32).collect::<Vec<_>>());
        self.digest = digest.finish();
        self.pairs = Some(few(positions));
    }

    /// Puts it into pinned memory, if that is wanted.
    pub(crate) fn pin(&mut self, memory: &Memory) {
        let MadeBatch { n_id, edge_index, e_id, edge_weight, edge_attr, x, y, input_id, pairs, .. } = self;
        let others = [e_id, edge_weight, edge_attr, x, y, input_id, pairs].into_iter().flatten();
        memory.pin([n_id, edge_index].into_iter().chain(others));
    }

    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Batch> {
        let given = |column: Column| column.into_pyobject(py).map(Bound::unbind);
        Ok(Batch {
            step: self.step,
            n_id: given(self.n_id)?,
            edge_index: given(self.edge_index)?,
            e_id: self.e_id.map(given).transpose()?,
            edge_weight: self.edge_weight.map(given).transpose()?,
            edge_attr: self.edge_attr.map(given).transpose()?,
            x: self.x.map(given).transpose()?,
            y: self.y.map(given).transpose()?,
            num_sampled_nodes: self.n_nodes,
            num_sampled_edges: self.n_edges,
            digest: format!("{:016x}", self.digest),
            input_id: self.input_id.map(given).transpose()?,
            pairs: self.pairs.map(given).transpose()?,
        })
    }
}
