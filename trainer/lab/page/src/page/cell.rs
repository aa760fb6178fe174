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

    /// What is not known.
    pub fn unknown() -> Cell {
        Cell::new("—")
    }

    /// Whether it is a number, or not known: such cells stand right.
    pub(super) fn is_number(&self) -> bool {
        self.value.is_some() || self.text == "—"
    }

    pub(super) fn escaped(&self) -> Escaped<'_> {
        Escaped(&self.text)
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
            none if none.is_empty() => self.escaped().to_string(),
            attributes => format!("<span{attributes}>{}</span>", self.escaped()),
        }
    }
}
