//! Feature tables, by position or by id, staged for random access.

use std::path::{Path, PathBuf};

use kith_store::MAX_EDGE_DIM;

use crate::{
    PartitionError, Result,
    csr::{Budget, StoreBuilder},
    tables::{
        fields::pick,
        files::{Format, TableFile, Trouble, find_all},
        ids::{Id, NodeIds, check_n_rows, stray_error},
        names::{DESTINATION_NAMES, ID_NAMES, SOURCE_NAMES, find_name},
        npy::NpyRows,
        parquet::{ColumnType, ParquetFile, texts, whole_numbers},
        rules::IdKind,
        scratch::{Scratch, ScratchWriter},
        staged::{StagedPart, StagedRows, Stager, Values},
        text::TextFile,
    },
};

/// All feature tables, one behind the other.
#[derive(Debug)]
pub(super) struct RowTables {
    tables: Vec<RowTable>,
    dim: usize,
    kind: IdKind,
}

#[derive(Debug)]
enum RowTable {
    Npy(NpyRows),
    Parquet { file: ParquetFile, id: Option<usize>, values: Values },
    Text { file: TextFile, names: Vec<String>, id: Option<usize> },
}

impl RowTables {
    /// Looks at all files: which columns are values, and whether one of them is the id.
    pub(super) fn open(paths: &[PathBuf], kind: IdKind, memory_bytes: u64) -> Result<Option<RowTables>> {
        let mut tables = Vec::new();
        let mut known = None;
        for file in find_all(paths)? {
            let (table, dim) = RowTable::open(&file, kind, memory_bytes)?;
            let (expected, has_ids) = *known.get_or_insert((dim, table.has_ids()));
            let refuse = |problem: String| Err(PartitionError::input(&file.path, "columns", problem));
            if dim == 0 || dim != expected {
                return refuse(format!("rows of {dim} numbers where {} are needed", expected.max(1)));
            }
            if table.has_ids() != has_ids {
                return refuse("either all feature tables have an id column or none".into());
            }
            tables.push(table);
        }
        Ok(known.map(|(dim, _)| RowTables { tables, dim, kind }))
    }

    /// True if the tables have an id column.
    pub(super) fn have_ids(&self) -> bool {
        self.tables.first().is_some_and(RowTable::has_ids)
    }

