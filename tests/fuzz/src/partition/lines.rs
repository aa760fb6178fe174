//! Lines of arbitrary bytes, plain or gzip, are read or refused within their limit.

use kith_partition::raw::lines::{LINE_LIMIT, Lines};

use super::LIMIT_BYTES;
use crate::scratch::with_file;

pub(crate) fn run(bytes: &[u8]) {
    with_file("a.csv", bytes, |path| {
        let Ok(mut lines) = Lines::open(path, LIMIT_BYTES) else { return };
        let mut n_bytes = 0;
        while let Ok(Some(line)) = lines.next_line() {
            let _ = line.fields::<2>();
            let _ = line.ints::<2>();
            let _ = line.float("0.5");
            n_bytes += 1;
            assert!(n_bytes <= LIMIT_BYTES, "more lines than bytes");
        }
    });
    assert!(LINE_LIMIT as u64 <= LIMIT_BYTES);
}
