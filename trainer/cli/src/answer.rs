//! Output on stdout: one JSON object for programs, aligned lines for people.

use std::io::{self, Write};

use serde::Serialize;

/// Prints text unchanged.
pub fn print(text: &str) -> anyhow::Result<()> {
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// Prints one JSON object on one line.
pub fn print_json(answer: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string(answer)? + "\n"))
}

/// Prints `name  value` lines with aligned values.
pub fn print_fields(fields: &[(&str, String)]) -> anyhow::Result<()> {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: String = fields.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect();
    print(&lines)
}

/// Prints an aligned table; the first row is the heading, and numbers are aligned right.
pub fn print_table(rows: &[Vec<String>]) -> anyhow::Result<()> {
    print(&table_of(rows))
}

/// The text of such a table.
pub(crate) fn table_of(rows: &[Vec<String>]) -> String {
    let n_cells = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width_of = |cell: usize| rows.iter().filter_map(|row| row.get(cell)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..n_cells).map(|cell| width_of(cell).unwrap_or(0)).collect();
    let is_number = |cell: usize| {
        rows.iter().skip(1).filter_map(|row| row.get(cell)).all(|c| c.starts_with(|c: char| c.is_ascii_digit()))
    };
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(place, cell)| {
                let width = widths[place];
                if is_number(place) { format!("{cell:>width$}") } else { format!("{cell:width$}") }
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
