//! Columns of a store as bytes, to be written to other folders.

use std::collections::BTreeMap;

use crate::{
    blocks::Verify,
    column::Column,
    error::{Result, StoreError},
    graph::Graph,
    item::Item,
    manifest::ColumnEntry,
    mapped::ask_for,
    opening::Opening,
    writer::StoreWriter,
};

/// The columns of a store. Opened once for all shards: each block is compared with its checksum once.
pub(crate) struct SourceColumns(BTreeMap<String, Column<u8>>);

/// One of the columns.
#[derive(Clone, Copy)]
pub(crate) struct SourceColumn<'a> {
    name: &'a str,
    bytes: &'a Column<u8>,
}

impl SourceColumns {
    pub(crate) fn open(graph: &Graph) -> Result<SourceColumns> {
        let opening = Opening::new(graph.dir(), graph.manifest(), Verify::FirstTouch)?;
        let open = |entry: &ColumnEntry| Ok((entry.name.clone(), Column::open_as(&opening, entry)?));
        graph.manifest().columns.iter().map(open).collect::<Result<_>>().map(SourceColumns)
    }

    /// Copies a column that a cluster holds as the store does.
    pub(crate) fn copy(&self, name: &str, writer: &mut StoreWriter) -> Result<()> {
        let Some(column) = self.0.get(name) else { return Ok(()) };
        match name {
            "id_bytes" => writer.write::<u8>(name, column.all()?),
            "graph_of_node" => writer.write::<u32>(name, bytemuck::cast_slice(column.all()?)),
            _ => writer.write::<u64>(name, bytemuck::cast_slice(column.all()?)),
        }
    }

    /// A column that must be there.
    pub(crate) fn require<'a>(&'a self, name: &'a str) -> Result<SourceColumn<'a>> {
        let bytes = self.0.get(name).ok_or_else(|| StoreError::damaged(name, 0))?;
        Ok(SourceColumn { name, bytes })
    }
}

impl<'a> SourceColumn<'a> {
    /// Items of a node, checked.
    #[inline]
    pub(crate) fn get<T: Item>(self, start: usize, end: usize, node: u64) -> Result<&'a [T]> {
        let damaged = || StoreError::damaged(self.name, node);
        let size = size_of::<T>();
        let range = (start.checked_mul(size).ok_or_else(damaged)?, end.checked_mul(size).ok_or_else(damaged)?);
        Ok(bytemuck::cast_slice(self.bytes.get(range.0, range.1)?.ok_or_else(damaged)?))
    }

    /// Bounds of a node's items, if this is a column of bounds.
    #[inline]
    pub(crate) fn bounds(self, node: u64) -> Result<(usize, usize)> {
        match *self.get::<u64>(node as usize, node as usize + 2, node)? {
            [start, end] if start <= end => Ok((start as usize, end as usize)),
            _ => Err(StoreError::damaged(self.name, node)),
        }
    }

    /// Asks the system to read items that will be needed.
    pub(crate) fn will_need<T: Item>(self, start: usize, end: usize) {
        let range = start.saturating_mul(size_of::<T>())..end.saturating_mul(size_of::<T>());
        self.bytes.items().get(range).into_iter().for_each(ask_for);
    }
}
