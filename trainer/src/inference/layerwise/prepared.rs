//! Facts about a graph that inference needs before the first layer.

use std::{ops::Range, sync::Arc};

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
    inference::receptive::{NodeMarks, NodeSet, ReceptiveSets},
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
            share_marks(marks, world, SHARED_BYTES)
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
    share_degrees(&mut degrees, world, SHARED_BYTES)?;
    Ok(Some(degrees))
}

/// Bytes that all ranks together exchange at a time. A rank holds them twice.
const SHARED_BYTES: usize = 16 << 20;

/// Joins the marks of all ranks, `shared_bytes` at a time.
fn share_marks(marks: &mut NodeMarks, world: &mut World, shared_bytes: usize) -> Result<(), TrainError> {
    for range in portions(marks.n_words(), size_of::<u64>(), world, shared_bytes) {
        let heard = world.collective().share(marks.bytes(range.clone()))?;
        heard.iter().for_each(|other| marks.add_bytes(range.start, other));
    }
    Ok(())
}

/// Adds up the degrees of all ranks, `shared_bytes` at a time.
fn share_degrees(degrees: &mut OutDegrees, world: &mut World, shared_bytes: usize) -> Result<(), TrainError> {
    let own = world.rank();
    let bytes_each = OutDegrees::bytes_each(matches!(degrees, OutDegrees::Weights(_)));
    for range in portions(degrees.len(), bytes_each, world, shared_bytes) {
        let heard = world.collective().share(&degrees.bytes(range.clone()))?;
        let others = heard.iter().enumerate().filter(|(rank, _)| *rank != own);
        others.for_each(|(_, other)| degrees.add_bytes(range.start, other));
    }
    Ok(())
}

/// Ranges of `n` values that ranks exchange one after the other, the same on all ranks; none for a rank alone.
fn portions(
    n: usize,
    value_bytes: usize,
    world: &World,
    shared_bytes: usize,
) -> impl Iterator<Item = Range<usize>> + use<> {
    let n_together = (shared_bytes / value_bytes / world.n_ranks()).max(1);
    let n = if world.n_ranks() == 1 { 0 } else { n };
    (0..n).step_by(n_together).map(move |first| first..n.min(first + n_together))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::world::on_worlds;

    #[test]
    fn marks_and_degrees_of_ranks_are_joined_in_portions_of_any_size() {
        const N_NODES: u64 = 1000;
        for n_ranks in [1, 2, 3] {
            let sources = |rank: usize| (0..N_NODES).filter(move |node| node % 7 == rank as u64 || node % 10 == 3);
            let weights = |rank: usize| (0..).map(move |k| (k + rank) as f32 / 8.0);
            let mut all = (NodeMarks::new(N_NODES), [false, true].map(|weighted| OutDegrees::new(N_NODES, weighted)));
            for rank in 0..n_ranks {
                all.0.add(sources(rank));
                all.1.iter_mut().for_each(|degrees| degrees.add(sources(rank), weights(rank)));
            }
            let every = |degrees: &OutDegrees| degrees.bytes(0..N_NODES as usize);
            for shared_bytes in [1, 100, 5000, 1 << 20] {
                on_worlds(n_ranks, |world| {
                    let mut marks = NodeMarks::new(N_NODES);
                    marks.add(sources(world.rank()));
                    share_marks(&mut marks, world, shared_bytes).unwrap();
                    assert_eq!(marks.bytes(0..marks.n_words()), all.0.bytes(0..all.0.n_words()));
                    for expected in &all.1 {
                        let mut degrees = OutDegrees::new(N_NODES, matches!(expected, OutDegrees::Weights(_)));
                        degrees.add(sources(world.rank()), weights(world.rank()));
                        share_degrees(&mut degrees, world, shared_bytes).unwrap();
                        assert_eq!(every(&degrees), every(expected), "{n_ranks} ranks, {shared_bytes} bytes");
                    }
                });
            }
        }
    }
}
