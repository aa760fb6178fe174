//! A run file of arbitrary bytes is resolved or refused; a resolved one is resolved the same from its own text.

use kith_run::run_file::RunFile;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(config) = RunFile::parse(text, "fuzz.toml").and_then(|file| file.resolve()) {
        let again = RunFile::parse(&config.to_toml(), "fuzz.toml").and_then(|file| file.resolve());
        assert_eq!(again.expect("our own text"), config);
    }
}
