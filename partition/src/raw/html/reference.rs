//! Character references: `&eacute;`, `&#233;` and `&#xE9;`, with or without the `;`.

/// A reference in a text.
pub(super) struct Reference {
    /// The character it stands for; nothing if the name is not known.
    pub(super) decoded: Option<char>,
    /// Its length without the `;`.
    pub(super) length: usize,
    /// True if a `;` ends the reference; it is never part of the text.
    pub(super) has_end: bool,
}

/// The reference at the start of `rest`; nothing if the `&` is plain text, as where the end of the page cuts the
/// reference off, or a digit of another base follows the number.
pub(super) fn at_start(rest: &str) -> Option<Reference> {
    let length = length(rest);
    let follower = rest[length..].chars().next()?;
    let decoded = match is_number(rest) {
        true if length > 2 && !follower.is_ascii_hexdigit() => Some(numbered(&rest[2..length])),
        false if length > 1 => named(&rest[1..length]),
        _ => return None,
    };
    Some(Reference { decoded, length, has_end: follower == ';' })
}

/// A value with its references decoded. Old names need no `;` there, not even before a letter: `&copy2` is `©2`.
pub(super) fn decode(raw: &str) -> String {
    let mut value = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(plain) = rest.find('&') {
        value.push_str(&rest[..plain]);
        rest = &rest[plain..];
        match in_value(rest) {
            Some((c, length)) => {
                value.push(c);
                rest = &rest[length..];
                rest = rest.strip_prefix(';').unwrap_or(rest);
            }
            None => {
                value.push('&');
                rest = &rest[1..];
            }
        }
    }
    value.push_str(rest);
    value
}

fn in_value(rest: &str) -> Option<(char, usize)> {
    let length = length(rest);
    if is_number(rest) {
        return (length > 2).then(|| (numbered(&rest[2..length]), length));
    }
    if let Some(c) = named(&rest[1..length]).filter(|_| rest[length..].starts_with(';')) {
        return Some((c, length));
    }
    (2..=length.min(1 + LONGEST_OLD_NAME)).rev().find_map(|end| Some((old_name(&rest[1..end])?, end)))
}

fn is_number(rest: &str) -> bool {
    rest.starts_with("&#")
}

/// The length of `&name`, `&#233` or `&#xE9` at the start of `rest`, without its `;`.
fn length(rest: &str) -> usize {
    if !is_number(rest) {
        let is_name = rest[1..].starts_with(|c: char| c.is_ascii_alphabetic());
        let n_letters = rest.bytes().skip(1).take_while(|c| c.is_ascii_alphanumeric() || b"-.".contains(c)).count();
        return if is_name { 1 + n_letters } else { 1 };
    }
    let is_hex = rest[2..].starts_with(['x', 'X']);
    let from = 2 + usize::from(is_hex);
    let is_digit = |c: u8| if is_hex { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
    let n_digits = rest.bytes().skip(from).take_while(|c| is_digit(*c)).count();
    if n_digits == 0 { 2 } else { from + n_digits }
}

/// The character of a number such as `233` or `xE9`. Numbers 128..160 were meant in the encoding of Windows.
fn numbered(digits: &str) -> char {
    let hex = digits.strip_prefix(['x', 'X']);
    let number = hex.map_or_else(|| digits.parse(), |hex| u32::from_str_radix(hex, 16)).unwrap_or(0);
    match u8::try_from(number) {
        Ok(byte @ 0x80..=0x9f) => {
            let bytes = [byte];
            let (decoded, _) = encoding_rs::WINDOWS_1252.decode_without_bom_handling(&bytes);
            decoded.chars().next().unwrap_or(char::REPLACEMENT_CHARACTER)
        }
        Ok(0) => char::REPLACEMENT_CHARACTER,
        _ => char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER),
    }
}

/// The character of a name.
fn named(name: &str) -> Option<char> {
    let among = |names: &[&str], first: u32| {
        let place = names.iter().position(|known| *known == name)?;
        char::from_u32(first + u32::try_from(place).ok()?)
    };
    let greek = || among(&GREEK, 0x391).or_else(|| among(&GREEK_SMALL, 0x3b1));
    let other = || OTHER_NAMES.iter().find(|(known, _)| *known == name).map(|(_, c)| *c);
    among(&LATIN, 0xa0).or_else(other).or_else(greek)
}

/// The character of a name that is older than the rule that a `;` must follow.
fn old_name(name: &str) -> Option<char> {
    named(name).filter(|c| u32::from(*c) < 0x100 && name != "apos")
}

const LONGEST_OLD_NAME: usize = 6;

/// U+00A0 and on.
#[rustfmt::skip]
const LATIN: [&str; 96] = [
    "nbsp", "iexcl", "cent", "pound", "curren", "yen", "brvbar", "sect", "uml", "copy", "ordf", "laquo", "not", "shy",
    "reg", "macr", "deg", "plusmn", "sup2", "sup3", "acute", "micro", "para", "middot", "cedil", "sup1", "ordm",
    "raquo", "frac14", "frac12", "frac34", "iquest", "Agrave", "Aacute", "Acirc", "Atilde", "Auml", "Aring", "AElig",
    "Ccedil", "Egrave", "Eacute", "Ecirc", "Euml", "Igrave", "Iacute", "Icirc", "Iuml", "ETH", "Ntilde", "Ograve",
    "Oacute", "Ocirc", "Otilde", "Ouml", "times", "Oslash", "Ugrave", "Uacute", "Ucirc", "Uuml", "Yacute", "THORN",
    "szlig", "agrave", "aacute", "acirc", "atilde", "auml", "aring", "aelig", "ccedil", "egrave", "eacute", "ecirc",
    "euml", "igrave", "iacute", "icirc", "iuml", "eth", "ntilde", "ograve", "oacute", "ocirc", "otilde", "ouml",
    "divide", "oslash", "ugrave", "uacute", "ucirc", "uuml", "yacute", "thorn", "yuml",
];

/// U+0391 and on; no capital final sigma.
#[rustfmt::skip]
const GREEK: [&str; 25] = [
    "Alpha", "Beta", "Gamma", "Delta", "Epsilon", "Zeta", "Eta", "Theta", "Iota", "Kappa", "Lambda", "Mu", "Nu", "Xi",
    "Omicron", "Pi", "Rho", "", "Sigma", "Tau", "Upsilon", "Phi", "Chi", "Psi", "Omega",
];

/// U+03B1 and on.
#[rustfmt::skip]
const GREEK_SMALL: [&str; 25] = [
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "omicron", "pi", "rho", "sigmaf", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
];

#[rustfmt::skip]
const OTHER_NAMES: [(&str, char); 32] = [
    ("amp", '&'), ("lt", '<'), ("gt", '>'), ("quot", '"'), ("AMP", '&'), ("LT", '<'), ("GT", '>'), ("QUOT", '"'),
    ("COPY", '©'), ("REG", '®'), ("apos", '\''), ("OElig", 'Œ'), ("oelig", 'œ'), ("Scaron", 'Š'), ("scaron", 'š'),
    ("Yuml", 'Ÿ'), ("fnof", 'ƒ'), ("circ", 'ˆ'), ("tilde", '˜'), ("ensp", '\u{2002}'), ("emsp", '\u{2003}'),
    ("ndash", '–'), ("mdash", '—'), ("lsquo", '‘'), ("rsquo", '’'), ("ldquo", '“'), ("rdquo", '”'), ("bull", '•'),
    ("hellip", '…'), ("trade", '™'), ("euro", '€'), ("minus", '−'),
];
