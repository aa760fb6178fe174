//! Facts about a graph that inference needs before the first layer.

use std::sync::Arc;

use kith_client::{Seeds, Shards};
use kith_sampler::EdgeData;

use super::{
    chunks::{Chunks, for_each_chunk},
    nodes::NodeNumbers,
    room::Room,
};
use crate::{
    distributed::world::World,
    error::TrainError,
    inference::receptive::{NodeSet, ReceptiveSets},
    model::{Model, OutDegrees},
};

/// Facts about a graph that inference needs before the first layer. They do not change: evaluations share them.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(super) sets: ReceptiveSets,
    /// For models that need them.
    pub(super) out_degrees: Option<OutDegrees>,
    /// Training nodes, whose labels are input of some models.
    pub(super) train: Option<Arc<Seeds>>,
    /// Probabilities of all nodes, by id, that are label input of the others.
    pub(super) reused: Option<Arc<NodeNumbers>>,
}

impl Prepared {
    /// For the outputs of the first `n_layers` layers on all nodes.
    pub(crate) fn all(
        model: &Model,
        shards: &dyn Shards,
        room: &Room,
        world: &mut World,
        n_layers: usize,
    ) -> Result<Prepared, TrainError> {
        let sets = ReceptiveSets::all(shards.info().n_nodes, n_layers);
        Ok(Prepared { sets, out_degrees: out_degrees_for(model, shards, room, world)?, train: None, reused: None })
    }

    /// For the outputs of the first `n_layers` layers on the nodes that are `wanted`.
    pub(crate) fn of_nodes(
        model: &Model,
        shards: &dyn Shards,
        room: &Room,
        world: &mut World,
        (wanted, n_layers): (impl IntoIterator<Item = u64>, usize),
    ) -> Result<Prepared, TrainError> {
        if !model.takes_pieces() || (0..model.layers().len()).any(|layer| model.needs_statistics(layer)) {
            // The products of tensor operations may differ in their last bits with the number of rows.
            return Prepared::all(model, shards, room, world, n_layers);
        }
        let sets = ReceptiveSets::find(shards.info().n_nodes, wanted, n_layers, |nodes, marks| {
            let chunks = Chunks::new(room, world, nodes, shards, EdgeData::NONE);
            for_each_chunk(chunks, shards, world, |lists| marks.add(lists.sources()))?;
            if world.n_ranks() > 1 {
                world.collective().share(marks.bytes())?.iter().for_each(|other| marks.add_bytes(other));
            }
            Ok(())
        })?;
        Ok(Prepared { sets, out_degrees: out_degrees_for(model, shards, room, world)?, train: None, reused: None })
    }

    /// Nodes that are computed.
    pub(crate) fn sets(&self) -> &ReceptiveSets {
        &self.sets
    }
}

/// Counts the out-degrees of all nodes in one pass over all edges: no chunk has all edges of its sources. `None` if the model
/// does not need them.
fn out_degrees_for(
    model: &Model,
    shards: &dyn Shards,
    room: &Room,
    world: &mut World,
) -> Result<Option<OutDegrees>, TrainError> {
    if !model.spec().needs_out_degrees() {
        return Ok(None);
    }
    let all = NodeSet::All(shards.info().n_nodes);
    let are_weighted = model.config().has_edge_weights();
    let mut degrees = OutDegrees::new(shards.info().n_nodes, are_weighted);
    let chunks = Chunks::new(room, world, &all, shards, EdgeData { weights: are_weighted, ..EdgeData::NONE });
    for_each_chunk(chunks, shards, world, |lists| degrees.add(lists.sources(), lists.weights()))?;
    if world.n_ranks() == 1 {
        return Ok(Some(degrees));
    }
    let heard = world.collective().share(&degrees.to_bytes())?;
    Ok(Some(heard.iter().fold(OutDegrees::new(shards.info().n_nodes, are_weighted), |mut sum, own| {
        sum.add_bytes(own);
        sum
    })))
}