    /// Hands over the ids of all rows, in order.
    pub(super) fn each_id(&self, take: &mut dyn FnMut(Id<'_>) -> Result<(), Trouble>) -> Result<()> {
        self.tables.iter().try_for_each(|table| table.each_id(self.kind, take))
    }

    /// Brings all rows to where they can be read in any order, and finds the row of each node.
    pub(super) fn stage(&self, ids: &NodeIds, nodes: Nodes, builder: &StoreBuilder<'_>) -> Result<StagedRows> {
        let (parts, starts) = self.stage_parts(nodes.memory_bytes, builder)?;
        let n_rows = starts[starts.len() - 1];
        let path = self.tables[0].path();
        let order = match self.have_ids() {
            true => Some(self.order(ids, builder.budget())?),
            false => {
                ids.check_by_place(path)?;
                check_n_rows("row", n_rows, ids.n_nodes(), nodes.are_given)
                    .map_err(|problem| PartitionError::input(path, "rows", problem))?;
                None
            }
        };
        Ok(StagedRows::new(self.dim, self.paths(), parts, starts, order))
    }

    /// Looks at the files of edge features, whose rows are in the order of the edges.
    pub(super) fn open_of_edges(paths: &[PathBuf], memory_bytes: u64) -> Result<Option<RowTables>> {
        let Some(tables) = RowTables::open(paths, IdKind::Numbers, memory_bytes)? else { return Ok(None) };
        let refuse = |problem: String| Err(PartitionError::input(tables.tables[0].path(), "columns", problem));
        if tables.have_ids() {
            return refuse("rows of edge features come in the order of the edges: leave out the id column".into());
        }
        if tables.has_ends() {
            return refuse("source and destination are no features: leave out their columns".into());
        }
        if tables.dim > MAX_EDGE_DIM {
            return refuse(format!("expected at most {MAX_EDGE_DIM} features per edge, found {}", tables.dim));
        }
        Ok(Some(tables))
    }

    /// True if a header names the ends of edges.
    fn has_ends(&self) -> bool {
        self.tables.iter().any(|table| {
            let names = match table {
                RowTable::Npy(_) => return false,
                RowTable::Parquet { file, .. } => file.names(),
                RowTable::Text { names, .. } => names.clone(),
            };
            find_name(&names, SOURCE_NAMES).is_some() && find_name(&names, DESTINATION_NAMES).is_some()
        })
    }

    /// Brings the features of edges to where they can be read in any order.
    pub(super) fn stage_of_edges(&self, memory_bytes: u64, builder: &StoreBuilder<'_>) -> Result<StagedRows> {
        let (parts, starts) = self.stage_parts(memory_bytes, builder)?;
        Ok(StagedRows::new(self.dim, self.paths(), parts, starts, None))
    }

    /// All rows, and the first of each part with the end of the last.
    fn stage_parts(&self, memory_bytes: u64, builder: &StoreBuilder<'_>) -> Result<(Vec<StagedPart>, Vec<u64>)> {
        let (budget, progress) = (builder.budget(), builder.progress());
        let stager = Stager { dim: self.dim, memory_bytes, budget, progress };
        let mut starts = vec![0u64];
        let mut parts = Vec::new();
        for table in &self.tables {
            let (part, n_rows) = table.stage(&stager)?;
            starts.push(starts[starts.len() - 1] + n_rows);
            parts.push(part);
        }
        Ok((parts, starts))
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.tables.iter().map(|table| table.path().to_owned()).collect()
    }

    /// The row of each node.
    fn order(&self, ids: &NodeIds, budget: &Budget) -> Result<Scratch<u64>> {
        let mut order = ScratchWriter::create(budget)?;
        let mut first_missing = None;
        let feed = |push: &mut dyn FnMut(Id<'_>, u64) -> Result<(), Trouble>| {
            let mut row = 0;
            self.each_id(&mut |id| {
                row += 1;
                push(id, row - 1)
            })
        };
        let stray = ids.in_node_order(budget, feed, |node, row| {
            if order.n_items() < node {
                first_missing.get_or_insert(order.n_items());
            }
            while order.n_items() < node {
                order.push(0)?;
            }
            order.push(row)
        })?;
        if let Some(stray) = stray {
            return Err(stray_error(stray, ids, |find| self.each_id(find)));
        }
        if order.n_items() < ids.n_nodes() {
            first_missing.get_or_insert(order.n_items());
        }
        match first_missing {
            Some(node) => {
                let problem = ids.with_id(node, |id| format!("no row has the id {id}, and every node needs one"))?;
                Err(PartitionError::input(self.tables[0].path(), "rows", problem))
            }
            None => order.finish(),
        }
    }
}

/// Facts about the nodes besides their ids.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nodes {
    /// True if the number of nodes was given.
    pub(super) are_given: bool,
    pub(super) memory_bytes: u64,
}

impl RowTable {
    fn open(file: &TableFile, kind: IdKind, memory_bytes: u64) -> Result<(RowTable, usize)> {
        let path = &file.path;
        match file.format {
            Format::Npy => {
                let rows = NpyRows::open(path)?;
                let dim = rows.width;
                Ok((RowTable::Npy(rows), dim))
            }
            Format::Parquet => RowTable::open_parquet(ParquetFile::open(path, memory_bytes)?, kind),
            Format::Text { delimiter } => {
                let mut file = TextFile::open(path, delimiter)?;
                let are_numbers = |line: &Vec<String>| line.iter().all(|field| field.parse::<f64>().is_ok());
                let is_header = file.head.first().is_some_and(|first| !are_numbers(first));
                let names = if is_header { file.skip_header() } else { file.head.first().cloned().unwrap_or_default() };
                let id = if is_header { find_name(&names, ID_NAMES) } else { None };
                let dim = names.len().saturating_sub(usize::from(id.is_some()));
                Ok((RowTable::Text { file, names, id }, dim))
            }
        }
    }

