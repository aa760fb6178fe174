//! Link prediction in mini-batches: edges of a store, wherever it is, are held out and predicted.

use std::sync::Arc;

use kith_client::{EdgeOrder, HeldOut, LinkBatches, LinkNegatives, Shards, WithoutHeldOut};
use kith_run::config::{self, LinksConfig};
use kith_sampler::{Drawn, EdgeData};

use crate::{
    data::{
        all_neighbors::ask_all_neighbors, edge_split::EdgeSplit, exact_ranking::ExactRanking, given_pairs::GivenPairs,
        link_pairs::LinkPairs, opened::Opened,
    },
    error::TrainError,
};

/// Pairs of a store that a run is trained on and evaluated by. Nodes are named by their ids.
#[derive(Clone, Debug)]
pub struct BatchLinks {
    /// Edges that the loss predicts, in drawn order.
    pub(crate) targets: Arc<Vec<(u32, u32)>>,
    pub(crate) valid: LinkPairs,
    pub(crate) test: LinkPairs,
    /// Width of a node's output.
    pub(crate) dim: usize,
    /// Pairs of mini-batches.
    pub(crate) batches: LinkBatches,
    /// Ranks among all nodes; `None` for ranks among the pairs.
    pub(crate) ranking: Option<Arc<ExactRanking>>,
    n_nodes: u64,
    /// SHA-256 of the file of pairs; `None` for drawn pairs.
    pub(crate) pairs_digest: Option<String>,
}

/// Nodes whose neighbors are asked for together.
const N_TOGETHER: u64 = 1 << 13;

impl BatchLinks {
    /// Holds out edges of a graph, as full-batch training does: the graph that messages travel along, and the pairs.
    pub(crate) fn load(
        opened: &Opened,
        config: &LinksConfig,
        run_key: u64,
    ) -> Result<(Arc<dyn Shards>, BatchLinks), TrainError> {
        let shards = opened.shards();
        opened.check_for_links()?;
        let given = GivenPairs::of(config, opened)?;
        let n_nodes = shards.info().n_nodes;
        let mut split = EdgeSplit::new(undirected(&**shards)?, n_nodes, (config, given.as_ref()), run_key)?;
        let (n_disjoint, n_targets) = split.n_targets(config)?;
        let order = EdgeOrder::new(run_key);
        let key = |place: usize| {
            let (a, b) = split.train[place]; // Message passing keeps at least one.
            Some(order.key(a.into(), b.into()))
        };
        // Training edges follow those that were drawn for validation and test.
        let (known, messages) = match given {
            None => (key(0), key(n_disjoint)),
            Some(_) if n_disjoint == 0 => (None, None),
            Some(_) => (None, key(n_disjoint)),
        };
        let pairs = given.iter().flat_map(GivenPairs::held_out).map(|(a, b)| (a.into(), b.into()));
        let pairs = Arc::new(pairs.collect());
        let without = |before| -> Arc<dyn Shards> {
            let held_out = HeldOut { order, before, given: Arc::clone(&pairs) };
            Arc::new(WithoutHeldOut::new(Arc::clone(shards), held_out))
        };
        let batches = LinkBatches {
            known: without(known),
            neg_sample_ratio: config.neg_sample_ratio,
            negatives: match config.negatives {
                config::LinkNegatives::Uniform => LinkNegatives::Uniform,
                config::LinkNegatives::InBatch => LinkNegatives::InBatch,
            },
            excludes_targets: config.exclude_targets.unwrap_or(true),
        };
        let graph = without(messages);
        let (valid, test) = split.pairs();
        split.train.truncate(n_targets);
        let targets = Arc::new(split.train);
        let pairs_digest = given.map(|given| given.digest);
        let (dim, ranking) = (config.dim, split.ranking);
        Ok((graph, BatchLinks { targets, valid, test, dim, batches, ranking, n_nodes, pairs_digest }))
    }

    /// Nodes that an evaluation needs: those of validation and test pairs, or all.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = u64> {
        let all = 0..self.ranking.as_ref().map_or(0, |_| self.n_nodes);
        all.chain(self.ends())
    }

    fn ends(&self) -> impl Iterator<Item = u64> {
        [&self.valid, &self.test].into_iter().flat_map(LinkPairs::ends).map(u64::from)
    }
}

/// Pairs of different nodes with an edge in at least one direction, ascending, the smaller id first.
fn undirected(shards: &dyn Shards) -> Result<Vec<(u32, u32)>, TrainError> {
    let n_nodes = shards.info().n_nodes;
    let mut pairs = Vec::new();
    let mut drawn = Drawn::default();
    for first in (0..n_nodes).step_by(N_TOGETHER as usize) {
        let nodes: Vec<u64> = (first..n_nodes.min(first + N_TOGETHER)).collect();
        ask_all_neighbors(shards, &nodes, EdgeData::NONE, &mut drawn)?;
        let mut sources = drawn.neighbors.iter();
        for (node, count) in nodes.iter().zip(&drawn.counts) {
            for source in sources.by_ref().take(*count as usize) {
                // A symmetric graph has every pair twice.
                if source < *node || (source > *node && !shards.info().is_symmetric) {
                    pairs.push((source.min(*node) as u32, source.max(*node) as u32));
                }
            }
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    match u32::try_from(pairs.len()) {
        Ok(_) => Ok(pairs),
        Err(_) => Err(TrainError::LinksOfLarge { n: pairs.len() as u64, what: "edges" }),
    }
}
