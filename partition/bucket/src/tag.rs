//! Tags: identify one writer in the names of its objects.

use crate::{
    error::{BucketError, Result},
    place::Place,
};

/// Characters of a tag.
const TAG_LENGTH: usize = 16;

/// A tag that no other writer has.
pub(crate) fn draw_tag(place: &Place) -> Result<String> {
    #[cfg(test)]
    if let Some(writer) = crate::simulation::storage::writer() {
        return Ok(writer.tag());
    }
    let mut bytes = [0; TAG_LENGTH / 2];
    getrandom::fill(&mut bytes).map_err(|error| BucketError::Storage {
        url: place.to_string(),
        problem: format!("no name can be drawn for objects: {error}"),
    })?;
    Ok(bytes.map(|byte| format!("{byte:02x}")).concat())
}

pub(crate) fn is_tag(text: &str) -> bool {
    text.len() == TAG_LENGTH && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of a writer's `n`th object, which holds the file `name`.
pub(crate) fn tagged(name: &str, tag: &str, n: u64) -> String {
    format!("{name}~{tag}-{n}")
}

/// The tag in an object's name.
pub(crate) fn tag_of(object: &str) -> Option<&str> {
    let (_, end) = object.rsplit_once('~')?;
    let (tag, n) = end.split_once('-')?;
    let is_number = !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit());
    (is_tag(tag) && is_number).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_only_where_they_were_put() {
        let tag = "0123456789abcdef";
        assert_eq!(tag_of(&tagged("checkpoints/step-1", tag, 17)), Some(tag));
        for other in
            ["notes.txt~", "a~0123456789abcdef", "a~0123456789abcdef-", "a~0123456789abcdef-x", "a~0123-1", "a-1", ""]
        {
            assert_eq!(tag_of(other), None, "{other}");
        }
    }
}
