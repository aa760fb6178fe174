//! Label tables: one class per node, by position or by id, or several classes per node as an array of 0 and 1.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use kith_store::NO_CLASS;

use crate::{
    PartitionError, Result,
    csr::Budget,
    tables::{
        fields::{pick, shown_bytes, utf8},
        files::{Format, TableFile, Trouble, find_all},
        ids::{Id, NodeIds, check_n_rows, stray_error},
        names::{ID_NAMES, LABEL_NAMES, find_name},
        npy::{Class, NpyRows},
        rules::IdKind,
        scratch::{Scratch, ScratchWriter},
        staged_labels::StagedLabels,
        text::TextFile,
    },
};

/// Beyond this, texts in the label column are hardly classes.
const MAX_NAMES: usize = 1 << 16;

/// All label tables, one behind the other.
#[derive(Debug)]
pub(super) struct LabelTables {
    tables: Vec<LabelTable>,
    kind: IdKind,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    has_ids: bool,
    values: Values,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    Numbers,
    Names,
    /// Words of bits, one bit per class.
    Bits(usize),
}

#[derive(Debug)]
enum LabelTable {
    Npy(NpyRows),
    Text { file: TextFile, id: Option<usize>, label: usize },
}

/// A label as a table has it.
enum Label<'a> {
    None,
    Number(u64),
    Name(&'a str),
}

/// Gets label after label, with its id if it has one.
type TakeLabel<'t> = dyn FnMut(Option<Id<'_>>, Label<'_>) -> Result<(), Trouble> + 't;

impl LabelTables {
    /// Looks at all files: which columns count, and what labels are.
    pub(super) fn open(paths: &[PathBuf], kind: IdKind) -> Result<Option<LabelTables>> {
        let mut tables = Vec::new();
        let mut known = None;
        for file in find_all(paths)? {
            let (table, form) = LabelTable::open(&file, kind)?;
            if *known.get_or_insert(form) != form {
                let problem = "labels have another form than in the files before: ids, numbers or texts, or classes";
                return Err(PartitionError::input(&file.path, "columns", problem));
            }
            tables.push(table);
        }
        Ok(known.map(|form| LabelTables { tables, kind, form }))
    }

    /// Hands over the ids of all labels, in order.
    pub(super) fn each_id(&self, take: &mut dyn FnMut(Id<'_>) -> Result<(), Trouble>) -> Result<()> {
        if !self.form.has_ids {
            return Ok(());
        }
        self.each(&mut |id, _| id.map_or(Ok(()), &mut *take))
    }

    /// Reads all labels and puts them in the order of the nodes.
    pub(super) fn stage(
        &self,
        ids: &NodeIds,
        nodes_are_given: bool,
        n_classes: Option<u64>,
        budget: &Budget,
    ) -> Result<StagedLabels> {
        let n_nodes = ids.n_nodes();
        if !self.form.has_ids {
            ids.check_by_place(self.tables[0].path())?;
        }
        let check = |n_rows: u64| {
            check_n_rows("label", n_rows, n_nodes, nodes_are_given)
                .map_err(|problem| PartitionError::input(self.tables[0].path(), "labels", problem))
        };
        if let Values::Bits(found) = self.form.values {
            let arrays: Vec<NpyRows> = self.tables.iter().filter_map(LabelTable::array).cloned().collect();
            check(arrays.iter().map(|rows| rows.n_rows).sum())?;
            let n_classes = n_classes.unwrap_or(found as u64);
            if n_classes < found as u64 {
                let problem = format!("{found} classes where --classes says {n_classes}");
                return Err(PartitionError::input(self.tables[0].path(), "header", problem));
            }
            return Ok(StagedLabels::Bits { n_classes, arrays });
        }
        let mut classes = Classes::new(n_classes);
        let mut by_node = ScratchWriter::create(budget)?;
        if self.form.has_ids {
            let feed = |push: &mut dyn FnMut(Id<'_>, u64) -> Result<(), Trouble>| {
                self.each(&mut |id, label| {
                    let class = classes.of(label)?;
                    id.map_or(Ok(()), |id| push(id, u64::from(class)))
                })
            };
            let stray = ids.in_node_order(budget, feed, |node, class| {
                while by_node.n_items() < node {
                    by_node.push(NO_CLASS)?;
                }
                by_node.push(class as u32) // Lossless: it was widened from u32.
            })?;
            if let Some(stray) = stray {
                return Err(stray_error(stray, ids, |find| self.each_id(find)));
            }
            while by_node.n_items() < n_nodes {
                by_node.push(NO_CLASS)?;
            }
        } else {
            self.each(&mut |_, label| Ok(by_node.push(classes.of(label)?)?))?;
            check(by_node.n_items())?;
        }
        classes
            .finish(by_node.finish()?)
            .map_err(|problem| PartitionError::input(self.tables[0].path(), "labels", problem))
    }

    fn each(&self, take: &mut TakeLabel<'_>) -> Result<()> {
        for table in &self.tables {
            match table {
                LabelTable::Npy(rows) => {
                    rows.each::<Class>(&mut |Class(class)| take(None, class.map_or(Label::None, Label::Number)))?
                }
                LabelTable::Text { file, id, label } => file.each_line(&mut |line| {
                    let [label] = pick(line, file.delimiter, [*label])?;
                    let label = self.parse(&label)?;
                    match id {
                        Some(id) => {
                            let [id] = pick(line, file.delimiter, [*id])?;
                            take(Some(Id::parse(&id, self.kind)?), label)
                        }
                        None => take(None, label),
                    }
                })?,
            }
        }
        Ok(())
    }

    /// A negative number and an empty field mean that a node has no label.
    fn parse<'a>(&self, field: &'a [u8]) -> Result<Label<'a>, Trouble> {
        if field.is_empty() {
            return Ok(Label::None);
        }
        if self.form.values == Values::Names {
            return Ok(Label::Name(utf8(field)?));
        }
        match number_label(field) {
            Some(number) => Ok(u64::try_from(number).map_or(Label::None, Label::Number)),
            None => Err(format!("{} is not a whole number, as the labels before are", shown_bytes(field)).into()),
        }
    }
}

