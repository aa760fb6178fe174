//! Adjacency to sample from: a whole store's or a shard's.

use kith_store::{EdgeWeights, Features, Graph, Lists, Shard};

use crate::loops::KnownLoops;

/// Lists by row, and what is known of their loops.
#[derive(Clone, Copy, Debug)]
pub struct SampledGraph<'a> {
    /// For each row its sources.
    pub lists: &'a Lists,
    /// Weights of the edges of `lists`, if they have some.
    pub edge_weights: Option<&'a EdgeWeights>,
    /// Features of the edges of `lists`, if they have some.
    pub edge_features: Option<&'a Features>,
    /// For each row its destinations, unless the graph is symmetric.
    pub out_lists: Option<&'a Lists>,
    /// Of all rows; what is learned here makes the next hop faster and changes nothing else.
    pub loops: &'a KnownLoops,
}

impl<'a> SampledGraph<'a> {
    /// A whole store: rows are nodes.
    pub fn of_store(graph: &'a Graph, loops: &'a KnownLoops) -> SampledGraph<'a> {
        let out_lists = (!graph.is_symmetric()).then(|| graph.out_lists());
        let (edge_weights, edge_features) = (graph.edge_weights(), graph.edge_features());
        SampledGraph { lists: graph.lists(), edge_weights, edge_features, out_lists, loops }
    }

    /// A shard: rows are places among the owned nodes.
    pub fn of_shard(shard: &'a Shard, loops: &'a KnownLoops) -> SampledGraph<'a> {
        let out_lists = (!shard.is_symmetric()).then(|| shard.out_lists());
        let (edge_weights, edge_features) = (shard.edge_weights(), shard.edge_features());
        SampledGraph { lists: shard.lists(), edge_weights, edge_features, out_lists, loops }
    }
}
