//! Findings of an experiment: tables, figures and notes, written to `bench.json` and `bench.md`.

use std::{fmt::Write, path::Path};

use kith_run::{files::publish_bytes, seal::seal};
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::error::LabError;

/// The file of an experiment's findings.
pub const FINDINGS: &str = "bench.json";

/// Findings of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    /// The experiment: `table`, `synthetic`, …
    pub kind: &'static str,
    /// Tables, the most important one first.
    pub tables: Vec<Table>,
    /// Figures.
    pub figures: Vec<Figure>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// Hardware and versions.
    pub machine: Machine,
}

/// Hardware and versions that computed an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// Devices of the runs.
    pub devices: Vec<String>,
    /// The CPU's instruction set.
    pub instruction_set: String,
    /// Threads of the process.
    pub n_threads: usize,
    /// Version of Kith.
    pub kith: String,
    /// Version of libtorch.
    pub libtorch: String,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// The title.
    pub title: String,
    /// The heading of each column.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

/// One cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A text.
    Text(String),
    /// A number and its displayed text.
    Number {
        /// The displayed text.
        text: String,
        /// The number.
        value: f64,
    },
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The title.
    pub title: String,
    /// The drawing.
    pub svg: String,
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// A number with `decimals` decimals; empty if it is not finite.
    pub fn number(value: f64, decimals: usize) -> Cell {
        Cell::shown(value, format!("{value:.decimals$}"))
    }

    /// A number with the given text; empty if it is not finite.
    pub fn shown(value: f64, text: String) -> Cell {
        if value.is_finite() { Cell::Number { text, value } } else { Cell::Text(String::new()) }
    }

    /// The displayed text.
    pub fn as_text(&self) -> &str {
        match self {
            Cell::Text(text) | Cell::Number { text, .. } => text,
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Text(text) => serializer.serialize_str(text),
            Cell::Number { text, value } => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("text", text)?;
                map.serialize_entry("value", value)?;
                map.end()
            }
        }
    }
}

impl Table {
    /// An empty table.
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Table {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        Table { title: title.into(), columns, rows: Vec::new() }
    }

    /// All cells as text, heading first.
    pub fn texts(&self) -> Vec<Vec<String>> {
        let rows = self.rows.iter().map(|row| row.iter().map(|cell| cell.as_text().to_owned()).collect());
        std::iter::once(self.columns.clone()).chain(rows).collect()
    }

    /// Markdown of the table.
    pub fn to_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut rows = self.texts().into_iter();
        let heading = rows.next().unwrap_or_default();
        let mut text = line(&heading) + &format!("|{}\n", "---|".repeat(heading.len()));
        rows.for_each(|row| text += &line(&row));
        text
    }
}

impl Findings {
    /// Writes `bench.json` and `bench.md` to a folder.
    pub fn write(&self, dir: &Path) -> Result<(), LabError> {
        let mut json = seal(&serde_json::to_string_pretty(self).expect("findings have only numbers and texts"));
        json.push('\n');
        publish_bytes(&dir.join(FINDINGS), json.as_bytes())?;
        let mut text = String::new();
        for table in &self.tables {
            let _ = write!(text, "## {}\n\n{}\n", table.title, table.to_markdown());
        }
        self.notes.iter().for_each(|note| text += &format!("- {note}\n"));
        Ok(publish_bytes(&dir.join("bench.md"), text.as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_read_well_and_keep_their_numbers() {
        let mut table = Table::new("accuracy", &["dataset", "gat"]);
        table.rows.push(vec![Cell::text("cora"), Cell::shown(83.04, "83.0 ± 0.7".to_owned())]);
        table.rows.push(vec![Cell::text("ppi"), Cell::number(f64::NAN, 1)]);
        assert_eq!(table.to_markdown(), "| dataset | gat |\n|---|---|\n| cora | 83.0 ± 0.7 |\n| ppi |  |\n");
        let json = serde_json::to_string(&table.rows[0]).unwrap();
        assert_eq!(json, "[\"cora\",{\"text\":\"83.0 ± 0.7\",\"value\":83.04}]");
    }
}
