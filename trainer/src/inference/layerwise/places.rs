//! Numbers of the records of nodes.

use std::borrow::Cow;

use kith_sampler::DrawnIds;
use rayon::prelude::*;

use crate::{
    inference::receptive::{NodeSet, SomeNodes},
    model::OutDegrees,
};

/// Nodes that have records. The place of a node is the number of its record.
#[derive(Debug)]
pub(super) enum RecordPlaces<'a> {
    /// All that the layer reads.
    Read(&'a NodeSet),
    /// Those of a window.
    Window(SomeNodes),
}

impl RecordPlaces<'_> {
    /// Number of a node's record.
    pub(super) fn place(&self, id: u64) -> u64 {
        match self {
            RecordPlaces::Read(nodes) => nodes.place(id),
            RecordPlaces::Window(nodes) => nodes.place(id),
        }
    }

    /// Id of the node with a record.
    pub(super) fn id(&self, place: u64) -> u64 {
        match self {
            RecordPlaces::Read(nodes) => nodes.id(place),
            RecordPlaces::Window(nodes) => nodes.id(place),
        }
    }

    /// Turns ids into the numbers of their records.
    pub(super) fn relabel(&self, ids: &mut DrawnIds) {
        let nodes = match self {
            RecordPlaces::Read(NodeSet::All(_)) => return,
            RecordPlaces::Read(NodeSet::Some(nodes)) => nodes,
            RecordPlaces::Window(nodes) => nodes,
        };
        match ids {
            DrawnIds::Narrow(ids) => ids.par_iter_mut().for_each(|id| *id = nodes.place(u64::from(*id)) as u32),
            DrawnIds::Wide(ids) => ids.par_iter_mut().for_each(|id| *id = nodes.place(*id)),
        }
    }

    /// Out-degrees of the nodes, by the numbers of their records, given those of all nodes.
    pub(super) fn out_degrees<'d>(&self, all: &'d OutDegrees) -> Cow<'d, OutDegrees> {
        let nodes = match self {
            RecordPlaces::Read(NodeSet::All(_)) => return Cow::Borrowed(all),
            RecordPlaces::Read(NodeSet::Some(nodes)) => nodes,
            RecordPlaces::Window(nodes) => nodes,
        };
        Cow::Owned(all.of_nodes(&nodes.ids(0..nodes.len())))
    }
}
