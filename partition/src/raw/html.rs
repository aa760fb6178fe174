//! Scanner for the HTML of the 1990s: the visible text of a page and the targets of its anchors. It accepts any string
//! and reads it as Python's `html.parser` under BeautifulSoup does, because the published numbers were made with that.
//!
//! An element stays open until its own end tag or that of an outer element. Text is visible if the innermost open
//! element is not `head`, `title`, `style` or `script`. Text outside every element counts, and so does the HTTP header
//! that a stored page begins with: the published features were made with both.

mod reference;

use std::collections::HashMap;

/// Visible text and links of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The visible pieces of text, a blank between any two.
    pub text: String,
    /// The `href` of every `<a>` that has one, references decoded, in page order.
    pub hrefs: Vec<String>,
}

/// Reads one page. Nothing in it is an error: markup that does not hold together is text.
pub fn scan(source: &str) -> Page {
    let mut scanner = Scanner {
        source,
        at: 0,
        patience: source.len().saturating_mul(SEARCHES_IN_VAIN),
        piece: String::new(),
        open: OpenElements::default(),
        page: Page::default(),
    };
    scanner.run();
    scanner.page
}

/// White space as Python counts it.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Limit of searches that reach the end of a page in vain; after it, the rest of the page counts as text. Without this
/// limit, a page that repeats `<a b="` takes quadratic time.
const SEARCHES_IN_VAIN: usize = 16;

/// Elements without content: no end tag is needed, and one that comes closes nothing.
const VOID: [&str; 24] = [
    "area", "base", "basefont", "bgsound", "br", "col", "command", "embed", "frame", "hr", "image", "img", "input",
    "isindex", "keygen", "link", "menuitem", "meta", "nextid", "param", "source", "spacer", "track", "wbr",
];

/// Elements whose own text is not seen.
const HIDDEN: [&str; 4] = ["head", "title", "style", "script"];

struct Scanner<'a> {
    source: &'a str,
    at: usize,
    /// Bytes that may still be searched in vain.
    patience: usize,
    /// The text since the last markup: only markup ends a piece, a reference does not.
    piece: String,
    open: OpenElements,
    page: Page,
}

impl<'a> Scanner<'a> {
    fn run(&mut self) {
        while let Some(plain) = self.rest().find(['<', '&']) {
            if self.patience == 0 {
                break;
            }
            self.take_text(plain);
            match self.rest().as_bytes()[0] {
                b'<' => self.markup(),
                _ => self.reference(),
            }
        }
        self.take_text(self.rest().len());
        self.end_piece();
    }

    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn take_text(&mut self, length: usize) {
        self.piece.push_str(&self.rest()[..length]);
        self.at += length;
    }

    fn end_piece(&mut self) {
        let piece = self.piece.trim_matches(is_space);
        if !piece.is_empty() && self.open.is_visible() {
            if !self.page.text.is_empty() {
                self.page.text.push(' ');
            }
            self.page.text.push_str(piece);
        }
        self.piece.clear();
    }

    /// At a `<`.
    fn markup(&mut self) {
        let rest = self.rest();
        let length = match rest.as_bytes().get(1) {
            Some(b'/') => self.end_tag(),
            Some(b'!') if rest.starts_with("<!--") => find_comment_end(rest),
            Some(b'!') if rest.get(2..9).is_some_and(|word| word.eq_ignore_ascii_case("doctype")) => self.doctype(),
            Some(b'!' | b'?') => rest.find('>').map(|end| end + 1),
            Some(c) if c.is_ascii_alphabetic() => self.start_tag(),
            _ => return self.take_text(1),
        };
        if let Some(length) = length {
            self.end_piece();
            self.at += length;
            return;
        }
        self.patience = self.patience.saturating_sub(rest.len());
        let to_next = || rest[1..].find('<').map_or(1, |next| next + 1);
        self.take_text(rest.find('>').map_or_else(to_next, |end| end + 1));
    }

    /// A declaration is a piece of text of its own. It counts where it does not belong, within an element.
    fn doctype(&mut self) -> Option<usize> {
        let end = self.rest().find('>')?;
        self.end_piece();
        if !self.open.stack.is_empty() {
            self.piece.push_str(&self.rest()[9..end]);
        }
        Some(end + 1)
    }

