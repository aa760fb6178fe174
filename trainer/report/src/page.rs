//! A self-contained HTML page: no network, no fonts, no other file.

mod cell;
mod matrix;
mod table;

use std::fmt::Write;

pub use cell::Cell;
pub use matrix::Matrix;
pub use table::{Column, Table};

use crate::{
    escape::Escaped,
    plot::Size,
    style::{COLORS, PAGE, PLOTS},
};

/// Sorts tables on a click, or by an address that ends with `#sort=TABLE,COLUMN,DIRECTION`.
const SCRIPT: &str = include_str!("page/page.js");

/// A page that is written from top to bottom.
#[derive(Debug)]
pub struct Page {
    title: String,
    lead: String,
    footer: String,
    /// Id and title of every section.
    sections: Vec<(String, String)>,
    /// Ids in use.
    ids: Vec<String>,
    body: String,
}

/// A plot with a caption.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    /// Inline SVG, inserted without escaping.
    pub svg: String,
    /// The caption; empty if the plot's title is enough.
    pub caption: String,
}

impl Page {
    /// A page with a title and a one-sentence summary.
    pub fn new(title: impl Into<String>, lead: impl Into<String>) -> Page {
        Page {
            title: title.into(),
            lead: lead.into(),
            footer: String::new(),
            sections: Vec::new(),
            ids: Vec::new(),
            body: String::new(),
        }
    }

    /// Sets the footer.
    pub fn footer(&mut self, text: impl Into<String>) {
        self.footer = text.into();
    }

    /// Begins a section, which is listed in the table of contents.
    pub fn section(&mut self, title: &str) {
        let id = self.free_id(title);
        self.add(format_args!("<h2 id=\"{id}\">{}</h2>\n", Escaped(title)));
        self.sections.push((id, title.to_owned()));
    }

    /// Begins a subsection.
    pub fn subsection(&mut self, title: &str) {
        let id = self.free_id(title);
        self.add(format_args!("<h3 id=\"{id}\">{}</h3>\n", Escaped(title)));
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.add(format_args!("<p>{}</p>\n", Escaped(text)));
    }

    /// Adds a highlighted paragraph.
    pub fn note(&mut self, text: &str) {
        self.add(format_args!("<p class=\"note\">{}</p>\n", Escaped(text)));
    }

    /// Adds a few key values in large type.
    pub fn tiles(&mut self, values: &[(&str, Cell)]) {
        self.body.push_str("<dl class=\"tiles\">");
        for (name, cell) in values {
            self.add(format_args!("<div><dt>{}</dt><dd>{}</dd></div>", Escaped(name), cell.span()));
        }
        self.body.push_str("</dl>\n");
    }

    /// Adds a list of names and values.
    pub fn facts(&mut self, values: &[(&str, Cell)]) {
        self.body.push_str("<dl class=\"facts\">");
        for (name, cell) in values {
            self.add(format_args!("<dt>{}</dt><dd>{}</dd>", Escaped(name), cell.span()));
        }
        self.body.push_str("</dl>\n");
    }

    /// Adds a sortable table. The ids of the table and its columns derive from their names.
    pub fn table(&mut self, table: &Table) {
        let id = self.free_id(&table.name);
        self.body.push_str(&table.html(&id));
    }

    /// Adds a matrix of counts by class.
    pub fn matrix(&mut self, matrix: &Matrix) {
        let id = self.free_id(&matrix.name);
        self.body.push_str(&matrix.html(&id));
    }

    /// Adds plots side by side; a wide plot has its own row.
    pub fn figures(&mut self, figures: &[Figure]) {
        if figures.is_empty() {
            return;
        }
        self.body.push_str("<div class=\"figures\">");
        for Figure { svg, caption } in figures {
            let class = if is_wide(svg) { " class=\"wide\"" } else { "" };
            self.add(format_args!("<figure{class}>{svg}"));
            if !caption.is_empty() {
                self.add(format_args!("<figcaption>{}</figcaption>", Escaped(caption)));
            }
            self.body.push_str("</figure>");
        }
        self.body.push_str("</div>\n");
    }

