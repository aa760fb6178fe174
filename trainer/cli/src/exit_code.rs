//! Exit codes of errors.

use std::error::Error;

use kith_bucket::BucketError;
pub(crate) use kith_run::exit_code::BUG;
use kith_run::exit_code::{RETRY, WRONG, may_pass};

/// 1: invalid input; 75: storage or network failed, and a retry may help.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let is_passing = error.downcast_ref::<BucketError>().is_some_and(BucketError::is_passing);
    if is_passing || error.chain().any(is_of_system) { RETRY } else { WRONG }
}

/// True for an I/O error after which a retry may help.
fn is_of_system(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(may_pass)
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path};

    use anyhow::Context;
    use kith_run::file_error::FileError;
    use kith_store::StoreError;

    use super::*;

    #[test]
    fn storage_that_does_not_answer_is_worth_another_try() {
        let system = |code| io::Error::from_raw_os_error(code);
        for (code, expected) in [(5, RETRY), (116, RETRY), (2, 1), (28, 1)] {
            let store = StoreError::io(Path::new("stores/a"))(system(code));
            let context = Err::<(), _>(system(code)).context("the file").unwrap_err();
            let file = FileError::io(Path::new("a"))(system(code));
            for error in [store.into(), context, system(code).into(), file.into()] {
                assert_eq!(exit_code(&error), expected, "{error}");
            }
        }
        assert_eq!(exit_code(&anyhow::anyhow!("a text")), 1);
    }
    /// `kith-bucket` does not know exit codes: its errors that may pass are among those of all programs.
    #[test]
    fn a_bucket_takes_no_other_errors_for_passing() {
        let system = |code| io::Error::from_raw_os_error(code);
        let passing = |code: &i32| BucketError::Io { path: "a".into(), source: system(*code) }.is_passing();
        let codes: Vec<i32> = (1..134).filter(passing).collect();
        assert!(codes.contains(&5) && codes.iter().all(|code| may_pass(&system(*code))), "{codes:?}");
    }
}
