//! Store opened in this process.

use std::sync::Arc;

use kith_sampler::{Direction, Drawn, Frontier, Hop, KnownLoops, SampledGraph, Seeds, has_edges, sample_hop};
use kith_store::{Dtype, Features, Graph, Neighbors, SplitPart};
use rayon::prelude::*;

use crate::{
    error::{ClientError, Result},
    rows::FetchedRows,
    shards::{Info, RowCounts, Shards},
};

/// Nodes whose features a thread copies at a time.
const N_TOGETHER: usize = 4096;

/// A whole store, mapped into this process.
#[derive(Clone, Debug)]
pub struct LocalStore {
    graph: Arc<Graph>,
    loops: Arc<KnownLoops>,
    info: Info,
}

impl LocalStore {
    /// Answers from an open store.
    pub fn new(graph: Arc<Graph>) -> LocalStore {
        let info = Info::new(graph.manifest().identity(), graph.manifest());
        graph.read_randomly();
        LocalStore { loops: Arc::new(KnownLoops::new(info.n_nodes)), graph, info }
    }

    /// The store.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// The store with what is known of its loops.
    pub fn sampled(&self) -> SampledGraph<'_> {
        SampledGraph::of_store(&self.graph, &self.loops)
    }
}

impl Shards for LocalStore {
    fn info(&self) -> &Info {
        &self.info
    }

    fn lists(&self) -> Result<Option<(&[u64], &[u32])>> {
        let lists = self.graph.lists();
        // Ids of 64 bits are not read at all.
        let Neighbors::Narrow(_) = lists.indices() else { return Ok(None) };
        let indptr = lists.indptr()?;
        let Neighbors::Narrow(sources) = lists.all()? else { return Ok(None) };
        Ok(Some((indptr, sources)))
    }

    fn edge_weights(&self) -> Result<Option<&[f32]>> {
        let Some(weights) = self.graph.edge_weights() else { return Ok(None) };
        Ok(Some(weights.get(0, self.graph.n_edges() as usize)?))
    }

    fn stored_type(&self) -> Option<Dtype> {
        self.graph.features().and_then(Features::dense_type)
    }

    fn read_stored(&self, first: u64, to: &mut [u8]) -> Result<()> {
        let rows = self.graph.features().ok_or(ClientError::NoRows)?;
        let parts = to.par_chunks_mut(N_TOGETHER * rows.row_bytes()).enumerate();
        parts.try_for_each(|(part, to)| Ok(rows.copy_dense(first + (part * N_TOGETHER) as u64, to)?))
    }

    fn seeds(&self, split: Option<&str>, part: SplitPart) -> Result<Seeds> {
        Ok(Seeds::of_store(&self.graph, split, part)?)
    }

    fn sample_hop(&self, hop: &Hop, frontier: &[u64], drawn: &mut Drawn) -> Result<()> {
        Ok(sample_hop(self.sampled(), hop, Frontier::of_store(frontier), drawn)?)
    }

    fn fetch_features(&self, nodes: &[u64], rows: &mut FetchedRows) -> Result<RowCounts> {
        let stored = self.graph.features().ok_or(ClientError::NoRows)?;
        rows.gather(stored, nodes)?;
        Ok(RowCounts { local: nodes.len() as u64, ..RowCounts::default() })
    }

    fn has_edges(&self, pairs: &[(u64, u64)], direction: Direction, found: &mut [bool]) -> Result<()> {
        Ok(has_edges(self.sampled(), pairs, direction, found)?)
    }
}