    /// Opens the element, and gives the length up to where reading goes on; nothing if the tag never ends.
    fn start_tag(&mut self) -> Option<usize> {
        let rest = self.rest();
        let tag = Tag::parse(rest)?;
        self.end_piece();
        if let (Some(href), "a") = (tag.href, tag.name.as_str()) {
            self.page.hrefs.push(reference::decode(href));
        }
        if tag.is_closed || VOID.contains(&tag.name.as_str()) {
            return Some(tag.length);
        }
        self.open.push(&tag.name);
        if tag.name == "script" || tag.name == "style" {
            return Some(tag.length + find_end_tag(&rest[tag.length..], &tag.name).unwrap_or(rest.len() - tag.length));
        }
        Some(tag.length)
    }

    /// Closes the element, and gives the length of the tag; nothing if it never ends.
    fn end_tag(&mut self) -> Option<usize> {
        let end = self.rest().find('>')?;
        let inner = &self.rest()[2..end];
        self.end_piece();
        let strict = inner.trim_matches(is_space);
        let is_strict = strict.bytes().all(|c| c.is_ascii_alphanumeric() || b"-.:_".contains(&c));
        let name = if is_strict { strict } else { inner.split(ends_name).next().unwrap_or_default() };
        if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            self.open.close(&name.to_ascii_lowercase());
        }
        Some(end + 1)
    }

    /// At a `&`.
    fn reference(&mut self) {
        let rest = self.rest();
        let Some(found) = reference::at_start(rest) else { return self.take_text(1) };
        match found.decoded {
            Some(c) => self.piece.push(c),
            None => self.piece.push_str(&rest[..found.length]),
        }
        self.at += found.length + usize::from(found.has_end);
    }
}

/// The elements that are open at a place of the page.
#[derive(Default)]
struct OpenElements {
    ids: HashMap<String, usize>,
    is_hidden: Vec<bool>,
    n_open: Vec<usize>,
    stack: Vec<usize>,
}

impl OpenElements {
    fn is_visible(&self) -> bool {
        self.stack.last().is_none_or(|&id| !self.is_hidden[id])
    }

    fn push(&mut self, name: &str) {
        let id = self.ids.get(name).copied().unwrap_or_else(|| {
            self.ids.insert(name.to_owned(), self.n_open.len());
            self.is_hidden.push(HIDDEN.contains(&name));
            self.n_open.push(0);
            self.n_open.len() - 1
        });
        self.n_open[id] += 1;
        self.stack.push(id);
    }

    /// Closes the innermost element of this name and all within it; nothing if none is open.
    fn close(&mut self, name: &str) {
        let Some(&wanted) = self.ids.get(name) else { return };
        while self.n_open[wanted] > 0
            && let Some(id) = self.stack.pop()
        {
            self.n_open[id] -= 1;
            if id == wanted {
                return;
            }
        }
    }
}

/// A start tag.
struct Tag<'a> {
    name: String,
    /// The raw value of the last `href`; empty if it has none.
    href: Option<&'a str>,
    /// Ends in `/>`.
    is_closed: bool,
    length: usize,
}

impl<'a> Tag<'a> {
    /// The tag at the start of `rest`; nothing if it never ends.
    fn parse(rest: &'a str) -> Option<Tag<'a>> {
        let mut at = 1 + rest[1..].find(|c| ends_name(c) || c == '>')?;
        let name = rest[1..at].to_ascii_lowercase();
        let mut href = None;
        loop {
            let is_apart = rest[..at].ends_with(['"', '\'']) || rest[at..].starts_with(|c| is_space(c) || c == '/');
            at += rest[at..].find(|c| !is_space(c) && c != '/')?;
            if rest[at..].starts_with('>') {
                return Some(Tag { name, href, is_closed: rest[..at].ends_with('/') && is_apart, length: at + 1 });
            }
            if !is_apart {
                return None;
            }
            let attribute = Attribute::parse(&rest[at..]);
            if attribute.name.eq_ignore_ascii_case("href") {
                href = Some(attribute.value);
            }
            at += attribute.length;
        }
    }
}

/// One attribute of a start tag.
struct Attribute<'a> {
    name: &'a str,
    value: &'a str,
    length: usize,
}

