//! Escaping of text in HTML and SVG elements and attributes.

use std::fmt::{self, Display};

/// Displays a text with HTML's special characters escaped.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(place) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..place])?;
            f.write_str(match rest.as_bytes()[place] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[place + 1..];
        }
        f.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_taken_for_markup() {
        let text = "<b class=\"x\">R&D's ±</b>";
        assert_eq!(Escaped(text).to_string(), "&lt;b class=&quot;x&quot;&gt;R&amp;D&#39;s ±&lt;/b&gt;");
        assert_eq!(Escaped("plain").to_string(), "plain");
    }
}
