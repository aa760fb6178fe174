//! Checksum of a JSON object, in its last field: `crc32`. It covers every byte of the object's text, with zeros in its own place.

use std::ops::Range;

/// Text before the digits, without spaces.
const FIELD: &str = "\"crc32\":";

/// Stands in the place of the digits while the checksum is computed.
const BLANK: &str = "00000000";

/// The text of a JSON object with its checksum, on one line or indented as it was; spaces and line ends around it go.
pub fn seal(object: &str) -> String {
    let object = object.trim();
    let fields = object.strip_suffix('}').expect("the text of a JSON object").trim_end();
    let comma = if fields.ends_with('{') { "" } else { "," };
    let (before, between, after) = if object.contains('\n') { ("\n  ", " ", "\n") } else { ("", "", "") };
    let mut text = format!("{fields}{comma}{before}{FIELD}{between}\"{BLANK}\"{after}}}");
    let place = place(&text).expect("it was just written");
    let sum = sum(text.as_bytes(), &place);
    text.replace_range(place, &sum);
    text
}

/// Compares an object with its checksum. An object without one was written by an older kith: it is not checked.
pub fn check(object: &str) -> Result<(), &'static str> {
    let object = object.trim();
    match place(object) {
        Some(place) if object[place.clone()] != sum(object.as_bytes(), &place) => {
            Err("damaged: it does not have its checksum: restore the file from a copy")
        }
        _ => Ok(()),
    }
}

/// Position of the digits. Quotes within texts are escaped, so that no text looks like the field.
fn place(object: &str) -> Option<Range<usize>> {
    let end = object.rfind(FIELD)? + FIELD.len();
    let rest = &object[end..];
    let digits = rest.trim_start().strip_prefix('"')?;
    let start = object.len() - digits.len();
    let n_digits = digits.find('"')?;
    Some(start..start + n_digits)
}

fn sum(object: &[u8], place: &Range<usize>) -> String {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&object[..place.start]);
    hasher.update(BLANK.as_bytes());
    hasher.update(&object[place.end..]);
    format!("{:08x}", hasher.finalize())
}

#[cfg(test)]
mod tests {
    use kith_corruption::{Bits, Outcomes, check_bytes};
    use serde_json::{Value, json};

    use super::*;

    fn read(bytes: &[u8]) -> Result<Value, String> {
        let text = std::str::from_utf8(bytes).map_err(|error| format!("a.json: {error}"))?;
        check(text).map_err(|problem| format!("a.json: {problem}"))?;
        let mut value: Value = serde_json::from_str(text).map_err(|error| format!("a.json: {error}"))?;
        // A damaged name of the field leaves an object that looks like an older one. Its other fields are as they were.
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|name, _| ["a", "b", "text"].contains(&name.as_str()));
        }
        Ok(value)
    }

    #[test]
    fn every_change_of_a_sealed_object_is_found() {
        let object = json!({ "a": 0.5, "b": [1, 2, { "c": null }], "text": "\"crc32\": \"00000000\"" });
        for text in [object.to_string(), format!("{object:#}")] {
            let sealed = seal(&text);
            assert_eq!(read(sealed.as_bytes()).unwrap(), object);
            assert_eq!(sealed.lines().count() > 1, text.lines().count() > 1);
            let Outcomes { n_refused, harmless } = check_bytes(sealed.as_bytes(), "a.json", Bits::Each, read);
            // The name of the field: see `read`.
            assert!(n_refused > 9 * (sealed.len() - 12) && harmless.len() < 9 * 5, "{harmless:?}");
        }
        assert_eq!(seal("{}"), format!("{{\"crc32\":\"{}\"}}", &seal("{}")[10..18]));
    }

    #[test]
    fn an_object_without_a_checksum_is_one_of_an_older_kith() {
        for text in ["{\"a\":1}", "{}", "{\"crc32\":7}", "1", ""] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        assert!(check("{\"a\":1,\"crc32\":\"01234567\"}").is_err());
    }
}
