//! Adjacency: CSR with row = destination (or source, for the transpose), each neighbor list sorted by id.

use crate::{
    column::Column,
    error::{Result, StoreError},
    item::Dtype,
    opening::Opening,
};

/// Ids of nodes in the lists: 32 bits, or 64 beyond 2^32 nodes.
#[derive(Debug)]
pub(crate) enum IdColumn {
    Narrow(Column<u32>),
    Wide(Column<u64>),
}

impl IdColumn {
    pub(crate) fn open(opening: &Opening<'_>, name: &str) -> Result<IdColumn> {
        let entry = opening.require(name)?;
        match entry.dtype {
            Dtype::U64 => Ok(IdColumn::Wide(Column::open(opening, entry)?)),
            _ => Ok(IdColumn::Narrow(Column::open(opening, entry)?)),
        }
    }

    #[inline]
    fn touch(&self, start: usize, end: usize) -> Result<()> {
        match self {
            IdColumn::Narrow(column) => column.touch(start, end),
            IdColumn::Wide(column) => column.touch(start, end),
        }
    }
}

/// The lists of all nodes in one direction.
#[derive(Debug)]
pub struct Lists {
    indptr: Column<u64>,
    indices: IdColumn,
    indptr_name: &'static str,
}

/// The columns of lists by destination.
pub(crate) const LISTS: (&str, &str) = ("indptr", "indices");
/// The columns of lists by source.
pub(crate) const OUT_LISTS: (&str, &str) = ("out_indptr", "out_indices");

impl Lists {
    pub(crate) fn open(
        opening: &Opening<'_>,
        (indptr_name, indices_name): (&'static str, &str),
        n_edges: u64,
    ) -> Result<Lists> {
        let indptr = open_indptr(opening, indptr_name, opening.manifest.contents.n_nodes, n_edges)?;
        let indices = IdColumn::open(opening, indices_name)?;
        let n_indices = opening.require(indices_name)?.n_items;
        if n_indices != n_edges {
            return Err(opening.wrong_length(indices_name, n_indices, n_edges));
        }
        Ok(Lists { indptr, indices, indptr_name })
    }

    /// The neighbors of a node, ascending.
    #[inline]
    pub fn of(&self, node: u64) -> Result<Neighbors<'_>> {
        let (start, end) = self.bounds(node)?;
        self.touch(start, end)?;
        self.indices().slice(start, end).ok_or_else(|| StoreError::damaged(self.indptr_name, node))
    }

    /// Start and end of a node's neighbor list among all edges.
    #[inline]
    pub fn bounds(&self, node: u64) -> Result<(usize, usize)> {
        bounds(&self.indptr, node, self.indptr_name)
    }

    /// The length of a node's list.
    #[inline]
    pub fn degree(&self, node: u64) -> Result<u64> {
        self.bounds(node).map(|(start, end)| (end - start) as u64)
    }

    /// The bounds of all lists, checked: `n_nodes + 1` numbers, the first 0, the last the number of edges.
    pub fn indptr(&self) -> Result<&[u64]> {
        self.indptr.all()
    }

    /// A place in memory that [`Lists::bounds`] will read, to prefetch.
    #[inline]
    pub fn place_of(&self, node: u64) -> Option<&u64> {
        self.indptr.items().get(node as usize)
    }

    /// From now on lists are read in no order: see [`Lists::will_need`].
    pub(crate) fn read_randomly(&self) {
        match &self.indices {
            IdColumn::Narrow(column) => column.read_randomly(),
            IdColumn::Wide(column) => column.read_randomly(),
        }
    }

    /// Asks the system to read a range of [`Lists::indices`] that will be needed, if it does not read ahead itself.
    #[inline]
    pub fn will_need(&self, start: usize, end: usize) {
        match &self.indices {
            IdColumn::Narrow(column) => column.will_need(start, end),
            IdColumn::Wide(column) => column.will_need(start, end),
        }
    }

    /// Compares the blocks under a range of [`Lists::indices`] with their checksums, unless that was done before.
    #[inline]
    pub fn touch(&self, start: usize, end: usize) -> Result<()> {
        self.indices.touch(start, end)
    }