impl<'a> Attribute<'a> {
    /// The attribute at the start of `rest`, which is neither white space nor `/` nor `>`. Its name may start with `=`.
    fn parse(rest: &'a str) -> Attribute<'a> {
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let ends = |c| is_space(c) || matches!(c, '/' | '=' | '>');
        let name_end = rest[first..].find(ends).map_or(rest.len(), |end| first + end);
        let name = &rest[..name_end];
        let bare = |from: usize| {
            let end = rest[from..].find(|c| is_space(c) || c == '>').map_or(rest.len(), |end| from + end);
            Attribute { name, value: &rest[from..end], length: end }
        };
        let equals = rest.len() - rest[name_end..].trim_start_matches(is_space).len();
        let after_equals = rest.len() - rest[equals..].trim_start_matches('=').len();
        if after_equals == equals {
            return Attribute { name, value: "", length: name_end };
        }
        let from = rest.len() - rest[after_equals..].trim_start_matches(is_space).len();
        let Some(quote) = rest[from..].chars().next().filter(|c| matches!(c, '"' | '\'')) else { return bare(from) };
        if let Some(length) = rest[from + 1..].find(quote) {
            return Attribute { name, value: &rest[from + 1..from + 1 + length], length: from + length + 2 };
        }
        // The quote never closes, so it is part of a word: of the next attribute, or of this value.
        match (from > after_equals, after_equals > equals + 1) {
            (true, _) => Attribute { name, value: "", length: after_equals },
            (false, true) => bare(after_equals - 1),
            (false, false) => Attribute { name, value: "", length: name_end },
        }
    }
}

fn ends_name(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\x0c' | ' ' | '/' | '\0')
}

/// The length of a comment: up to two hyphens, white space if any, and `>`.
fn find_comment_end(rest: &str) -> Option<usize> {
    let mut at = 4;
    loop {
        at += rest[at..].find("--")? + 2;
        let after = rest[at..].trim_start_matches(is_space);
        if after.starts_with('>') {
            return Some(rest.len() - after.len() + 1);
        }
        at -= 1;
    }
}

/// Start of the end tag with this name.
fn find_end_tag(rest: &str, name: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let start = at + rest[at..].find("</")?;
        at = start + 2;
        let after = rest[at..].trim_start_matches(is_space);
        let is_name = after.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name));
        if is_name && after[name.len()..].trim_start_matches(is_space).starts_with('>') {
            return Some(start);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use kith_draw::{Name, Purpose};

    use super::*;

    /// Pages, and what BeautifulSoup 4.15 over `html.parser` of Python 3.11 makes of them: the strings whose parent is
    /// none of `head`, `title`, `style`, `script`.
    #[test]
    fn reads_as_beautiful_soup() {
        for (source, text, hrefs) in PAGES {
            let page = scan(source);
            assert_eq!(page.text, text, "text of {source:?}");
            assert_eq!(page.hrefs, hrefs, "links of {source:?}");
        }
    }

    #[rustfmt::skip]
    const PAGES: [(&str, &str, &[&str]); 18] = [
        ("Server: NCSA\r\n\r\n<html><head>no<title>no</title></head><body>a<b>b</b>c</body></html>after", "Server: NCSA a b c after", &[]),
        ("<p>one<!-- two -- > three --><!WA0>four<!doctype html>five", "one three --> four html five", &[]),
        ("<!DOCTYPE html><p><script>if (a</b) \"<a href=x>\"</SCRIPT >seen<style>p {}</style><script>lost <p>lost",
            "seen", &[]),
        ("<P>caf&eacute; caf&#233; caf&#xe9 &amp;&copy &quote;d &#150; &#0; &#228fer &eacuterard &eacute",
            "café café café &© &quoted – \u{fffd} &#228fer &eacuterard &eacute", &[]),
        ("<a href=\"http://a/b\">x</a><A HREF=http://c/d/>y</A><a name=z>z</a><a href>e</a><a href = 'f' href=\"g\"/>",
            "x y z e", &["http://a/b", "http://c/d/", "", "g"]),
        ("<p><a href=\"x&amp;y&copy2&eacute;&bad;&#65;&#x42\">t", "t", &["x&y©2é&bad;AB"]),
        ("<p><a href=\"open>text</a><b>more", "<a href=\"open>text more", &[]),
        ("<p><a href= \"open>text</a><b>more", "text more", &[""]),
        ("<p><a href==\"open>text</a><b>more", "text more", &["=\"open"]),
        ("<p>3 < 4 <> <3 </3> </ b>end<", "3 < 4 <> <3 end<", &[]),
        ("<p>one<br>two<img src=x>three<hr/>four", "one two three four", &[]),
        ("<title>no</title>no<h1>yes</h1>no<p>yes<title>no<b>yes</b>no</title>yes", "no yes no yes yes yes", &[]),
        ("<p>a</i>b<b><i>c</b>d</i>e</p>no", "a b c d e no", &[]),
        ("<p>never <!-- ends <b>bold</b>", "never <!-- ends <b>bold", &[]),
        ("<p>never <a href=\"x\" ", "never <a href=\"x\"", &[]),
        ("<em>\u{a0}&nbsp;</em><em> \x1c</em><em>x</em>", "x", &[]),
        ("<p>x</p\n>no<p>y</p/ z>no", "x no y no", &[]),
        ("<p><a/href=x/y>t<a title=\"a>b\"href=q>u<a =r href=s>v", "t u v", &["x/y", "q", "s"]),
    ];

    #[test]
    fn names_and_numbers_of_characters() {
        let page = scan("<p>&yuml;&Omega;&omega;&sigmaf;&euro;&#255;&#937;&#x20AC;&#x80;&#99999999999;&#xD800;");
        assert_eq!(page.text, "ÿΩως€ÿΩ€€\u{fffd}\u{fffd}");
    }

    /// Any garbling gives a page, and never more of it than was there.
    #[test]
    fn garbled_pages_do_no_harm() {
        let whole: String = PAGES.iter().map(|(source, ..)| *source).collect();
        for case in 0..20_000 {
            let bytes = garbled(whole.as_bytes(), case);
            let source = String::from_utf8_lossy(&bytes);
            let page = scan(&source);
            assert!(page.text.len() <= source.len(), "case {case}");
            assert!(page.hrefs.iter().map(String::len).sum::<usize>() <= source.len(), "case {case}");
        }
    }

    /// Time by the square of the length would be many minutes here.
    #[test]
    fn hostile_pages_take_no_longer() {
        let start = std::time::Instant::now();
        for unit in
            ["<a b=\"", "<a b='\" ", "<!--", "</", "<p>", "<p></b>", "&", "&a", "&#1", "<a/", "<script></", "<!"]
        {
            scan(&unit.repeat(100_000));
            scan(&format!("<p>{}", unit.repeat(100_000)));
        }
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    }

    /// A few bytes of `whole` changed, cut out or doubled, as the number of the case says.
    pub(crate) fn garbled(whole: &[u8], case: u64) -> Vec<u8> {
        let name = Name { run_key: 0, purpose: Purpose::Fault, step: 0, layer: 0 };
        let mut draws = name.stream().draws(case, 0, 0);
        let mut bytes = whole.to_vec();
        for _ in 0..1 + draws.below(4) {
            let mut place = || draws.below(bytes.len() as u64 + 1) as usize;
            let (a, b) = (place(), place());
            let (start, end) = (a.min(b), a.max(b).min(a.min(b) + 40));
            match draws.below(8) {
                0 => bytes.truncate(start),
                1 => drop(bytes.drain(start..end)),
                2 => bytes.splice(start..start, bytes[start..end].to_vec()).for_each(drop),
                3 => bytes.insert(start, b"<>&\"'/=-! "[draws.below(10) as usize]),
                _ => bytes.iter_mut().skip(start).take(1).for_each(|byte| *byte = draws.word() as u8),
            }
        }
        bytes
    }
}
