//! Tables of numbers to predict: one per node, by position or by id, or several per node as an array.

use std::path::{Path, PathBuf};

use crate::{
    PartitionError, Result,
    csr::{Budget, StoreBuilder},
    tables::{
        fields::{finite, pick},
        files::{Format, TableFile, Trouble, find_all},
        ids::{Id, NodeIds, check_n_rows, stray_error},
        labels::label_columns,
        npy::{NpyRows, Target},
        rules::IdKind,
        scratch::{Scratch, ScratchWriter},
        text::TextFile,
    },
};

/// All tables of targets, one behind the other.
#[derive(Debug)]
pub(super) struct TargetTables {
    tables: Vec<TargetTable>,
    kind: IdKind,
    has_ids: bool,
    /// Numbers per node.
    width: usize,
}

#[derive(Debug)]
enum TargetTable {
    Npy(NpyRows),
    Text { file: TextFile, id: Option<usize>, target: usize },
}

/// Gets the numbers of one node after the other, with its id if it has one.
type TakeTargets<'t> = dyn FnMut(Option<Id<'_>>, &[f32]) -> Result<(), Trouble> + 't;

impl TargetTables {
    pub(super) fn open(paths: &[PathBuf], kind: IdKind) -> Result<Option<TargetTables>> {
        let mut tables = Vec::new();
        let mut known = None;
        for file in find_all(paths)? {
            let (table, has_ids, width) = TargetTable::open(&file, kind)?;
            if *known.get_or_insert((has_ids, width)) != (has_ids, width) {
                let shown = |(has_ids, width): (bool, usize)| {
                    format!("{width} per node {} ids", if has_ids { "with" } else { "without" })
                };
                let expected = shown(known.unwrap_or((has_ids, width)));
                let problem = format!("expected targets as before, {expected}, found {}", shown((has_ids, width)));
                return Err(PartitionError::input(&file.path, "columns", problem));
            }
            tables.push(table);
        }
        Ok(known.map(|(has_ids, width)| TargetTables { tables, kind, has_ids, width }))
    }

    /// Hands over the ids of all targets, in order.
    pub(super) fn each_id(&self, take: &mut dyn FnMut(Id<'_>) -> Result<(), Trouble>) -> Result<()> {
        if !self.has_ids {
            return Ok(());
        }
        self.each(&mut |id, _| id.map_or(Ok(()), &mut *take))
    }

    /// Reads all targets and puts them in the order of the nodes.
    pub(super) fn stage(&self, ids: &NodeIds, nodes_are_given: bool, budget: &Budget) -> Result<StagedTargets> {
        let n_nodes = ids.n_nodes();
        let path = self.tables[0].path();
        let mut by_node = ScratchWriter::create(budget)?;
        let mut n_known = 0;
        if self.has_ids {
            // Only texts have ids, with one number per line.
            let feed = |push: &mut dyn FnMut(Id<'_>, u64) -> Result<(), Trouble>| {
                self.each(&mut |id, targets| id.map_or(Ok(()), |id| push(id, targets[0].to_bits().into())))
            };
            let stray = ids.in_node_order(budget, feed, |node, bits| {
                while by_node.n_items() < node {
                    by_node.push(f32::NAN)?;
                }
                let target = f32::from_bits(bits as u32);
                n_known += u64::from(!target.is_nan());
                by_node.push(target)
            })?;
            if let Some(stray) = stray {
                return Err(stray_error(stray, ids, |find| self.each_id(find)));
            }
            while by_node.n_items() < n_nodes {
                by_node.push(f32::NAN)?;
            }
        } else {
            ids.check_by_place(path)?;
            self.each(&mut |_, targets| {
                n_known += u64::from(targets.iter().all(|target| !target.is_nan()));
                Ok(targets.iter().try_for_each(|target| by_node.push(*target))?)
            })?;
            check_n_rows("target", by_node.n_items() / self.width as u64, n_nodes, nodes_are_given)
                .map_err(|problem| PartitionError::input(path, "targets", problem))?;
        }
        if n_known == 0 {
            return Err(PartitionError::input(path, "targets", "no node has a target"));
        }
        Ok(StagedTargets { by_node: by_node.finish()?, width: self.width, n_known })
    }

    fn each(&self, take: &mut TakeTargets<'_>) -> Result<()> {
        for table in &self.tables {
            match table {
                TargetTable::Npy(rows) => {
                    let mut targets = Vec::with_capacity(self.width);
                    rows.each::<Target>(&mut |Target(target)| {
                        targets.push(target);
                        if targets.len() < self.width {
                            return Ok(());
                        }
                        take(None, &targets)?;
                        targets.clear();
                        Ok(())
                    })?;
                }
                TargetTable::Text { file, id, target } => file.each_line(&mut |line| {
                    let [target] = pick(line, file.delimiter, [*target])?;
                    // An empty field means that a node has no target.
                    let target = if target.is_empty() { f32::NAN } else { finite(&target)? };
                    match id {
                        Some(id) => {
                            let [id] = pick(line, file.delimiter, [*id])?;
                            take(Some(Id::parse(&id, self.kind)?), &[target])
                        }
                        None => take(None, &[target]),
                    }
                })?,
            }
        }
        Ok(())
    }
}

impl TargetTable {
    /// The table, whether it has ids, and how many numbers per node.
    fn open(file: &TableFile, kind: IdKind) -> Result<(TargetTable, bool, usize)> {
        match file.format {
            Format::Npy => {
                let rows = NpyRows::open(&file.path)?;
                if rows.width == 0 {
                    return Err(PartitionError::input(&file.path, "header", "holds no numbers"));
                }
                let width = rows.width;
                Ok((TargetTable::Npy(rows), false, width))
            }
            Format::Text { delimiter } => {
                let mut file = TextFile::open(&file.path, delimiter)?;
                let (id, target) = label_columns(&mut file, kind);
                Ok((TargetTable::Text { file, id, target }, id.is_some(), 1))
            }
            Format::Parquet => Err(PartitionError::input(&file.path, "name", "targets are read from csv, tsv and npy")),
        }
    }

    fn path(&self) -> &Path {
        match self {
            TargetTable::Npy(rows) => &rows.path,
            TargetTable::Text { file, .. } => &file.path,
        }
    }
}

/// Targets in the order of the nodes.
#[derive(Debug)]
pub(super) struct StagedTargets {
    by_node: Scratch<f32>,
    width: usize,
    n_known: u64,
}

impl StagedTargets {
    /// Writes the targets of every node.
    pub(super) fn write(&self, builder: &mut StoreBuilder<'_>) -> Result<()> {
        builder.provenance().counted.insert("labeled_nodes".into(), self.n_known);
        builder.numbers(self.width as u64, |first, numbers| self.by_node.read(first * self.width as u64, numbers))
    }
}
