//! A displayed value and the number behind it.

use std::fmt::{Display, Write};

use crate::escape::Escaped;

/// A displayed value. A number from a file names its source, so that a program can compare the two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    value: Option<String>,
    source: Option<String>,
    tip: Option<String>,
    /// Parts, each with its own value, and their separator; `text` is then not shown.
    parts: Vec<Cell>,
    between: &'static str,
}

impl Cell {
    /// A displayed text.
    pub fn new(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// Adds the exact number, by which tables sort.
    pub fn with_value(self, value: impl Display) -> Cell {
        Cell { value: Some(value.to_string()), ..self }
    }

    /// Adds the source: `FILE#POINTER`, with a JSON pointer (RFC 6901).
    pub fn with_source(self, source: impl Into<String>) -> Cell {
        Cell { source: Some(source.into()), ..self }
    }

    /// Adds a tooltip.
    pub fn with_tip(self, tip: impl Into<String>) -> Cell {
        Cell { tip: Some(tip.into()), ..self }
    }

    /// Several values in one cell, such as mean and standard deviation; tables sort by the first.
    pub fn joined(parts: Vec<Cell>, between: &'static str) -> Cell {
        Cell { value: parts.first().and_then(|part| part.value.clone()), parts, between, ..Cell::default() }
    }

    /// Appends a text, such as a unit.
    pub fn followed_by(self, text: &str) -> Cell {
        Cell::joined(vec![self, Cell::new(text)], " ")
    }

    /// An unknown value.
    pub fn unknown() -> Cell {
        Cell::new("—")
    }

    /// True for numbers and unknown values, which are aligned right.
    pub(super) fn is_number(&self) -> bool {
        self.value.is_some() || self.text == "—"
    }

    /// HTML of its contents.
    pub(super) fn html(&self) -> String {
        if self.parts.is_empty() {
            return Escaped(&self.text).to_string();
        }
        self.parts.iter().map(Cell::span).collect::<Vec<_>>().join(&Escaped(self.between).to_string())
    }

    /// HTML attributes, each after a space.
    pub(super) fn attributes(&self) -> String {
        let mut text = String::new();
        for (name, value) in [("data-value", &self.value), ("data-from", &self.source), ("title", &self.tip)] {
            if let Some(value) = value {
                write!(text, " {name}=\"{}\"", Escaped(value)).expect("a string grows");
            }
        }
        text
    }

    /// HTML of an inline element.
    pub(super) fn span(&self) -> String {
        match self.attributes() {
            none if none.is_empty() => self.html(),
            attributes => format!("<span{attributes}>{}</span>", self.html()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_a_pair_says_where_it_is_from() {
        let part = |text: &str, value: f64| Cell::new(text).with_value(value).with_source(format!("f#/{text}"));
        let pair = Cell::joined(vec![part("70.1", 0.701), part("2.4", 0.024)], " ± ");
        assert_eq!(pair.attributes(), " data-value=\"0.701\"");
        let spans = "<span data-value=\"0.701\" data-from=\"f#/70.1\">70.1</span> ± \
                     <span data-value=\"0.024\" data-from=\"f#/2.4\">2.4</span>";
        assert_eq!(pair.html(), spans);
        assert!(pair.clone().followed_by("<%>").html().ends_with("</span></span> &lt;%&gt;"));
        assert!(pair.is_number() && Cell::unknown().is_number() && !Cell::new("word").is_number());
    }
}
