//! Columns with one value per node: labels, splits, users' own ids, and the graph in a set of graphs.

use std::borrow::Cow;

use crate::{
    column::Column,
    error::{Result, StoreError},
    lists::{bounds, open_indptr},
    manifest::{GraphsEntry, IdsEntry, LabelKind, LabelsEntry},
    opening::Opening,
};

/// A label column's value for a node without a class.
pub const NO_CLASS: u32 = u32::MAX;

/// The labels of all nodes.
#[derive(Debug)]
pub struct Labels {
    entry: LabelsEntry,
    values: LabelValues,
}

#[derive(Debug)]
enum LabelValues {
    Classes(Column<u32>),
    Bits(Column<u64>),
    Numbers(Column<f32>),
}

impl Labels {
    pub(crate) fn open(opening: &Opening<'_>, entry: LabelsEntry) -> Result<Labels> {
        let n_nodes = opening.manifest.contents.n_nodes;
        if entry.n_classes == 0 && entry.kind != LabelKind::Classes {
            return Err(opening.wrong("labels without a class or target".to_owned()));
        }
        let values = match entry.kind {
            LabelKind::Classes => LabelValues::Classes(open_per_node(opening, "labels", n_nodes, 1)?),
            LabelKind::MultiLabel => {
                LabelValues::Bits(open_per_node(opening, "label_bits", n_nodes, entry.n_classes.div_ceil(64))?)
            }
            LabelKind::Targets => LabelValues::Numbers(open_per_node(opening, "labels", n_nodes, entry.n_classes)?),
        };
        Ok(Labels { entry, values })
    }

    /// Classes are `0..n_classes`. Where labels are numbers, how many a node has.
    pub fn n_classes(&self) -> u64 {
        self.entry.n_classes
    }

    /// Kind of a node's label.
    pub fn kind(&self) -> LabelKind {
        self.entry.kind
    }

    /// The class of a node, if it has one and labels are classes.
    #[inline]
    pub fn class(&self, node: u64) -> Result<Option<u32>> {
        let LabelValues::Classes(column) = &self.values else { return Ok(None) };
        match *value_of(column, node)? {
            NO_CLASS => Ok(None),
            class if u64::from(class) < self.entry.n_classes => Ok(Some(class)),
            _ => Err(StoreError::damaged("labels", node)),
        }
    }

    /// The classes of a node of a multi-label store: class c is bit c % 64 of word c / 64. Empty for other stores.
    pub fn bits(&self, node: u64) -> Result<&[u64]> {
        let LabelValues::Bits(column) = &self.values else { return Ok(&[]) };
        let n_words = self.entry.n_classes.div_ceil(64) as usize;
        let words = values_of(column, node, n_words)?;
        let n_spare = n_words as u64 * 64 - self.entry.n_classes;
        if words.last().is_some_and(|word| n_spare > 0 && word >> (64 - n_spare) != 0) {
            return Err(StoreError::damaged("label_bits", node));
        }
        Ok(words)
    }

    /// The numbers to predict of a node, NaN where it has none. Empty where labels are classes.
    pub fn numbers(&self, node: u64) -> Result<&[f32]> {
        let LabelValues::Numbers(column) = &self.values else { return Ok(&[]) };
        let numbers = values_of(column, node, self.entry.n_classes as usize)?;
        if numbers.iter().any(|number| number.is_infinite()) {
            return Err(StoreError::damaged("labels", node));
        }
        Ok(numbers)
    }
}

/// The part of a split that a node belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SplitPart {
    /// In no part.
    #[default]
    None = 0,
    /// Trained on.
    Train = 1,
    /// Chooses settings and stops training.
    Valid = 2,
    /// Only measured.
    Test = 3,
}

/// One named split.
#[derive(Debug)]
pub struct Split {
    name: String,
    parts: Column<u8>,
}

