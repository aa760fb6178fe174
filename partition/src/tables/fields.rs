//! Splits lines into fields, and parses numbers from bytes in bulk.

use std::{borrow::Cow, str};

use kith_store::{MAX_WEIGHT, is_weight};

use crate::{raw::lines::shown, tables::files::Trouble};

/// Separator of the fields of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delimiter {
    /// One byte.
    Byte(u8),
    /// Any number of blanks and tabs.
    Spaces,
}

/// Trouble, and where in the bytes at hand the line begins that it is about.
pub(super) type Misplaced = (usize, Trouble);

impl Delimiter {
    /// Delimiter of the file extension if it occurs in the line, else the first of tab, comma, semicolon and blank that
    /// does.
    pub(super) fn of_line(line: &[u8], by_ending: Option<u8>) -> Delimiter {
        let line = line.trim_ascii();
        let found = by_ending.into_iter().chain(*b"\t,;").find(|delimiter| line.contains(delimiter));
        match found {
            Some(delimiter) => Delimiter::Byte(delimiter),
            None if line.contains(&b' ') && by_ending.is_none() => Delimiter::Spaces,
            None => Delimiter::Byte(by_ending.unwrap_or(b',')),
        }
    }

    /// The bytes that may stand alone between two fields.
    fn bytes(self) -> [u8; 2] {
        match self {
            Delimiter::Byte(byte) => [byte; 2],
            Delimiter::Spaces => *b" \t",
        }
    }
}

/// The fields of one line without its end: blanks around them removed, quotes too.
pub(super) struct Fields<'l> {
    rest: Option<&'l [u8]>,
    delimiter: Delimiter,
}

impl<'l> Fields<'l> {
    pub(super) fn new(line: &'l [u8], delimiter: Delimiter) -> Fields<'l> {
        let line = if delimiter == Delimiter::Spaces { line.trim_ascii() } else { line };
        Fields { rest: Some(line), delimiter }
    }

    /// Cuts `rest` behind the field that ends at `end`.
    fn cut(&mut self, rest: &'l [u8], end: usize) {
        self.rest = rest.get(end..).and_then(|rest| match self.delimiter {
            Delimiter::Byte(_) => rest.get(1..),
            Delimiter::Spaces => Some(rest.trim_ascii_start()).filter(|rest| !rest.is_empty()),
        });
    }

    fn is_delimiter(&self, byte: u8) -> bool {
        self.delimiter.bytes().contains(&byte)
    }

    fn quoted(&mut self, rest: &'l [u8], open: usize) -> Result<Cow<'l, [u8]>, Trouble> {
        let unclosed = || Trouble::Here(format!("a quote is not closed in {}", shown_bytes(rest)));
        let mut at = open + 1;
        let mut has_quotes = false;
        loop {
            let close = at + rest[at..].iter().position(|byte| *byte == b'"').ok_or_else(unclosed)?;
            if rest.get(close + 1) == Some(&b'"') {
                has_quotes = true;
                at = close + 2;
                continue;
            }
            let text = &rest[open + 1..close];
            let after = &rest[close + 1..];
            let n_after = after.iter().position(|byte| self.is_delimiter(*byte)).unwrap_or(after.len());
            if !after[..n_after].trim_ascii().is_empty() {
                return Err(Trouble::Here(format!("text follows a closing quote in {}", shown_bytes(rest))));
            }
            self.cut(rest, close + 1 + n_after);
            return Ok(match has_quotes {
                true => Cow::Owned(without_doubled_quotes(text)),
                false => Cow::Borrowed(text),
            });
        }
    }
}

impl<'l> Iterator for Fields<'l> {
    type Item = Result<Cow<'l, [u8]>, Trouble>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t') && !self.is_delimiter(*byte);
        let start = rest.iter().position(|byte| !blank(byte)).unwrap_or(rest.len());
        if rest.get(start) == Some(&b'"') {
            return Some(self.quoted(rest, start));
        }
        let end = rest[start..].iter().position(|byte| self.is_delimiter(*byte)).map_or(rest.len(), |n| start + n);
        self.cut(rest, end);
        Some(Ok(Cow::Borrowed(rest[start..end].trim_ascii())))
    }
}

fn without_doubled_quotes(text: &[u8]) -> Vec<u8> {
    let mut is_first = false;
    let keep = |byte: &&u8| {
        is_first = **byte == b'"' && !is_first;
        **byte != b'"' || is_first
    };
    text.iter().filter(keep).copied().collect()
}