    fn open_parquet(file: ParquetFile, kind: IdKind) -> Result<(RowTable, usize)> {
        let names = file.names();
        let refuse = |problem: String| Err(PartitionError::input(&file.path, "columns", problem));
        let id = find_name(&names, ID_NAMES);
        if let Some(id) = id {
            match (file.column_type(id), kind) {
                (ColumnType::Whole, IdKind::Numbers) | (ColumnType::Text, IdKind::Texts) => {}
                (_, IdKind::Numbers) => return refuse(format!("{} is not of whole numbers, as ids are", names[id])),
                (_, IdKind::Texts) => return refuse(format!("{} is not of texts, as ids are", names[id])),
            }
        }
        let columns: Vec<usize> = (0..names.len()).filter(|column| Some(*column) != id).collect();
        for column in &columns {
            let is_only = columns.len() == 1;
            match file.column_type(*column) {
                ColumnType::Whole | ColumnType::Float => {}
                ColumnType::List if is_only => {
                    let dim = file.first_list_length(*column)?.unwrap_or(0);
                    return Ok((RowTable::Parquet { file, id, values: Values::List(*column) }, dim));
                }
                ColumnType::List => return refuse(format!("{} holds lists beside other columns", names[*column])),
                ColumnType::Text => return refuse(format!("{} holds texts where numbers are needed", names[*column])),
                ColumnType::Other(found) => {
                    return refuse(format!("{} holds {found} where numbers are needed", names[*column]));
                }
            }
        }
        let dim = columns.len();
        Ok((RowTable::Parquet { file, id, values: Values::Columns(columns) }, dim))
    }

    fn path(&self) -> &Path {
        match self {
            RowTable::Npy(rows) => &rows.path,
            RowTable::Parquet { file, .. } => &file.path,
            RowTable::Text { file, .. } => &file.path,
        }
    }

    fn has_ids(&self) -> bool {
        matches!(self, RowTable::Parquet { id: Some(_), .. } | RowTable::Text { id: Some(_), .. })
    }

    fn each_id(&self, kind: IdKind, take: &mut dyn FnMut(Id<'_>) -> Result<(), Trouble>) -> Result<()> {
        match self {
            RowTable::Parquet { file, id: Some(id), .. } => (0..file.n_groups()).try_for_each(|group| {
                file.read_group(group, &[*id], 1 << 13, &mut |_, arrays| match kind {
                    IdKind::Numbers => {
                        let mut numbers = Vec::new();
                        whole_numbers(&arrays[0], &mut numbers)?;
                        let mut ids = numbers.iter().enumerate();
                        ids.try_for_each(|(row, id)| take(Id::Number(*id)).map_err(|trouble| (row, trouble)))
                    }
                    IdKind::Texts => {
                        let ids = texts(&arrays[0])?;
                        let mut ids = ids.iter().enumerate();
                        ids.try_for_each(|(row, id)| take(Id::Text(id)).map_err(|trouble| (row, trouble)))
                    }
                })
            }),
            RowTable::Text { file, id: Some(id), .. } => file.each_line(&mut |line| {
                let [field] = pick(line, file.delimiter, [*id])?;
                take(Id::parse(&field, kind)?)
            }),
            _ => Ok(()),
        }
    }

    /// Arrays are read where they lie; all else is written to temporary columns first.
    fn stage(&self, stager: &Stager<'_>) -> Result<(StagedPart, u64)> {
        match self {
            RowTable::Npy(rows) => Ok((StagedPart::Npy(rows.clone()), rows.n_rows)),
            RowTable::Parquet { file, values, .. } => Ok((stager.parquet(file, values)?, file.n_rows())),
            RowTable::Text { file, id, .. } => stager.text(file, *id),
        }
    }
}
