//! Values of all nodes, in memory or in a file.

use kith_store::{Column, ColumnWriter};

use super::room::Room;
use crate::{error::TrainError, model::Model};

/// Values of nodes, by place: records that a layer reads, or outputs of a layer.
#[derive(Debug)]
pub(super) enum NodeNumbers {
    Memory(Vec<f32>),
    File(Column<f32>),
}

impl NodeNumbers {
    pub(super) fn values(&self) -> &[f32] {
        match self {
            NodeNumbers::Memory(values) => values,
            NodeNumbers::File(column) => column.items(),
        }
    }
}

/// Takes values in the order of nodes.
pub(super) enum NodeWriter {
    Memory(Vec<f32>),
    File(ColumnWriter<f32>),
}

impl NodeWriter {
    /// For what the first layer reads.
    pub(super) fn of_features(model: &Model, n_nodes: u64, room: &Room) -> Result<NodeWriter, TrainError> {
        NodeWriter::with_room(n_nodes as usize * model.record_len(0), "features", room)
    }

    /// For the outputs of a layer, or for what the next one reads.
    pub(super) fn new(
        model: &Model,
        layer: usize,
        are_outputs: bool,
        n_nodes: u64,
        room: &Room,
    ) -> Result<NodeWriter, TrainError> {
        let len = if are_outputs { model.output_len(layer) } else { model.record_len(layer + 1) };
        let name = format!("{}-{layer}", if are_outputs { "outputs" } else { "layer" });
        NodeWriter::with_room(n_nodes as usize * len, &name, room)
    }

    /// For `n_values` values.
    pub(super) fn with_room(n_values: usize, name: &str, room: &Room) -> Result<NodeWriter, TrainError> {
        Ok(match room.memory {
            Some(memory) if 4 * n_values as u64 > memory => {
                let dir = room.scratch.clone().unwrap_or_else(std::env::temp_dir);
                let name = format!(".kith-{}-{name}", std::process::id());
                NodeWriter::File(ColumnWriter::scratch(&dir, &name)?)
            }
            _ => NodeWriter::Memory(Vec::with_capacity(n_values)),
        })
    }

    pub(super) fn push(&mut self, numbers: &[f32]) -> Result<(), TrainError> {
        match self {
            NodeWriter::Memory(values) => values.extend_from_slice(numbers),
            NodeWriter::File(column) => column.push(numbers)?,
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<NodeNumbers, TrainError> {
        Ok(match self {
            NodeWriter::Memory(values) => NodeNumbers::Memory(values),
            NodeWriter::File(column) => NodeNumbers::File(column.finish()?.into_scratch()?),
        })
    }
}
