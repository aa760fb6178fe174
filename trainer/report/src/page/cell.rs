//! What is shown of a value, and the value itself.

use std::fmt::{Display, Write};

use crate::escape::Escaped;

/// A shown value. Where it is a number of a file, it says which one, so that a program can compare the two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    value: Option<String>,
    source: Option<String>,
    tip: Option<String>,
    /// What it is made of, each part a value of its own, and what stands between them; `text` is then not shown.
    parts: Vec<Cell>,
    between: &'static str,
}

impl Cell {
    /// What is shown.
    pub fn new(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// The number behind it, exactly: what tables sort by.
    pub fn with_value(self, value: impl Display) -> Cell {
        Cell { value: Some(value.to_string()), ..self }
    }

    /// Where the number stands: `FILE#POINTER`, the pointer into the file's JSON as in RFC 6901.
    pub fn with_source(self, source: impl Into<String>) -> Cell {
        Cell { source: Some(source.into()), ..self }
    }

    /// What is told to whoever points at it.
    pub fn with_tip(self, tip: impl Into<String>) -> Cell {
        Cell { tip: Some(tip.into()), ..self }
    }

    /// Several values in one place, as in a mean and its spread; tables sort by the first.
    pub fn joined(parts: Vec<Cell>, between: &'static str) -> Cell {
        Cell { value: parts.first().and_then(|part| part.value.clone()), parts, between, ..Cell::default() }
    }

    /// The same with a text after it, such as a unit.
    pub fn followed_by(self, text: &str) -> Cell {
        Cell::joined(vec![self, Cell::new(text)], " ")
    }

    /// What is not known.
    pub fn unknown() -> Cell {
        Cell::new("—")
    }

    /// Whether it is a number, or not known: such cells stand right.
    pub(super) fn is_number(&self) -> bool {
        self.value.is_some() || self.text == "—"
    }

    /// What is shown of it.
    pub(super) fn html(&self) -> String {
        if self.parts.is_empty() {
            return Escaped(&self.text).to_string();
        }
        self.parts.iter().map(Cell::span).collect::<Vec<_>>().join(&Escaped(self.between).to_string())
    }

    /// Its attributes, each after a space.
    pub(super) fn attributes(&self) -> String {
        let mut text = String::new();
        for (name, value) in [("data-value", &self.value), ("data-from", &self.source), ("title", &self.tip)] {
            if let Some(value) = value {
                write!(text, " {name}=\"{}\"", Escaped(value)).expect("a string grows");
            }
        }
        text
    }

    /// Within a line.
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