    /// Adds preformatted text that opens on a click.
    pub fn details(&mut self, summary: &str, text: &str) {
        let (summary, text) = (Escaped(summary), Escaped(text));
        self.add(format_args!("<details><summary>{summary}</summary><pre tabindex=\"0\">{text}</pre></details>\n"));
    }

    /// The whole page as HTML.
    pub fn html(&self) -> String {
        let title = Escaped(&self.title);
        let mut nav = String::new();
        if self.sections.len() > 1 {
            nav.push_str("<nav aria-label=\"Contents\"><ul>");
            for (id, title) in &self.sections {
                write!(nav, "<li><a href=\"#{id}\">{}</a></li>", Escaped(title)).expect("a string grows");
            }
            nav.push_str("</ul></nav>\n");
        }
        let lead =
            if self.lead.is_empty() { String::new() } else { format!("<p class=\"lead\">{}</p>", Escaped(&self.lead)) };
        let footer = if self.footer.is_empty() {
            String::new()
        } else {
            format!("<footer>{}</footer>\n", Escaped(&self.footer))
        };
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
             <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n\
             <style>\n{COLORS}{PLOTS}{PAGE}</style>\n</head>\n<body>\n{nav}<main>\n<header><h1>{title}</h1>{lead}</header>\n\
             {}{footer}</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            self.body
        )
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        self.body.write_fmt(element).expect("a string grows");
    }

    /// An unused id.
    fn free_id(&mut self, name: &str) -> String {
        let plain = plain(name);
        let free = (1..)
            .map(|n| if n == 1 { plain.clone() } else { format!("{plain}-{n}") })
            .find(|id| !self.ids.contains(id))
            .expect("numbers do not end");
        self.ids.push(free.clone());
        free
    }
}

/// True if a plot needs its own row.
fn is_wide(svg: &str) -> bool {
    let inside = svg.split_once("viewBox=\"0 0 ").map(|(_, rest)| rest);
    let width = inside.and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    width.is_some_and(|width| width > 1.25 * Size::HALF.width)
}

/// A name as an id: lowercase letters, digits and dashes.
fn plain(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let id = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-");
    if id.is_empty() { "part".to_owned() } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::lines::Lines;

    fn page() -> Page {
        let mut page = Page::new("Runs of <cora>", "A & B");
        page.section("Results");
        page.tiles(&[("test", Cell::new("83.40 %").with_value(0.834).with_source("report.json#/test"))]);
        page.section("Results");
        page.facts(&[("device", Cell::new("\"cpu\""))]);
        page.note("still <running>");
        page.details("run file", "[train]\nepochs = 5 # <&>");
        page.figures(&[Figure { svg: "<svg></svg>".to_owned(), caption: "a < b".to_owned() }]);
        page
    }

    #[test]
    fn all_text_is_escaped_and_sections_are_listed() {
        let html = page().html();
        for text in
            ["<h1>Runs of &lt;cora&gt;</h1>", "A &amp; B", "&quot;cpu&quot;", "still &lt;running&gt;", "a &lt; b"]
        {
            assert!(html.contains(text), "{text}: {html}");
        }
        assert!(html.contains("<pre tabindex=\"0\">[train]\nepochs = 5 # &lt;&amp;&gt;</pre>"));
        assert!(html.contains("<a href=\"#results\">Results</a>") && html.contains("<a href=\"#results-2\">"));
        assert!(html.contains("<h2 id=\"results-2\">"));
        assert!(html.contains("<span data-value=\"0.834\" data-from=\"report.json#/test\">83.40 %</span>"), "{html}");
    }

    #[test]
    fn a_page_needs_nothing_else() {
        let html = page().html();
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("prefers-color-scheme:dark") && html.contains("@media print"));
    }

    #[test]
    fn wide_plots_have_a_row_for_themselves() {
        let plot = |width: f64| Lines { size: Size { width, height: 300.0 }, ..Lines::default() }.svg();
        assert!(is_wide(&plot(880.0)) && !is_wide(&plot(520.0)) && !is_wide("<svg></svg>"));
    }

    #[test]
    fn ids_are_plain() {
        assert_eq!(plain("Where the time went (s)"), "where-the-time-went-s");
        assert_eq!(plain("±"), "part");
    }
}
