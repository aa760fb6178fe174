//! Checksum of a whole checkpoint file. It is stored in the file's own metadata and covers all bytes of the file, with
//! zeros in its own place: header, names, shapes, loop state and tensors.

use std::ops::Range;

/// Name of the text that holds it.
pub(super) const WHOLE: &str = "kith.file_crc32";

/// Stands in its place while it is computed: eight digits.
pub(super) const BLANK: &str = "00000000";

/// Puts the checksum into a file that was made with [`BLANK`] in its place.
pub(super) fn seal(bytes: &mut [u8]) {
    let place = place(bytes).expect("a file that is sealed has a place for its checksum");
    let sum = of(bytes, &place);
    bytes[place].copy_from_slice(sum.as_bytes());
}

/// Compares a file with the checksum that it names.
pub(super) fn is_right(bytes: &[u8]) -> bool {
    place(bytes).is_some_and(|place| of(bytes, &place).as_bytes() == &bytes[place])
}

/// Position of the eight digits. In texts of the header quotes are escaped, so that no text looks like this.
fn place(bytes: &[u8]) -> Option<Range<usize>> {
    let n_header = usize::try_from(u64::from_le_bytes(*bytes.first_chunk()?)).ok()?;
    let header = bytes.get(8..8usize.checked_add(n_header)?)?;
    let before = format!("\"{WHOLE}\":\"");
    let found = header.windows(before.len()).position(|window| window == before.as_bytes())?;
    let start = 8 + found + before.len();
    (bytes.get(start + BLANK.len()) == Some(&b'"')).then(|| start..start + BLANK.len())
}

fn of(bytes: &[u8], place: &Range<usize>) -> String {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..place.start]);
    hasher.update(BLANK.as_bytes());
    hasher.update(&bytes[place.end..]);
    format!("{:08x}", hasher.finalize())
}