/// The fields in these columns of a line.
pub(super) fn pick<'l, const N: usize>(
    line: &'l [u8],
    delimiter: Delimiter,
    columns: [usize; N],
) -> Result<[Cow<'l, [u8]>; N], Trouble> {
    let mut picked = [const { Cow::Borrowed(&[] as &[u8]) }; N];
    let mut n_fields = 0;
    let mut n_picked = 0;
    for field in Fields::new(line, delimiter) {
        let field = field?;
        if let Some(place) = columns.iter().position(|column| *column == n_fields) {
            picked[place] = field;
            n_picked += 1;
        }
        n_fields += 1;
        if n_picked == N {
            return Ok(picked);
        }
    }
    let n_needed = columns.iter().max().map_or(0, |last| last + 1);
    Err(format!("expected at least {n_needed} fields, found {n_fields} in {}", shown_bytes(line)).into())
}

/// Hands over the two whole numbers in these columns of each line.
pub(super) fn each_pair_of_numbers(
    lines: &[u8],
    delimiter: Delimiter,
    columns: [usize; 2],
    mut take: impl FnMut(u64, u64) -> Result<(), Trouble>,
) -> Result<(), Misplaced> {
    let between = delimiter.bytes();
    let is_plain = columns == [0, 1];
    let mut at = 0;
    while at < lines.len() {
        let start = at;
        let (first, second);
        match if is_plain { plain_pair(lines, at, between) } else { None } {
            Some((a, b, next)) => (first, second, at) = (a, b, next),
            None => {
                let (line, next) = line_at(lines, at);
                (first, second) = careful_pair(line, delimiter, columns).map_err(|trouble| (start, trouble))?;
                at = next;
            }
        }
        take(first, second).map_err(|trouble| (start, trouble))?;
    }
    Ok(())
}

/// Two numbers and one delimiter, nothing else before the end of the line or a further field; `None` otherwise.
#[inline]
fn plain_pair(lines: &[u8], at: usize, between: [u8; 2]) -> Option<(u64, u64, usize)> {
    let (first, at) = digits(lines, at)?;
    if !between.contains(lines.get(at)?) {
        return None;
    }
    let (second, at) = digits(lines, at + 1)?;
    match lines.get(at) {
        Some(b'\n') => Some((first, second, at + 1)),
        None => Some((first, second, at)),
        Some(b'\r') if lines.get(at + 1) == Some(&b'\n') => Some((first, second, at + 2)),
        Some(byte) if between.contains(byte) => Some((first, second, line_at(lines, at).1)),
        Some(_) => None,
    }
}

/// The digits from `at` on and where they end; `None` if there are none, or more than surely fit in 64 bits.
#[inline]
fn digits(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    const N_FIT: usize = 19;
    let mut value = 0u64;
    let mut end = at;
    while let Some(byte) = bytes.get(end) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        end += 1;
    }
    (end > at && end - at <= N_FIT).then_some((value, end))
}

#[cold]
fn careful_pair(line: &[u8], delimiter: Delimiter, columns: [usize; 2]) -> Result<(u64, u64), Trouble> {
    check_not_empty(line)?;
    let [first, second] = pick(line, delimiter, columns)?;
    Ok((number_id(&first)?, number_id(&second)?))
}

/// Hands over each line, without its end.
pub(super) fn each_line(lines: &[u8], mut take: impl FnMut(&[u8]) -> Result<(), Trouble>) -> Result<(), Misplaced> {
    let mut at = 0;
    while at < lines.len() {
        let (line, next) = line_at(lines, at);
        check_not_empty(line).and_then(|()| take(line)).map_err(|trouble| (at, trouble))?;
        at = next;
    }
    Ok(())
}

fn check_not_empty(line: &[u8]) -> Result<(), Trouble> {
    if line.trim_ascii().is_empty() { Err("is empty, but more lines follow".into()) } else { Ok(()) }
}

/// The line that holds byte `at`, from there on and without its end, and where the next one begins.
fn line_at(lines: &[u8], at: usize) -> (&[u8], usize) {
    let rest = &lines[at..];
    let (line, next) = match rest.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&rest[..end], at + end + 1),
        None => (rest, lines.len()),
    };
    (line.strip_suffix(b"\r").unwrap_or(line), next)
}

/// A field as an id that is a number.
pub(super) fn number_id(field: &[u8]) -> Result<u64, Trouble> {
    if let Some((value, end)) = digits(field, 0)
        && end == field.len()
    {
        return Ok(value);
    }
    let is_number = !field.is_empty() && field.iter().all(u8::is_ascii_digit);
    let too_long = || Trouble::Here(format!("{} does not fit in 64 bits", shown_bytes(field)));
    match is_number {
        true => utf8(field)?.parse().map_err(|_| too_long()),
        false => {
            Err(format!("{} is not a whole number from 0 up: --ids texts takes ids as texts", shown_bytes(field))
                .into())
        }
    }
}

/// A field as text.
pub(super) fn utf8(field: &[u8]) -> Result<&str, Trouble> {
    str::from_utf8(field).map_err(|_| Trouble::Here(format!("{} is not utf-8", shown_bytes(field))))
}

