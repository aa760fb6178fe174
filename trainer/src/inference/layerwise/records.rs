//! Records of nodes in memory: all that a layer reads, or those of one window.

use super::{places::RecordPlaces, rows::Reader};
use crate::{
    distributed::world::World,
    error::TrainError,
    inference::{
        agree::agree,
        receptive::{NodeSet, SomeNodes},
    },
};

/// Records of nodes. The place of a node is the number of its record.
#[derive(Debug)]
pub(super) struct Records<'a> {
    pub(super) places: RecordPlaces<'a>,
    pub(super) values: Vec<f32>,
}

impl<'a> Records<'a> {
    /// Records of all nodes that a layer reads. For a rank alone.
    pub(super) fn of_all(reader: &Reader<'a>, n_together: u64, world: &mut World) -> Result<Records<'a>, TrainError> {
        let n_nodes = reader.read.len();
        let mut values = Vec::with_capacity(n_nodes as usize * reader.model.record_len(reader.layer));
        let mut first = 0;
        while first < n_nodes {
            let end = n_nodes.min(first + n_together);
            values.extend(reader.records(&reader.read.ids(first..end), world)?);
            agree(world, 0)?;
            first = end;
        }
        Ok(Records { places: RecordPlaces::Read(reader.read), values })
    }

    /// No records yet.
    pub(super) fn none(read: &'a NodeSet) -> Records<'a> {
        Records { places: RecordPlaces::Read(read), values: Vec::new() }
    }

    /// Records of the nodes of a window, in the memory of others: `n_rounds` times `n_together` of them at most. Windows have about `most`
    /// nodes. All ranks make this call at the same time.
    pub(super) fn of_window(
        self,
        reader: &Reader<'_>,
        nodes: SomeNodes,
        (n_together, n_rounds, most): (u64, u64, u64),
        world: &mut World,
    ) -> Result<Records<'a>, TrainError> {
        let (n_nodes, mut values) = (nodes.len(), self.values);
        values.clear();
        let record_len = reader.model.record_len(reader.layer);
        if values.capacity() < n_nodes as usize * record_len {
            // Once for all windows: memory that is freed for larger memory would stay with the process.
            drop(std::mem::take(&mut values));
            values.reserve_exact(most.max(n_nodes) as usize * record_len);
        }
        for round in 0..n_rounds {
            let bound = |round: u64| n_nodes.min(round * n_together);
            values.extend(reader.records(&nodes.ids(bound(round)..bound(round + 1)), world)?);
            agree(world, 0)?;
        }
        Ok(Records { places: RecordPlaces::Window(nodes), values })
    }
}
