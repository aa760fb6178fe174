//! Every flip and every truncation of a file. Its reader must name the file in an error, or read the values of the whole file.

use std::{fmt::Debug, fs, path::Path};

/// Flips of each byte, besides that of all its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// Each of its bits: for texts, where few flips keep the syntax valid.
    Each,
    /// One bit, chosen by the position of the byte.
    One,
}

/// Results of all damaged copies.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Copies that were refused with an error that names the file.
    pub n_refused: usize,
    /// Damage with which the file was read as without it.
    pub harmless: Vec<String>,
}

/// One damaged copy.
struct Copy {
    damage: String,
    bytes: Vec<u8>,
}

/// Reads every damaged copy of `whole` with `read`, whose errors must contain `name`. Panics if a copy is read as other values than
/// `whole`, or if an error does not name the file.
pub fn check_bytes<V: Debug + PartialEq>(
    whole: &[u8],
    name: &str,
    bits: Bits,
    mut read: impl FnMut(&[u8]) -> Result<V, String>,
) -> Outcomes {
    let expected = read(whole).unwrap_or_else(|error| panic!("{name}: the whole file is refused: {error}"));
    let mut outcomes = Outcomes::default();
    for Copy { damage, bytes } in copies(whole, bits) {
        match read(&bytes) {
            Err(sentence) => {
                assert!(sentence.contains(name), "{name}, {damage}: the error does not name the file: {sentence}");
                outcomes.n_refused += 1;
            }
            Ok(found) => {
                assert!(found == expected, "{name}, {damage}: expected {expected:?}, found {found:?}");
                outcomes.harmless.push(damage);
            }
        }
    }
    outcomes
}

/// [`check_bytes`] of a file in its folder. The whole file is there again at the end.
pub fn check_file<V: Debug + PartialEq>(
    path: &Path,
    bits: Bits,
    mut read: impl FnMut() -> Result<V, String>,
) -> Outcomes {
    let write = |bytes: &[u8]| fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let whole = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let outcomes = check_bytes(&whole, &name, bits, |bytes| {
        write(bytes);
        read()
    });
    write(&whole);
    outcomes
}

fn copies(whole: &[u8], bits: Bits) -> impl Iterator<Item = Copy> + '_ {
    let n_bytes = whole.len();
    let flip = move |place: usize, mask: u8| {
        let mut bytes = whole.to_vec();
        bytes[place] ^= mask;
        Copy { damage: format!("byte {place} of {n_bytes} ^ {mask:#04x}"), bytes }
    };
    let flips = (0..n_bytes).flat_map(move |place| {
        let masks = match bits {
            Bits::Each => 0..8,
            Bits::One => place % 8..place % 8 + 1,
        };
        masks.map(|bit| 1 << bit).chain([0xff]).map(move |mask| flip(place, mask))
    });
    let cut = move |end: usize| Copy { damage: format!("cut after {end} of {n_bytes}"), bytes: whole[..end].to_vec() };
    let longer = Copy { damage: "a byte too many".to_owned(), bytes: [whole, b"0"].concat() };
    flips.chain((0..n_bytes).map(cut)).chain([longer])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(bytes: &[u8]) -> Result<u8, String> {
        bytes.first().copied().ok_or_else(|| "a.bin: empty".to_owned())
    }

    #[test]
    fn every_copy_differs_from_the_whole() {
        let whole = b"abc";
        for (bits, n) in [(Bits::Each, 3 * 9 + 3 + 1), (Bits::One, 3 * 2 + 3 + 1)] {
            let all: Vec<Vec<u8>> = copies(whole, bits).map(|copy| copy.bytes).collect();
            assert_eq!(all.len(), n);
            assert!(all.iter().all(|copy| copy != whole));
        }
    }

    #[test]
    fn a_checked_reader_passes() {
        let checked = |bytes: &[u8]| match bytes {
            b"ab" => Ok(()),
            other => Err(format!("a.bin: {other:?}")),
        };
        assert_eq!(check_bytes(b"ab", "a.bin", Bits::One, checked), Outcomes { n_refused: 7, harmless: vec![] });
        let second_is_padding = check_bytes(b"a", "a.bin", Bits::One, |bytes| match first(bytes)? {
            b'a' => Ok(()),
            _ => Err("a.bin: damaged".to_owned()),
        });
        assert_eq!(second_is_padding.harmless, ["a byte too many"]);
    }

    #[test]
    #[should_panic(expected = "a.bin, byte 0 of 1 ^ 0x01: expected 97, found 96")]
    fn a_changed_value_is_found() {
        check_bytes(b"a", "a.bin", Bits::Each, first);
    }

    #[test]
    #[should_panic(expected = "the error does not name the file: damaged")]
    fn an_error_without_the_file_is_found() {
        let read = |bytes: &[u8]| if bytes == b"a" { Ok(()) } else { Err("damaged".to_owned()) };
        check_bytes(b"a", "a.bin", Bits::Each, read);
    }
}
