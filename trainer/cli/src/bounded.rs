//! Tests that every option for a time or a size rejects values out of range.

use clap::{Arg, Command, CommandFactory, Parser, error::ErrorKind};

use crate::Args;

/// Options of a server belong to `kith-sampler`, which has its own tests.
const OTHERS: &[&str] = &["serve"];

/// All options of a command and its subcommands, with the words before them.
fn options(command: &Command, words: &[String], found: &mut Vec<(Vec<String>, Arg)>) {
    for option in command.get_arguments().filter(|argument| argument.get_long().is_some()) {
        found.push((words.to_vec(), option.clone()));
    }
    for below in command.get_subcommands().filter(|below| !OTHERS.contains(&below.get_name())) {
        options(below, &[words, &[below.get_name().to_owned()]].concat(), found);
    }
}

/// Options with this value name.
fn options_of(value_name: &str) -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    options(&Args::command(), &["kith".to_owned()], &mut found);
    let is_called_so =
        |option: &Arg| option.get_value_names().is_some_and(|names| names.iter().any(|name| name == value_name));
    let named = found.into_iter().filter(|(_, option)| is_called_so(option));
    named.map(|(words, option)| (words, format!("--{}", option.get_long().expect("it has one")))).collect()
}

/// The error message if the value itself is refused.
fn refusal(words: &[String], option: &str, value: &str) -> Option<String> {
    let error = Args::try_parse_from(words.iter().cloned().chain([option.to_owned(), value.to_owned()])).err()?;
    matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue).then(|| error.to_string())
}

#[test]
fn times_and_sizes_beyond_all_bounds_are_refused() {
    let huge = ["18446744073709551615", "18446744073709551616", "9223372036854775808"];
    let kinds = [
        ("SECONDS", &["31536001"][..], &["1", "60", "31536000"][..]),
        ("SIZE", &["99999999999TiB", "16777215TiB", "1025TiB"][..], &["64MiB", "1024TiB"][..]),
    ];
    for (kind, wrong, right) in kinds {
        let options = options_of(kind);
        assert!(options.len() >= 8, "{options:?}");
        for (words, option) in options {
            // `--grace 0` means no checkpoint; every other time is at least a second.
            let none = if kind == "SECONDS" && option != "--grace" { &["0"][..] } else { &[] };
            for value in huge.iter().chain(wrong).chain(none) {
                let said = refusal(&words, &option, value);
                let said = said.unwrap_or_else(|| panic!("{} {option} {value} is not refused", words.join(" ")));
                assert!(said.contains(&option) && said.contains(value), "{said}");
            }
            for value in right {
                assert_eq!(refusal(&words, &option, value), None, "{} {option} {value}", words.join(" "));
            }
        }
    }
}

/// Ensures that the test above finds every option.
#[test]
fn every_option_for_times_and_sizes_says_so() {
    let mut found = Vec::new();
    options(&Args::command(), &["kith".to_owned()], &mut found);
    for (words, option) in found {
        let long = option.get_long().expect("it has one");
        let names = option.get_value_names().unwrap_or_default();
        let expected = match long {
            _ if long.ends_with("timeout") || long == "grace" => "SECONDS",
            "memory" | "gpu-features" => "SIZE",
            _ => continue,
        };
        assert!(names.iter().any(|name| name == expected), "{} --{long} <{names:?}>", words.join(" "));
    }
}
