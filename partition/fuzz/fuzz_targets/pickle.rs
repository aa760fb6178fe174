//! A pickle of arbitrary bytes is read or refused; nothing in it is executed.
#![no_main]

use kith_partition::raw::pickle::Pickle;
use libfuzzer_sys::fuzz_target;
use tempfile::NamedTempFile;

const LIMIT_BYTES: u64 = 1 << 20;

thread_local! {
    static FILE: NamedTempFile = NamedTempFile::new().expect("a temporary file");
}

fuzz_target!(|bytes: &[u8]| {
    FILE.with(|file| {
        std::fs::write(file.path(), bytes).expect("our own file");
        let Ok(pickle) = Pickle::read(file.path(), LIMIT_BYTES) else { return };
        let _ = pickle.array();
        let _ = pickle.csr();
        let _ = pickle.lists();
    });
});
