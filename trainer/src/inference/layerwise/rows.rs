//! Input of a layer: the features of nodes, or the outputs of the layer before, from wherever they are.

use std::{cell::RefCell, sync::Arc};

use kith_client::{FetchedRows, Shards};

use super::{
    outputs::Outputs,
    prepared::Prepared,
    room::{Room, Shares},
};
use crate::{
    data::{
        feed::{rows_of_batch, rows_to_fetch_into},
        label_input::LabelInput,
    },
    distributed::world::World,
    error::TrainError,
    inference::receptive::NodeSet,
    model::{Model, ReadRows},
};

/// Input of a layer.
#[derive(Debug)]
pub(super) enum Rows {
    /// Features, of the nodes whose ids are asked for.
    Features,
    /// Outputs of the layer before, by place among the nodes that it computed.
    Outputs(Outputs),
}

impl Rows {
    /// Bytes of private memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            Rows::Features => 0,
            Rows::Outputs(outputs) => outputs.values.memory_bytes(),
        }
    }
}

/// A layer and its input.
pub(super) struct Reader<'a> {
    pub(super) model: &'a Model,
    pub(super) shards: &'a dyn Shards,
    pub(super) prepared: &'a Prepared,
    pub(super) layer: usize,
    pub(super) rows: &'a Rows,
    /// Nodes that the layer reads.
    pub(super) read: &'a NodeSet,
    /// Memory of features, used again.
    pub(super) fetched: RefCell<FetchedRows>,
}

impl Reader<'_> {
    /// Nodes whose input is read together.
    pub(super) fn n_together(&self, (room, shares): (&Room, Shares), world: &World) -> u64 {
        let n_numbers = match self.rows {
            Rows::Features => self.shards.info().dim + self.model.label_input().map_or(0, LabelInput::n_columns),
            // All messages of an exchange may pass this rank.
            Rows::Outputs(outputs) => outputs.len * world.n_ranks(),
        };
        let n_numbers = (n_numbers + self.model.record_len(self.layer)) as u64;
        (shares.row_bytes() / (4 * n_numbers)).clamp(1, room.n_together)
    }

    /// Records of some nodes, by id. If outputs are on several ranks, all ranks make this call at the same time; a rank may ask for no
    /// node.
    pub(super) fn records(&self, ids: &[u64], world: &mut World) -> Result<Vec<f32>, TrainError> {
        match self.rows {
            Rows::Features if ids.is_empty() => Ok(Vec::new()),
            Rows::Features => {
                let mut rows = self.fetched.take();
                self.shards.fetch_features(ids, &mut rows)?;
                let rows = Arc::new(self.prepared.with_label_columns(self.model, ids, rows_of_batch(rows)));
                let records = self.model.multiply(self.layer, ReadRows::Stored(&rows))?;
                self.fetched.replace(Arc::into_inner(rows).map(rows_to_fetch_into).unwrap_or_default());
                Ok(records)
            }
            Rows::Outputs(outputs) => {
                let values = outputs.of_places(ids.iter().map(|id| self.read.place(*id)).collect(), world)?;
                match values.is_empty() {
                    true => Ok(values),
                    false => {
                        let rows = self.model.tensor_of(&values, outputs.len);
                        drop(values);
                        self.model.multiply(self.layer, ReadRows::Made(rows))
                    }
                }
            }
        }
    }
}
