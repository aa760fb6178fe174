//! Values of a JSON file, each with its source: file and pointer.

use std::{fs, io::ErrorKind, path::Path};

use crate::page::Cell;
use kith_run::seal;
use serde_json::Value;

use super::error::ReportError;

/// Names in reports, and those of version 0.1.0.
const EARLIER: [(&str, &str); 3] = [("/seed", "/run_key"), ("/features", "/rows"), ("/evaluate", "/measure")];

/// A part of a JSON file.
#[derive(Clone, Debug)]
pub(super) struct JsonPart {
    value: Value,
    /// Source of the value: `FILE#POINTER`.
    source: String,
}

impl JsonPart {
    /// A whole file of the folder; `None` if missing.
    pub(super) fn read(dir: &Path, name: &str) -> Result<Option<JsonPart>, ReportError> {
        let path = dir.join(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ReportError::io(&path)(error)),
        };
        let value =
            serde_json::from_str(&text).map_err(|error| ReportError::file(&path, format!("no JSON: {error}")))?;
        seal::check(&text).map_err(|problem| ReportError::file(&path, problem))?;
        Ok(Some(JsonPart { value, source: format!("{name}#") }))
    }

    /// The part at a pointer (RFC 6901).
    pub(super) fn at(&self, pointer: &str) -> Option<JsonPart> {
        let (value, pointer) = self.find(pointer)?;
        Some(JsonPart { value: value.clone(), source: format!("{}{pointer}", self.source) })
    }

    /// The value at a pointer, or at the one that version 0.1.0 used, and the pointer.
    fn find(&self, pointer: &str) -> Option<(&Value, String)> {
        if let Some(value) = self.value.pointer(pointer) {
            return Some((value, pointer.to_owned()));
        }
        let (now, before) = EARLIER.iter().find(|(now, _)| pointer.starts_with(now))?;
        let earlier = pointer.replacen(now, before, 1);
        self.value.pointer(&earlier).map(|value| (value, earlier))
    }

    /// The items of a list; empty for other values.
    pub(super) fn items(&self) -> Vec<JsonPart> {
        let list = self.value.as_array().map_or(&[][..], Vec::as_slice);
        (0..list.len()).filter_map(|place| self.at(&format!("/{place}"))).collect()
    }

    /// The fields of an object, by name.
    pub(super) fn fields(&self) -> Vec<(String, JsonPart)> {
        let Some(object) = self.value.as_object() else { return Vec::new() };
        let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
        let part = |name: &String| Some((name.clone(), self.at(&format!("/{}", escaped(name)))?));
        object.keys().filter_map(part).collect()
    }

    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    /// The number at a pointer.
    pub(super) fn number(&self, pointer: &str) -> Option<f64> {
        self.find(pointer)?.0.as_f64()
    }

    /// The text at a pointer.
    pub(super) fn text(&self, pointer: &str) -> Option<&str> {
        self.find(pointer)?.0.as_str()
    }

    /// The number at a pointer as a cell; unknown if there is none.
    pub(super) fn cell(&self, pointer: &str, shown: impl Fn(f64) -> String) -> Cell {
        match self.find(pointer) {
            Some((Value::Number(number), pointer)) => Cell::new(shown(number.as_f64().unwrap_or(f64::NAN)))
                .with_value(number)
                .with_source(format!("{}{pointer}", self.source)),
            _ => Cell::unknown(),
        }
    }

    /// This number with all its digits.
    pub(super) fn as_written(&self) -> Cell {
        match &self.value {
            Value::Number(number) => Cell::new(number.to_string()).with_value(number).with_source(&self.source),
            Value::String(text) => Cell::new(text),
            Value::Null => Cell::unknown(),
            other => Cell::new(other.to_string()),
        }
    }
}

/// Formats a count.
pub(super) fn count(n: f64) -> String {
    crate::grouped(n as u64)
}

/// Formats seconds.
pub(super) fn seconds(seconds: f64) -> String {
    let decimals = match seconds.abs() {
        size if size < 1.0 => 3,
        size if size < 10.0 => 2,
        _ => 1,
    };
    format!("{seconds:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(share: f64) -> String {
        format!("{:.2}", 100.0 * share)
    }

    #[test]
    fn numbers_keep_their_bits_and_say_where_they_are() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("a.json"), r#"{"b/c": [{"x": 0.70179999999999998}, 18446744073709551615]}"#)
            .unwrap();
        let whole = JsonPart::read(temp.path(), "a.json").unwrap().unwrap();
        let (name, list) = whole.fields().remove(0);
        assert_eq!((name.as_str(), list.items().len()), ("b/c", 2));
        let expected = Cell::new("70.18").with_value("0.7018").with_source("a.json#/b~1c/0/x");
        assert_eq!(list.items()[0].cell("/x", percent), expected);
        let large = Cell::new("18446744073709551615").with_value(u64::MAX).with_source("a.json#/b~1c/1");
        assert_eq!(list.items()[1].as_written(), large);
        assert_eq!(whole.cell("/none", percent), Cell::unknown());
        assert!(JsonPart::read(temp.path(), "none.json").unwrap().is_none());
        fs::write(temp.path().join("a.json"), "{").unwrap();
        let error = JsonPart::read(temp.path(), "a.json").unwrap_err().to_string();
        assert!(error.contains("a.json: no JSON: "), "{error}");
    }
}
