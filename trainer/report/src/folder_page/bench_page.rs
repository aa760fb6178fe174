//! Report of a bench: its tables, figures and notes, unchanged.

use std::path::Path;

use crate::page::{Cell, Column, Figure, Page, Table};
use serde_json::Value;

use super::{error::ReportError, folder::BENCH, json::JsonPart};

/// Report of the `bench.json` of a bench.
pub(super) fn page(dir: &Path, bench: &JsonPart) -> Result<Page, ReportError> {
    let wrong = |problem: String| ReportError::file(&dir.join(BENCH), problem);
    let kind = bench.text("/kind").ok_or_else(|| wrong("no kind: it is no bench of ours".to_owned()))?;
    let title = bench.text("/title").map_or_else(|| format!("Bench: {kind}"), str::to_owned);
    let mut page = Page::new(title, bench.text("/about").unwrap_or_default());
    page.footer(format!("Made by kith {} of {}.", env!("CARGO_PKG_VERSION"), dir.display()));
    for note in items(bench, "/notes") {
        page.note(note.value().as_str().unwrap_or_default());
    }
    for (place, part) in items(bench, "/tables").iter().enumerate() {
        let title = part.text("/title").unwrap_or("Table");
        page.section(title);
        page.table(&table(title, part).map_err(|problem| wrong(format!("table {place}: {problem}")))?);
    }
    let mut figures = Vec::new();
    for (place, part) in items(bench, "/figures").iter().enumerate() {
        let svg = part.text("/svg").filter(|svg| is_plain(svg));
        let svg = svg.ok_or_else(|| wrong(format!("figure {place} is no plain SVG")))?;
        let caption = part.text("/caption").unwrap_or_default(); // The title is part of the drawing.
        figures.push(Figure { svg: svg.to_owned(), caption: caption.to_owned() });
    }
    if !figures.is_empty() {
        page.section("Figures");
        page.figures(&figures);
    }
    let machine: Vec<(String, JsonPart)> = bench.at("/machine").map(|machine| machine.fields()).unwrap_or_default();
    if !machine.is_empty() {
        page.section("Machine");
        let facts: Vec<(&str, Cell)> = machine.iter().map(|(name, part)| (name.as_str(), part.as_written())).collect();
        page.facts(&facts);
    }
    Ok(page)
}

fn items(part: &JsonPart, pointer: &str) -> Vec<JsonPart> {
    part.at(pointer).map(|list| list.items()).unwrap_or_default()
}

fn table(name: &str, part: &JsonPart) -> Result<Table, String> {
    let columns: Vec<JsonPart> = items(part, "/columns");
    let names: Option<Vec<&str>> = columns.iter().map(|column| column.value().as_str()).collect();
    let names = names.filter(|names| !names.is_empty()).ok_or("columns are a list of names")?;
    let rows =
        items(part, "/rows").iter().map(|row| row.items().iter().map(cell).collect()).collect::<Vec<Vec<Cell>>>();
    if let Some(row) = rows.iter().position(|row| row.len() != names.len()) {
        return Err(format!("row {row} has {} cells, there are {} columns", rows[row].len(), names.len()));
    }
    Ok(Table { name: name.to_owned(), columns: Column::named(names), rows, ..Table::default() })
}

/// A text, a number, or a text with its number.
fn cell(part: &JsonPart) -> Cell {
    match (part.value(), part.text("/text")) {
        (Value::Object(_), Some(text)) => match part.at("/value").filter(|value| value.value().is_number()) {
            Some(_) => part.cell("/value", |_| text.to_owned()),
            None => Cell::new(text),
        },
        _ => part.as_written(),
    }
}

/// True if an SVG has no scripts or external references.
fn is_plain(svg: &str) -> bool {
    let lower = svg.to_ascii_lowercase();
    let acts = ["<script", "<foreignobject", "<iframe", "<image", "<use", "href", "javascript:", "url(", "@import"];
    let handles = |(place, _): (usize, &str)| {
        let name: String = lower[place + 3..].chars().take_while(char::is_ascii_alphabetic).collect();
        !name.is_empty() && lower[place + 3 + name.len()..].trim_start().starts_with('=')
    };
    lower.starts_with("<svg")
        && lower.trim_end().ends_with("</svg>")
        && !acts.iter().any(|act| lower.contains(act))
        && !["\non", "\ton", " on", "\"on", "'on", "/on"].iter().any(|on| lower.match_indices(on).any(handles))
}
