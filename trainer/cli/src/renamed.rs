//! Renamed options of 0.1.0: accepted, with a note of the new name.

use std::ffi::OsString;

/// Old and new names of options.
pub(crate) const RENAMED: &[(&str, &str)] = &[
    ("--store", "--graph"),
    ("--cluster", "--graph"),
    ("--run-key", "--seed"),
    ("--run-keys", "--seeds"),
    ("--graph-keys", "--graph-seeds"),
    ("--tuning-key", "--tuning-seed"),
    ("--gpu-rows", "--gpu-features"),
    ("--rows", "--features"),
    ("--seeds-per-step", "--batch-size"),
    ("--world", "--ranks"),
];

/// A note for each old option of a command line.
pub(crate) fn notes(typed: &[OsString]) -> Vec<String> {
    let is_typed =
        |old: &str| typed.iter().filter_map(|word| word.to_str()).any(|word| word.split('=').next() == Some(old));
    let notes = RENAMED.iter().filter(|(old, _)| is_typed(old));
    notes.map(|(old, new)| format!("{old} is now called {new}")).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn an_old_option_is_noted() {
        let typed = ["train", "gat", "--store", "a", "--run-key=7", "--graph", "b"].map(OsString::from);
        assert_eq!(notes(&typed), ["--store is now called --graph", "--run-key is now called --seed"]);
        assert_eq!(notes(&["--stores".into()]), Vec::<String>::new());
    }

    fn options(command: &clap::Command, found: &mut Vec<(String, Vec<String>)>) {
        for argument in command.get_arguments() {
            if let Some(long) = argument.get_long() {
                let aliases = argument.get_all_aliases().unwrap_or_default();
                found.push((format!("--{long}"), aliases.iter().map(|alias| format!("--{alias}")).collect()));
            }
        }
        command.get_subcommands().for_each(|command| options(command, found));
    }

    /// Every new name is an option of some command that also takes the old one.
    #[test]
    fn old_options_are_understood() {
        let mut found = Vec::new();
        options(&crate::Args::command(), &mut found);
        for (old, new) in RENAMED {
            let is_alias =
                |(name, aliases): &(String, Vec<String>)| name == new && aliases.iter().any(|alias| alias == old);
            assert!(found.iter().any(is_alias), "{old}");
        }
    }

    #[test]
    fn every_option_of_0_1_0_is_understood() {
        let mut found = Vec::new();
        options(&crate::Args::command(), &mut found);
        options(&kith_sampler::program::Args::command(), &mut found);
        let names = include_str!("renamed/options-0.1.0.txt");
        assert_eq!(names.lines().count(), 103);
        for option in names.lines() {
            let has =
                |(name, aliases): &(String, Vec<String>)| name == option || aliases.iter().any(|own| own == option);
            assert!(found.iter().any(has), "{option}");
        }
    }
}
