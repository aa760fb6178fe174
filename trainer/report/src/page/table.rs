//! Tables that sort on a click on a column's head.

use super::{Cell, plain};
use crate::escape::Escaped;

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Name, from which the id derives.
    pub name: String,
    /// Caption above the table; may be empty.
    pub caption: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Sortable rows.
    pub rows: Vec<Vec<Cell>>,
    /// Rows that stay at the end, such as means.
    pub foot: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Clone, Debug, Default)]
pub struct Column {
    /// Its head.
    pub name: String,
    /// Tooltip of the head; may be empty.
    pub tip: String,
}

impl Column {
    /// Columns with these names.
    pub fn named<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Vec<Column> {
        names.into_iter().map(|name| Column { name: name.as_ref().to_owned(), tip: String::new() }).collect()
    }

    /// Adds a tooltip.
    pub fn with_tip(self, tip: impl Into<String>) -> Column {
        Column { tip: tip.into(), ..self }
    }
}

impl Table {
    pub(super) fn html(&self, id: &str) -> String {
        // A column of numbers is aligned right, including its head.
        let mut is_number = Vec::new();
        for column in 0..self.columns.len() {
            let mut cells = self.rows.iter().filter_map(|row| row.get(column)).peekable();
            is_number.push(cells.peek().is_some() && cells.all(Cell::is_number));
        }
        let class = |column: usize| if is_number.get(column) == Some(&true) { " class=\"n\"" } else { "" };
        let label = if self.caption.is_empty() { &self.name } else { &self.caption };
        let mut html =
            format!("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">", Escaped(label));
        html += &format!("<table id=\"{id}\">");
        if !self.caption.is_empty() {
            html += &format!("<caption>{}</caption>", Escaped(&self.caption));
        }
        html += "<thead><tr>";
        let mut taken: Vec<String> = Vec::new();
        for (place, Column { name, tip }) in self.columns.iter().enumerate() {
            let mut key = plain(name);
            if taken.contains(&key) {
                key = format!("{key}-{place}");
            }
            let tip = if tip.is_empty() { String::new() } else { format!(" title=\"{}\"", Escaped(tip)) };
            let head = format!("<button type=\"button\"{tip}>{}</button>", Escaped(name));
            html += &format!("<th scope=\"col\"{} data-column=\"{key}\">{head}</th>", class(place));
            taken.push(key);
        }
        html += "</tr></thead>\n";
        let rows_of = |rows: &[Vec<Cell>]| -> String {
            let of_cell = |(place, cell): (usize, &Cell)| {
                format!("<td{}{}>{}</td>", class(place), cell.attributes(), cell.html())
            };
            rows.iter()
                .map(|row| format!("<tr>{}</tr>\n", row.iter().enumerate().map(of_cell).collect::<String>()))
                .collect()
        };
        html += &format!("<tbody>\n{}</tbody>\n", rows_of(&self.rows));
        if !self.foot.is_empty() {
            html += &format!("<tfoot>\n{}</tfoot>\n", rows_of(&self.foot));
        }
        html + "</table></div>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_carry_what_is_sorted_by() {
        let row = |key: u64, test: f64| {
            vec![
                Cell::new(format!("run <{key}>")),
                Cell::new(format!("{:.1}", 100.0 * test)).with_value(test).with_source(format!("r.json#/{key}")),
            ]
        };
        let table = Table {
            name: "results".to_owned(),
            columns: Column::named(["run", "test (%)", "test (%)"]),
            rows: vec![row(1, 0.75), row(2, 0.8125)],
            foot: vec![vec![Cell::new("mean"), Cell::unknown()]],
            ..Table::default()
        };
        let html = table.html("results-2");
        assert!(html.contains("<table id=\"results-2\">"), "{html}");
        assert!(
            html.contains(
                "<td>run &lt;1&gt;</td><td class=\"n\" data-value=\"0.75\" data-from=\"r.json#/1\">75.0</td>"
            )
        );
        assert!(
            html.contains(
                "<th scope=\"col\" class=\"n\" data-column=\"test\"><button type=\"button\">test (%)</button>"
            )
        );
        assert!(html.contains("data-column=\"test-2\""), "columns of one name have addresses of their own");
        let (body, foot) = html.split_once("</tbody>").unwrap();
        assert!(foot.contains("<td class=\"n\">—</td>") && !body.contains("mean"), "{html}");
    }
}
