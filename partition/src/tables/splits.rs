//! Splits: read from tables of ids and parts, or drawn by a rule.

use std::path::{Path, PathBuf};

use kith_store::SplitPart;

use crate::{
    PartitionError, Result,
    csr::{Budget, StoreBuilder},
    tables::{
        fields::{number_id, pick, shown_bytes},
        files::{Format, TableFile, Trouble, find_all, find_in},
        ids::{Id, NodeIds, check_n_rows, stray_error},
        names::{ID_NAMES, PART_NAMES, find_name},
        npy::NpyRows,
        rules::{IdKind, SplitRule},
        scratch::{Cursor, PerThread, Scratch, ScratchWriter},
        text::TextFile,
    },
};

/// Source of a split.
#[derive(Debug)]
pub(super) enum SplitSource {
    /// Tables of ids and parts.
    Tables { tables: Vec<SplitTable>, kind: IdKind },
    /// A rule.
    Drawn(SplitRule),
}

#[derive(Debug)]
pub(super) enum SplitTable {
    /// The part of each id, or of each node in order.
    Parts { file: TextFile, id: Option<usize>, part: usize },
    /// The ids of one part.
    Ids { file: TextFile, part: SplitPart },
    /// The ids of one part.
    Npy { rows: NpyRows, part: SplitPart },
}

impl SplitSource {
    /// Looks at the files of a split, if it has any.
    pub(super) fn open(rule: &SplitRule, kind: IdKind) -> Result<SplitSource> {
        let tables = match rule {
            SplitRule::Path(path) if path.is_dir() => open_folder(path, kind)?,
            SplitRule::Path(path) => {
                let files = find_all(std::slice::from_ref(path))?;
                files.iter().map(|file| SplitTable::open_parts(file, kind)).collect::<Result<_>>()?
            }
            SplitRule::Parts { train, valid, test } => {
                let parts = [(train, SplitPart::Train), (valid, SplitPart::Valid), (test, SplitPart::Test)];
                let open = |(path, part): (&PathBuf, SplitPart)| {
                    let files = find_all(std::slice::from_ref(path))?;
                    files.iter().map(|file| SplitTable::open_ids(file, part, kind)).collect::<Result<Vec<_>>>()
                };
                parts.into_iter().map(open).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect()
            }
            drawn => return Ok(SplitSource::Drawn(drawn.clone())),
        };
        Ok(SplitSource::Tables { tables, kind })
    }

    /// Reads the parts of all nodes from the files; `None` if a rule will draw them.
    pub(super) fn stage(&self, ids: &NodeIds, nodes_are_given: bool, budget: &Budget) -> Result<Option<Scratch<u8>>> {
        let SplitSource::Tables { tables, kind } = self else { return Ok(None) };
        let path = tables[0].path();
        let refuse = |problem: String| PartitionError::input(path, "parts", problem);
        let mut parts = ScratchWriter::create(budget)?;
        if tables.iter().any(|table| !table.has_ids()) {
            ids.check_by_place(path)?;
            each(tables, *kind, &mut |_, part| Ok(parts.push(part as u8)?))?;
            check_n_rows("part", parts.n_items(), ids.n_nodes(), nodes_are_given).map_err(refuse)?;
            return parts.finish().map(Some);
        }
        let feed = |push: &mut dyn FnMut(Id<'_>, u64) -> Result<(), Trouble>| {
            each(tables, *kind, &mut |id, part| id.map_or(Ok(()), |id| push(id, part as u64)))
        };
        let stray = ids.in_node_order(budget, feed, |node, part| {
            while parts.n_items() < node {
                parts.push(SplitPart::None as u8)?;
            }
            parts.push(part as u8) // Lossless: it is a `SplitPart`.
        })?;
        if let Some(stray) = stray {
            let each_id = |find: &mut dyn FnMut(Id<'_>) -> Result<(), Trouble>| {
                each(tables, *kind, &mut |id, _| id.map_or(Ok(()), &mut *find))
            };
            return Err(stray_error(stray, ids, each_id));
        }
        while parts.n_items() < ids.n_nodes() {
            parts.push(SplitPart::None as u8)?;
        }
        parts.finish().map(Some)
    }
}

/// Writes a split whose parts lie in the order of the nodes.
pub(super) fn write_given(parts: &Scratch<u8>, name: &str, builder: &mut StoreBuilder<'_>) -> Result<()> {
    let cursors = PerThread::new(|| Cursor::new(parts));
    builder.split(name, |node| {
        Ok(match cursors.get().at(node)? {
            Some(1) => SplitPart::Train,
            Some(2) => SplitPart::Valid,
            Some(3) => SplitPart::Test,
            _ => SplitPart::None,
        })
    })
}

fn open_folder(folder: &Path, kind: IdKind) -> Result<Vec<SplitTable>> {
    let mut tables = Vec::new();
    for file in find_in(folder)? {
        match parse_part(file.stem().as_bytes()) {
            Some(part) if part != SplitPart::None => tables.push(SplitTable::open_ids(&file, part, kind)?),
            _ => {
                let problem = "is none of train, valid and test";
                return Err(PartitionError::input(&file.path, "name", problem));
            }
        }
    }
    for (part, name) in [(SplitPart::Train, "train"), (SplitPart::Valid, "valid"), (SplitPart::Test, "test")] {
        let n_files = tables.iter().filter(|table| table.only_part() == Some(part)).count();
        if n_files != 1 {
            let problem = format!("holds {n_files} files for {name}, not one");
            return Err(PartitionError::input(folder, "folder", problem));
        }
    }
    Ok(tables)
}