impl Split {
    pub(crate) fn open(opening: &Opening<'_>, name: &str) -> Result<Split> {
        let column = split_column(name);
        let parts = open_per_node(opening, &column, opening.manifest.contents.n_nodes, 1)?;
        Ok(Split { name: name.to_owned(), parts })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The part a node belongs to.
    #[inline]
    pub fn part(&self, node: u64) -> Result<SplitPart> {
        match *value_of(&self.parts, node)? {
            0 => Ok(SplitPart::None),
            1 => Ok(SplitPart::Train),
            2 => Ok(SplitPart::Valid),
            3 => Ok(SplitPart::Test),
            _ => Err(StoreError::damaged(&split_column(&self.name), node)),
        }
    }
}

/// The column of a named split.
pub fn split_column(name: &str) -> String {
    format!("split.{name}")
}

/// The user's own ids.
#[derive(Debug)]
pub enum Ids {
    /// One number per node.
    Numbers(Column<u64>),
    /// One text per node.
    Texts {
        /// Bounds of each text.
        indptr: Column<u64>,
        /// All texts behind one another, UTF-8.
        bytes: Column<u8>,
    },
}

impl Ids {
    pub(crate) fn open(opening: &Opening<'_>, entry: IdsEntry) -> Result<Ids> {
        let n_nodes = opening.manifest.contents.n_nodes;
        match entry {
            IdsEntry::Numbers => Ok(Ids::Numbers(open_per_node(opening, "ids", n_nodes, 1)?)),
            IdsEntry::Texts => {
                let bytes = opening.require("id_bytes")?;
                let indptr = open_indptr(opening, "id_indptr", n_nodes, bytes.n_items)?;
                Ok(Ids::Texts { indptr, bytes: Column::open(opening, bytes)? })
            }
        }
    }

    /// The user's own id of a node.
    pub fn of(&self, node: u64) -> Result<Cow<'_, str>> {
        match self {
            Ids::Numbers(column) => Ok(value_of(column, node)?.to_string().into()),
            Ids::Texts { indptr, bytes } => {
                let (start, end) = bounds(indptr, node, "id_indptr")?;
                let text = bytes.get(start, end)?.ok_or_else(|| StoreError::damaged("id_indptr", node))?;
                std::str::from_utf8(text).map(Cow::Borrowed).map_err(|_| StoreError::damaged("id_bytes", node))
            }
        }
    }
}

/// The graph of each node, in a set of several graphs.
#[derive(Debug)]
pub struct Graphs {
    entry: GraphsEntry,
    of_node: Column<u32>,
}

impl Graphs {
    pub(crate) fn open(opening: &Opening<'_>, entry: GraphsEntry) -> Result<Graphs> {
        let of_node = open_per_node(opening, "graph_of_node", opening.manifest.contents.n_nodes, 1)?;
        Ok(Graphs { entry, of_node })
    }

    /// Graphs are `0..n_graphs`.
    pub fn n_graphs(&self) -> u64 {
        self.entry.n_graphs
    }

    /// The graph a node belongs to.
    pub fn of(&self, node: u64) -> Result<u32> {
        let graph = *value_of(&self.of_node, node)?;
        if u64::from(graph) < self.entry.n_graphs { Ok(graph) } else { Err(StoreError::damaged("graph_of_node", node)) }
    }
}

fn open_per_node<T: crate::item::Item>(
    opening: &Opening<'_>,
    name: &str,
    n_nodes: u64,
    per_node: u64,
) -> Result<Column<T>> {
    let entry = opening.require(name)?;
    let expected = n_nodes.checked_mul(per_node);
    if expected != Some(entry.n_items) {
        return Err(opening.wrong_length(name, entry.n_items, expected.unwrap_or(u64::MAX)));
    }
    Column::open(opening, entry)
}

/// The `per_node` values of a node.
fn values_of<T: crate::item::Item>(column: &Column<T>, node: u64, per_node: usize) -> Result<&[T]> {
    (node as usize)
        .checked_mul(per_node)
        .map(|start| column.get(start, start.saturating_add(per_node)))
        .transpose()?
        .flatten()
        .ok_or(StoreError::NodeOutOfRange { node, n_nodes: column.items().len() as u64 / per_node.max(1) as u64 })
}

#[inline]
fn value_of<T: crate::item::Item>(column: &Column<T>, node: u64) -> Result<&T> {
    let n_nodes = column.items().len() as u64;
    column.item(node)?.ok_or(StoreError::NodeOutOfRange { node, n_nodes })
}
