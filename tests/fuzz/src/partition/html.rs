//! A page of arbitrary text has text and links that are no longer than it.

use kith_partition::raw::html::scan;

/// The longest text that one byte of a page can stand for: two characters of four bytes each, for a named reference.
const MOST_PER_BYTE: usize = 8;

pub(crate) fn run(bytes: &[u8]) {
    let source = String::from_utf8_lossy(bytes);
    let page = scan(&source);
    let n_bytes = page.text.len() + page.hrefs.iter().map(String::len).sum::<usize>();
    assert!(n_bytes <= MOST_PER_BYTE * source.len(), "{n_bytes} bytes of a page of {}", source.len());
    assert_eq!(scan(&source), page);
}
