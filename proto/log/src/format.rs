//! Formats of lines.

use std::{fmt, str::FromStr};

use serde_json::json;

/// The environment variable that sets the format where no option does: programs inherit it from the one that started them.
pub const FORMAT_VARIABLE: &str = "KITH_LOG_FORMAT";

/// Format of the lines on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Sentences as they are; lines of the log with time, level, target and fields.
    #[default]
    Text,
    /// One JSON object per line, also for sentences.
    Json,
}

impl Format {
    /// A line of another process, which has this name, with an end: `rank 0 | …`, or a JSON object with the field `process`.
    pub fn named(self, process: &str, line: &[u8]) -> Vec<u8> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut named = match (self, line.strip_prefix(b"{")) {
            (Format::Text, _) => [format!("{process} | ").as_bytes(), line].concat(),
            (Format::Json, Some(rest)) if rest.ends_with(b"}") => {
                [format!("{{\"process\":{},", json!(process)).as_bytes(), rest].concat()
            }
            // Words of a library, or of the system.
            (Format::Json, _) => {
                json!({ "process": process, "message": String::from_utf8_lossy(line) }).to_string().into_bytes()
            }
        };
        named.push(b'\n');
        named
    }

    /// Its name, as typed.
    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Json => "json",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Format, String> {
        [Format::Text, Format::Json]
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| "expected text or json".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_other_processes_have_their_names() {
        let text = |line: &[u8]| String::from_utf8(Format::Text.named("rank 1", line)).unwrap();
        assert_eq!(text(b"loss 3\n"), "rank 1 | loss 3\n");
        assert_eq!(text(b"{\"a\":1}"), "rank 1 | {\"a\":1}\n");
        let json = |line: &[u8]| -> serde_json::Value {
            let named = Format::Json.named("rank 1", line);
            assert!(named.ends_with(b"\n"));
            serde_json::from_slice(&named).unwrap()
        };
        assert_eq!(json(b"{\"level\":\"WARN\"}\n"), json!({ "process": "rank 1", "level": "WARN" }));
        for other in ["Killed", "{ not JSON", ""] {
            assert_eq!(json(other.as_bytes()), json!({ "process": "rank 1", "message": other }));
        }
    }
}