fn number_label(field: &[u8]) -> Option<i64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

impl LabelTable {
    fn open(file: &TableFile, kind: IdKind) -> Result<(LabelTable, Form)> {
        match file.format {
            Format::Npy => {
                let rows = NpyRows::open(&file.path)?;
                if rows.width == 0 {
                    return Err(PartitionError::input(&file.path, "header", "labels without any class"));
                }
                // One column is one class per node, however many dimensions the array has.
                let values = if rows.width == 1 { Values::Numbers } else { Values::Bits(rows.width) };
                if values == Values::Numbers {
                    rows.check_whole()?;
                }
                Ok((LabelTable::Npy(rows), Form { has_ids: false, values }))
            }
            Format::Text { delimiter } => {
                let mut file = TextFile::open(&file.path, delimiter)?;
                let (id, label) = label_columns(&mut file, kind);
                let is_number = |line: &Vec<String>| {
                    line.get(label).is_none_or(|field| field.is_empty() || number_label(field.as_bytes()).is_some())
                };
                let values = if file.head.first().is_none_or(is_number) { Values::Numbers } else { Values::Names };
                Ok((LabelTable::Text { file, id, label }, Form { has_ids: id.is_some(), values }))
            }
            Format::Parquet => Err(PartitionError::input(&file.path, "name", "labels are read from csv, tsv and npy")),
        }
    }

    fn path(&self) -> &Path {
        match self {
            LabelTable::Npy(rows) => &rows.path,
            LabelTable::Text { file, .. } => &file.path,
        }
    }

    fn array(&self) -> Option<&NpyRows> {
        match self {
            LabelTable::Npy(rows) => Some(rows),
            LabelTable::Text { .. } => None,
        }
    }
}

/// The columns of the id, if there is one, and of the label; a header is left behind.
///
/// A first line is a header if it names the label, or holds none of the numbers that the line below it holds.
pub(super) fn label_columns(file: &mut TextFile, kind: IdKind) -> (Option<usize>, usize) {
    let Some(first) = file.head.first() else { return (None, 0) };
    let (mut id, mut label) = if first.len() > 1 { (Some(0), 1) } else { (None, 0) };
    let named = find_name(first, LABEL_NAMES);
    let is_finite = |field: &String| field.parse::<f64>().is_ok_and(f64::is_finite);
    let is_number = |line: &[String], column: usize| line.get(column).is_some_and(is_finite);
    let numbers_follow = |column| !is_number(first, column) && file.head.get(1).is_some_and(|s| is_number(s, column));
    let id_is_header = kind == IdKind::Numbers && id.is_some_and(numbers_follow);
    if let Some(named) = named {
        label = named;
        id = find_name(first, ID_NAMES).or(id.filter(|id| *id != named));
    }
    let label_is_header = numbers_follow(label) && id.is_none_or(|id| !is_number(first, id) || kind == IdKind::Texts);
    if named.is_some() || id_is_header || label_is_header {
        file.skip_header();
    }
    (id, label)
}

/// The classes met so far.
struct Classes {
    given: Option<u64>,
    n_classes: u64,
    n_labeled: u64,
    names: HashMap<String, u32>,
}

impl Classes {
    fn new(given: Option<u64>) -> Classes {
        Classes { given, n_classes: 0, n_labeled: 0, names: HashMap::new() }
    }

    fn of(&mut self, label: Label<'_>) -> Result<u32, Trouble> {
        let class = match label {
            Label::None => return Ok(NO_CLASS),
            Label::Number(class) => class,
            Label::Name(name) => match self.names.get(name) {
                Some(class) => u64::from(*class),
                None if self.names.len() == MAX_NAMES => {
                    return Err(format!("more than {MAX_NAMES} different texts are hardly classes").into());
                }
                None => {
                    let class = self.names.len() as u32;
                    self.names.insert(name.to_owned(), class);
                    u64::from(class)
                }
            },
        };
        if let Some(given) = self.given
            && class >= given
        {
            return Err(match label {
                Label::Name(_) => format!("more different labels than the {given} that --classes says").into(),
                _ => format!("label {class} is outside 0..{given}, which --classes says").into(),
            });
        }
        let small = u32::try_from(class).ok().filter(|class| *class != NO_CLASS);
        let small = small.ok_or_else(|| Trouble::Here(format!("label {class} is too large for a class")))?;
        self.n_classes = self.n_classes.max(class + 1);
        self.n_labeled += 1;
        Ok(small)
    }

    /// Classes that have names are ordered by them.
    fn finish(self, by_node: Scratch<u32>) -> Result<StagedLabels, String> {
        if self.n_labeled == 0 {
            return Err("no node has a label".into());
        }
        let mut names: Vec<(String, u32)> = self.names.into_iter().collect();
        names.sort_unstable();
        let mut class_of_met = vec![0; names.len()];
        for (class, (_, met)) in (0u32..).zip(&names) {
            class_of_met[*met as usize] = class;
        }
        Ok(StagedLabels::Classes {
            n_classes: self.given.unwrap_or(self.n_classes),
            n_labeled: self.n_labeled,
            by_node,
            class_of_met,
            names: names.into_iter().map(|(name, _)| name).collect(),
        })
    }
}