    /// All lists behind one another, checked.
    pub fn all(&self) -> Result<Neighbors<'_>> {
        match &self.indices {
            IdColumn::Narrow(column) => column.all().map(Neighbors::Narrow),
            IdColumn::Wide(column) => column.all().map(Neighbors::Wide),
        }
    }

    /// All lists behind one another, not checked: call [`Lists::touch`] before reading a range.
    #[inline]
    pub fn indices(&self) -> Neighbors<'_> {
        match &self.indices {
            IdColumn::Narrow(column) => Neighbors::Narrow(column.items()),
            IdColumn::Wide(column) => Neighbors::Wide(column.items()),
        }
    }
}

/// Opens an `indptr` of `n_rows + 1` bounds and checks what can be checked without reading it all.
pub(crate) fn open_indptr(opening: &Opening<'_>, name: &'static str, n_rows: u64, n_items: u64) -> Result<Column<u64>> {
    let entry = opening.require(name)?;
    let indptr: Column<u64> = Column::open(opening, entry)?;
    if Some(entry.n_items) != n_rows.checked_add(1) {
        return Err(opening.wrong_length(name, entry.n_items, n_rows.saturating_add(1)));
    }
    let last = indptr.items().len().saturating_sub(1);
    if indptr.get(0, 1)? != Some(&[0]) {
        return Err(StoreError::damaged(name, 0));
    }
    if indptr.get(last, last + 1)? != Some(&[n_items]) {
        return Err(StoreError::damaged(name, n_rows));
    }
    Ok(indptr)
}

/// The bounds of one row of an `indptr`, in order.
#[inline]
pub(crate) fn bounds(indptr: &Column<u64>, row: u64, name: &str) -> Result<(usize, usize)> {
    let place = row as usize;
    match indptr.get(place, place.saturating_add(2))? {
        Some(&[start, end]) if start <= end => Ok((start as usize, end as usize)),
        Some(_) => Err(StoreError::damaged(name, row)),
        None => {
            let n_nodes = (indptr.items().len() as u64).saturating_sub(1);
            Err(StoreError::NodeOutOfRange { node: row, n_nodes })
        }
    }
}

/// Some neighbors of one node, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbors<'a> {
    /// 32-bit ids.
    Narrow(&'a [u32]),
    /// 64-bit ids.
    Wide(&'a [u64]),
}

impl<'a> Neighbors<'a> {
    /// Number of neighbors.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Neighbors::Narrow(ids) => ids.len(),
            Neighbors::Wide(ids) => ids.len(),
        }
    }

    /// True if there are no neighbors.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Those in a range of slots.
    #[inline]
    fn slice(self, start: usize, end: usize) -> Option<Neighbors<'a>> {
        match self {
            Neighbors::Narrow(ids) => ids.get(start..end).map(Neighbors::Narrow),
            Neighbors::Wide(ids) => ids.get(start..end).map(Neighbors::Wide),
        }
    }

    /// The id in a slot.
    #[inline]
    pub fn get(self, slot: usize) -> Option<u64> {
        match self {
            Neighbors::Narrow(ids) => ids.get(slot).map(|id| u64::from(*id)),
            Neighbors::Wide(ids) => ids.get(slot).copied(),
        }
    }

    /// All ids, in order.
    pub fn iter(self) -> impl Iterator<Item = u64> + 'a {
        let (narrow, wide) = match self {
            Neighbors::Narrow(ids) => (ids, &[][..]),
            Neighbors::Wide(ids) => (&[][..], ids),
        };
        narrow.iter().map(|id| u64::from(*id)).chain(wide.iter().copied())
    }

    /// True if a node is among the neighbors; binary search.
    #[inline]
    pub fn contains(self, node: u64) -> bool {
        match self {
            Neighbors::Narrow(ids) => u32::try_from(node).is_ok_and(|node| ids.binary_search(&node).is_ok()),
            Neighbors::Wide(ids) => ids.binary_search(&node).is_ok(),
        }
    }
}
