//! Division of a graph's edges into training, validation and test, for link prediction.

use std::{collections::HashSet, sync::Arc};

use kith_client::{EdgeOrder, NON_EDGES};
use kith_draw::{Name, Purpose, Stream};
use kith_run::config::{LinkRanking, LinksConfig};

use crate::{
    data::{exact_ranking::ExactRanking, given_pairs::GivenPairs, link_pairs::LinkPairs},
    error::TrainError,
};

/// Edges of a graph by part. An edge is a pair of nodes without direction, the smaller position first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EdgeSplit {
    pub(crate) valid: Vec<(u32, u32)>,
    pub(crate) test: Vec<(u32, u32)>,
    /// In drawn order.
    pub(crate) train: Vec<(u32, u32)>,
    valid_others: Vec<(u32, u32)>,
    test_others: Vec<(u32, u32)>,
    /// For evaluations by exact ranks.
    pub(crate) ranking: Option<Arc<ExactRanking>>,
}

impl EdgeSplit {
    /// Divides all edges of a graph, ascending, by the config of the run.
    pub(crate) fn new(
        edges: Vec<(u32, u32)>,
        n_nodes: u64,
        (config, given): (&LinksConfig, Option<&GivenPairs>),
        run_key: u64,
    ) -> Result<EdgeSplit, TrainError> {
        let mut split = match given {
            Some(given) => EdgeSplit::given(edges, given, run_key)?,
            None => EdgeSplit::draw(edges, n_nodes, (config.valid, config.test), run_key),
        };
        if config.ranking == LinkRanking::Exact {
            let held_out = split.valid.iter().chain(&split.test).copied();
            split.ranking = Some(Arc::new(ExactRanking::new(&split.train, held_out)));
        } else if [(&split.valid, &split.valid_others), (&split.test, &split.test_others)]
            .iter()
            .any(|(edges, others)| !edges.is_empty() && others.is_empty())
        {
            return Err(TrainError::NoNonEdges);
        }
        Ok(split)
    }

    /// Draws fractions for validation and test, and as many pairs without an edge.
    pub(crate) fn draw(mut edges: Vec<(u32, u32)>, n_nodes: u64, (valid, test): (f64, f64), run_key: u64) -> EdgeSplit {
        let share = |share: f64| (edges.len() as f64 * share) as usize;
        let (n_valid, n_test) = (share(valid), share(test));
        let stream = Name { run_key, purpose: Purpose::Split, step: 0, layer: NON_EDGES }.stream();
        let mut valid_others = non_edges(&edges, n_nodes, stream, n_valid + n_test);
        let test_others = valid_others.split_off(n_valid.min(valid_others.len()));
        put_in_order(&mut edges, run_key);
        let train = edges.split_off(n_valid + n_test);
        let test = edges.split_off(n_valid);
        EdgeSplit { valid: edges, test, train, valid_others, test_others, ranking: None }
    }

    fn given(mut edges: Vec<(u32, u32)>, given: &GivenPairs, run_key: u64) -> Result<EdgeSplit, TrainError> {
        given.check(&edges)?;
        let held_out: HashSet<(u32, u32)> = given.held_out().collect();
        edges.retain(|edge| !held_out.contains(edge));
        put_in_order(&mut edges, run_key);
        let [valid, valid_others, test, test_others] = given.parts();
        Ok(EdgeSplit { valid, test, train: edges, valid_others, test_others, ranking: None })
    }

    /// Edges of validation and test.
    pub(crate) fn held_out(&self) -> impl Iterator<Item = (u32, u32)> {
        self.valid.iter().chain(&self.test).copied()
    }

    /// Training edges that are only predicted, and those that are predicted at all: the first ones.
    pub(crate) fn n_targets(&self, config: &LinksConfig) -> Result<(usize, usize), TrainError> {
        let n_disjoint = (self.train.len() as f64 * config.disjoint_train_ratio) as usize;
        let n_targets = if config.disjoint_train_ratio > 0.0 { n_disjoint } else { self.train.len() };
        if self.valid.is_empty() || self.test.is_empty() || n_targets == 0 {
            let n_edges = self.valid.len() + self.test.len() + self.train.len();
            return Err(TrainError::Links { n_edges });
        }
        Ok((n_disjoint, n_targets))
    }

    /// Pairs of validation and of test, each once.
    pub(crate) fn pairs(&self) -> (LinkPairs, LinkPairs) {
        (LinkPairs::once(&self.valid, &self.valid_others), LinkPairs::once(&self.test, &self.test_others))
    }

    /// The same, each in both directions.
    pub(crate) fn pairs_both_ways(&self) -> (LinkPairs, LinkPairs) {
        (LinkPairs::both_ways(&self.valid, &self.valid_others), LinkPairs::both_ways(&self.test, &self.test_others))
    }
}

fn put_in_order(edges: &mut Vec<(u32, u32)>, run_key: u64) {
    let order = EdgeOrder::new(run_key);
    let draw = |(a, b): (u32, u32)| (order.key(a.into(), b.into()).0, (a, b));
    let mut drawn: Vec<(u64, (u32, u32))> = edges.iter().copied().map(draw).collect();
    drawn.sort_unstable();
    edges.clear();
    edges.extend(drawn.into_iter().map(|(_, edge)| edge));
}

/// Pairs without an edge, all different; fewer where the graph hardly has any. `edges` ascend.
fn non_edges(edges: &[(u32, u32)], n_nodes: u64, stream: Stream, n: usize) -> Vec<(u32, u32)> {
    const MOST: u16 = 1000;
    let mut seen = HashSet::with_capacity(n);
    let mut draw = |index: u64| {
        (0..MOST).find_map(|attempt| {
            let mut draws = stream.draws(index, 0, attempt);
            let (a, b) = (draws.below(n_nodes) as u32, draws.below(n_nodes) as u32);
            let pair = (a.min(b), a.max(b));
            let is_free = a != b && edges.binary_search(&pair).is_err() && seen.insert(pair);
            is_free.then_some(pair)
        })
    };
    (0..n as u64).map_while(&mut draw).collect()
}
