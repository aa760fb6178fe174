//! A store in this process.

use std::sync::Arc;

use kith_sampler::{Direction, Drawn, Hop, KnownLoops, SampledGraph, has_edges, sample_hop};
use kith_store::{Graph, SplitPart};

use crate::{
    error::{ClientError, Result},
    rows::FetchedRows,
    seeds::{Labels, Seeds},
    shards::{Info, Shards},
};

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
        let info = Info {
            digest: graph.manifest().digest.clone(),
            n_nodes: graph.n_nodes(),
            n_edges: graph.n_edges(),
            is_symmetric: graph.is_symmetric(),
            dim: graph.rows().map_or(0, |rows| rows.dim()),
            rows: graph.rows().map(|rows| rows.form()),
            n_classes: graph.labels().map_or(0, |labels| labels.n_classes() as usize),
            is_multi_label: graph.labels().is_some_and(|labels| labels.is_multi_label()),
        };
        LocalStore { loops: Arc::new(KnownLoops::new(info.n_nodes)), graph, info }
    }

    /// The store.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// The store with what is known of its loops.
    pub fn sampled(&self) -> SampledGraph<'_> {
        SampledGraph { graph: &self.graph, loops: &self.loops }
    }
}

impl Shards for LocalStore {
    fn info(&self) -> &Info {
        &self.info
    }

    fn seeds(&self, split: Option<&str>, part: SplitPart) -> Result<Seeds> {
        let splits = self.graph.splits();
        let first = splits.first().ok_or(ClientError::NoSplit)?;
        let split = match split {
            None => first,
            Some(name) => {
                splits.iter().find(|split| split.name() == name).ok_or_else(|| ClientError::UnknownSplit {
                    name: name.to_owned(),
                    available: splits.iter().map(|split| split.name().to_owned()).collect(),
                })?
            }
        };
        let labels = self.graph.labels().ok_or(ClientError::NoLabels)?;
        let n_classes = self.info.n_classes;
        let mut ids = Vec::new();
        let (mut classes, mut bits) = (Vec::new(), Vec::new());
        for node in 0..self.info.n_nodes {
            if split.part(node)? != part {
                continue;
            }
            if self.info.is_multi_label {
                let words = labels.bits(node)?;
                bits.extend((0..n_classes).map(|class| words[class / 64] >> (class % 64) & 1 == 1));
            } else {
                match labels.class(node)? {
                    Some(class) => classes.push(i64::from(class)),
                    None if part == SplitPart::None => continue,
                    None => return Err(ClientError::Unlabeled { node }),
                }
            }
            ids.push(node);
        }
        let labels = if self.info.is_multi_label { Labels::Bits { n_classes, bits } } else { Labels::Classes(classes) };
        Seeds::new(ids, labels)
    }

    fn sample_hop(&self, hop: &Hop, frontier: &[u64], drawn: &mut Drawn) -> Result<()> {
        Ok(sample_hop(self.sampled(), hop, frontier, drawn)?)
    }

    fn fetch_rows(&self, nodes: &[u64], rows: &mut FetchedRows) -> Result<()> {
        let stored = self.graph.rows().ok_or(ClientError::NoRows)?;
        rows.gather(stored, nodes)
    }

    fn has_edges(&self, pairs: &[(u64, u64)], direction: Direction, found: &mut [bool]) -> Result<()> {
        Ok(has_edges(&self.graph, pairs, direction, found)?)
    }
}
