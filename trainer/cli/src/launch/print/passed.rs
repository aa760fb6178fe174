//! Options that are passed on to ranks in pods.

use std::ffi::OsString;

use crate::launch::args::Args;

/// All typed options except `own`, which pods get in another way. Skips the run file.
pub(super) fn passed(typed: &[OsString], own: &[&str]) -> anyhow::Result<Vec<String>> {
    let flags = flags();
    let mut typed = typed.iter();
    let mut next = || {
        let text = |part: &OsString| part.to_str().map(str::to_owned);
        typed
            .next()
            .map(|part| text(part).ok_or_else(|| anyhow::anyhow!("expected arguments in UTF-8, found {part:?}")))
            .transpose()
    };
    let mut passed = Vec::new();
    while let Some(part) = next()? {
        // A word without dashes is the run file.
        if !part.starts_with("--") || part == "--" {
            continue;
        }
        let (option, value) = match part.split_once('=') {
            Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
            None if flags.contains(&part) => (part, None),
            None => (part, next()?),
        };
        if !own.contains(&option.as_str()) {
            passed.push(match value {
                Some(value) => format!("{option}={value}"),
                None => option,
            });
        }
    }
    Ok(passed)
}

/// Options without a value.
fn flags() -> Vec<String> {
    let command = <Args as clap::Args>::augment_args(clap::Command::new("launch"));
    let flags = command.get_arguments().filter(|argument| !argument.get_action().takes_values());
    flags.filter_map(|argument| Some(format!("--{}", argument.get_long()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_file_and_what_is_ours_stay() {
        let of = |typed: &[&str]| passed(&typed.iter().map(OsString::from).collect::<Vec<_>>(), &["--ranks", "--out"]);
        let typed = ["--ranks", "2", "--json", "a.toml", "--set", "train.split=a=b", "--out=x", "--seed=7"];
        assert_eq!(of(&typed).unwrap(), ["--json", "--set=train.split=a=b", "--seed=7"]);
        assert_eq!(of(&["--set", "a.toml", "--cache", "5", "a.toml"]).unwrap(), ["--set=a.toml", "--cache=5"]);
    }
}