/// The name of a part; a validation part has several in use.
fn parse_part(field: &[u8]) -> Option<SplitPart> {
    match field.to_ascii_lowercase().as_slice() {
        b"train" => Some(SplitPart::Train),
        b"valid" | b"val" | b"validation" => Some(SplitPart::Valid),
        b"test" => Some(SplitPart::Test),
        b"" | b"none" => Some(SplitPart::None),
        _ => None,
    }
}

impl SplitTable {
    fn open_parts(file: &TableFile, kind: IdKind) -> Result<SplitTable> {
        let Format::Text { delimiter } = file.format else {
            let problem = "an id and a part on each line are read from csv and tsv: give arrays of ids part by part";
            return Err(PartitionError::input(&file.path, "name", problem));
        };
        let mut file = TextFile::open(&file.path, delimiter)?;
        let Some(first) = file.head.first() else {
            return Err(PartitionError::input(&file.path, "end of file", "holds no parts"));
        };
        let (mut id, mut part) = if first.len() > 1 { (Some(0), 1) } else { (None, 0) };
        let named = find_name(first, PART_NAMES);
        if let Some(named) = named {
            part = named;
            id = find_name(first, ID_NAMES).or(id.filter(|id| *id != named));
        }
        let is_part = |line: &[String]| line.get(part).is_some_and(|field| parse_part(field.as_bytes()).is_some());
        let id_is_number = id.is_some_and(|id| first.get(id).is_some_and(|field| number_id(field.as_bytes()).is_ok()));
        let parts_follow = !is_part(first) && file.head.get(1).is_some_and(|second| is_part(second));
        if named.is_some() || parts_follow && !(kind == IdKind::Numbers && id_is_number) {
            file.skip_header();
        }
        Ok(SplitTable::Parts { file, id, part })
    }

    fn open_ids(file: &TableFile, part: SplitPart, kind: IdKind) -> Result<SplitTable> {
        match file.format {
            Format::Text { delimiter } => {
                let mut file = TextFile::open(&file.path, delimiter)?;
                if let Some(first) = file.head.first() {
                    let is_number = first.first().is_some_and(|field| number_id(field.as_bytes()).is_ok());
                    if find_name(first, ID_NAMES) == Some(0) || kind == IdKind::Numbers && !is_number {
                        file.skip_header();
                    }
                }
                Ok(SplitTable::Ids { file, part })
            }
            Format::Npy => {
                let rows = NpyRows::open(&file.path)?;
                rows.check_whole()?;
                let refuse = |problem: &str| Err(PartitionError::input(&file.path, "header", problem));
                match kind {
                    _ if !rows.has_one_dimension => refuse("one dimension of ids is needed"),
                    IdKind::Texts => refuse("ids are numbers here, and texts in the edges"),
                    IdKind::Numbers => Ok(SplitTable::Npy { rows, part }),
                }
            }
            Format::Parquet => Err(PartitionError::input(&file.path, "name", "splits are read from csv, tsv and npy")),
        }
    }

    fn path(&self) -> &Path {
        match self {
            SplitTable::Parts { file, .. } | SplitTable::Ids { file, .. } => &file.path,
            SplitTable::Npy { rows, .. } => &rows.path,
        }
    }

    fn has_ids(&self) -> bool {
        !matches!(self, SplitTable::Parts { id: None, .. })
    }

    fn only_part(&self) -> Option<SplitPart> {
        match self {
            SplitTable::Parts { .. } => None,
            SplitTable::Ids { part, .. } | SplitTable::Npy { part, .. } => Some(*part),
        }
    }
}

/// Gets part after part, with its id if it has one.
type TakePart<'t> = dyn FnMut(Option<Id<'_>>, SplitPart) -> Result<(), Trouble> + 't;

/// Hands over the part of each id, or of each node in order.
fn each(tables: &[SplitTable], kind: IdKind, take: &mut TakePart<'_>) -> Result<()> {
    for table in tables {
        match table {
            SplitTable::Parts { file, id, part } => file.each_line(&mut |line| {
                let [field] = pick(line, file.delimiter, [*part])?;
                let not_a_part = || format!("{} is none of train, valid and test", shown_bytes(&field));
                let part = parse_part(&field).ok_or_else(not_a_part)?;
                match id {
                    Some(id) => {
                        let [id] = pick(line, file.delimiter, [*id])?;
                        take(Some(Id::parse(&id, kind)?), part)
                    }
                    None => take(None, part),
                }
            })?,
            SplitTable::Ids { file, part } => file.each_line(&mut |line| {
                let [id] = pick(line, file.delimiter, [0])?;
                take(Some(Id::parse(&id, kind)?), *part)
            })?,
            SplitTable::Npy { rows, part } => rows.each::<u64>(&mut |id| take(Some(Id::Number(id)), *part))?,
        }
    }
    Ok(())
}
