//! `pieces` of `kith-fuzz`, called by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (kith_fuzz::target("pieces").run)(bytes));
