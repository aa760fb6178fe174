//! An npz file of arbitrary bytes is read or refused, within its memory limit.

use kith_partition::raw::npz::Npz;

use super::LIMIT_BYTES;
use crate::scratch::with_file;

pub(crate) fn run(bytes: &[u8]) {
    with_file("a.npz", bytes, |path| {
        let Ok(mut npz) = Npz::open(path, LIMIT_BYTES) else { return };
        for name in ["labels", "adj_data", "a"] {
            let _ = npz.optional(name);
        }
        for prefix in ["adj_", "attr_", ""] {
            if let Ok(csr) = npz.csr(prefix) {
                let _ = csr.into_rows();
            }
        }
    });
}
