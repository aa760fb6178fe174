//! Values of nodes, in memory or in a file.

use kith_store::{Column, ColumnWriter};

use super::room::{Room, Shares};
use crate::error::TrainError;

/// Values of nodes, in their order.
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

    /// Bytes of private memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            NodeNumbers::Memory(values) => size_of_val(&values[..]) as u64,
            NodeNumbers::File(_) => 0,
        }
    }
}

/// Takes values in the order of nodes.
pub(super) enum NodeWriter {
    Memory(Vec<f32>),
    File(ColumnWriter<f32>),
}

impl NodeWriter {
    /// For `n_values` values.
    pub(super) fn with_room(
        n_values: usize,
        name: &str,
        (room, shares): (&Room, Shares),
    ) -> Result<NodeWriter, TrainError> {
        Ok(match 4 * n_values as u64 > shares.held_bytes() {
            true => {
                let dir = room.scratch.clone().filter(|dir| dir.is_dir()).unwrap_or_else(std::env::temp_dir);
                let name = format!(".kith-{}-{name}", std::process::id());
                NodeWriter::File(ColumnWriter::scratch(&dir, &name)?)
            }
            false => NodeWriter::Memory(Vec::with_capacity(n_values)),
        })
    }

    /// Bytes of private memory that it has reserved.
    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            NodeWriter::Memory(values) => 4 * values.capacity() as u64,
            NodeWriter::File(_) => 0,
        }
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
