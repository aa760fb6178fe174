//! An npz file of arbitrary bytes is read or refused, within its memory limit.
#![no_main]

use kith_partition::raw::npz::Npz;
use libfuzzer_sys::fuzz_target;
use tempfile::NamedTempFile;

const LIMIT_BYTES: u64 = 1 << 20;

thread_local! {
    static FILE: NamedTempFile = NamedTempFile::new().expect("a temporary file");
}

fuzz_target!(|bytes: &[u8]| {
    FILE.with(|file| {
        std::fs::write(file.path(), bytes).expect("our own file");
        let Ok(mut npz) = Npz::open(file.path(), LIMIT_BYTES) else { return };
        for name in ["labels", "adj_data", "a"] {
            let _ = npz.optional(name);
        }
        for prefix in ["adj_", "attr_", ""] {
            if let Ok(csr) = npz.csr(prefix) {
                let _ = csr.into_rows();
            }
        }
    });
});