/// A field as a finite number of 32 bits.
pub(super) fn finite(field: &[u8]) -> Result<f32, Trouble> {
    let value: Option<f64> = str::from_utf8(field).ok().and_then(|text| text.parse().ok());
    match value.map(|value| value as f32) {
        Some(value) if value.is_finite() => Ok(value),
        Some(_) => Err(format!("{} is not a finite number of 32 bits", shown_bytes(field)).into()),
        None => Err(format!("{} is not a number", shown_bytes(field)).into()),
    }
}

/// The sentence about a number that is no weight.
pub(super) fn not_a_weight(number: &impl std::fmt::Display) -> String {
    format!("{number} is not a weight: weights are numbers from 0 to {MAX_WEIGHT:e}")
}

/// A field as the weight of an edge.
pub(super) fn weight(field: &[u8]) -> Result<f32, Trouble> {
    match finite(field)? {
        weight if is_weight(weight) => Ok(weight),
        negative => Err(not_a_weight(&negative).into()),
    }
}

/// Bytes of the input as an error shows them.
pub(super) fn shown_bytes(bytes: &[u8]) -> String {
    shown(&String::from_utf8_lossy(&bytes[..bytes.len().min(200)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str, delimiter: Delimiter) -> Result<Vec<String>, String> {
        Fields::new(line.as_bytes(), delimiter)
            .map(|field| field.map(|field| String::from_utf8_lossy(&field).into_owned()))
            .collect::<Result<_, Trouble>>()
            .map_err(|trouble| format!("{trouble:?}"))
    }

    #[test]
    fn fields_of_all_kinds() {
        let comma = Delimiter::Byte(b',');
        let tab = Delimiter::Byte(b'\t');
        for (line, delimiter, expected) in [
            ("a,b", comma, &["a", "b"][..]),
            (" a b , ,c", comma, &["a b", "", "c"]),
            ("a,", comma, &["a", ""]),
            ("", comma, &[""]),
            ("\"a,b\",\"say \"\"hi\"\"\" ,\"\"", comma, &["a,b", "say \"hi\"", ""]),
            ("a\t\tb c", tab, &["a", "", "b c"]),
            ("  a  b\tc  ", Delimiter::Spaces, &["a", "b", "c"]),
            ("\"a b\"  c", Delimiter::Spaces, &["a b", "c"]),
            ("a\"b,c", comma, &["a\"b", "c"]),
        ] {
            assert_eq!(fields(line, delimiter).unwrap(), expected, "{line:?}");
        }
        assert!(fields("\"a,b", comma).unwrap_err().contains("a quote is not closed"));
        assert!(fields("\"a\"b,c", comma).unwrap_err().contains("text follows a closing quote"));
    }

    #[test]
    fn delimiters_are_found() {
        for (line, by_ending, expected) in [
            ("1\t2", None, Delimiter::Byte(b'\t')),
            ("1,2 3", None, Delimiter::Byte(b',')),
            ("1;2", Some(b','), Delimiter::Byte(b';')),
            ("1 2", None, Delimiter::Spaces),
            ("new york,paris", Some(b','), Delimiter::Byte(b',')),
            ("new york", Some(b','), Delimiter::Byte(b',')),
            ("1", None, Delimiter::Byte(b',')),
        ] {
            assert_eq!(Delimiter::of_line(line.as_bytes(), by_ending), expected, "{line:?}");
        }
    }

    #[test]
    fn pairs_fast_and_careful_agree() {
        let read = |text: &str, columns| {
            let mut pairs = Vec::new();
            let take = |a, b| {
                pairs.push((a, b));
                Ok(())
            };
            each_pair_of_numbers(text.as_bytes(), Delimiter::Byte(b','), columns, take)
                .map(|()| pairs)
                .map_err(|(at, trouble)| format!("{at}: {trouble:?}"))
        };
        let text = "1,2\n03,4\r\n 5 ,\"6\"\n7,8,x\n18446744073709551615,0\n9,10";
        let expected = [(1, 2), (3, 4), (5, 6), (7, 8), (u64::MAX, 0), (9, 10)];
        assert_eq!(read(text, [0, 1]).unwrap(), expected);
        assert_eq!(read("2,1\n4,3\n", [1, 0]).unwrap(), [(1, 2), (3, 4)]);
        for (text, expected) in [
            ("1,2\n3\n", "4: Here(\"expected at least 2 fields, found 1"),
            ("1,2\n\n3,4\n", "4: Here(\"is empty"),
            ("1,-2\n", "0: Here(\"\\\"-2\\\" is not a whole number"),
            ("1,2.0\n", "is not a whole number"),
            ("1,18446744073709551616\n", "does not fit in 64 bits"),
            ("1,2\r3\n", "is not a whole number"),
            ("1,\n", "\\\"\\\" is not a whole number"),
            ("1,\u{661}\n", "is not a whole number"),
        ] {
            let error = read(text, [0, 1]).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
