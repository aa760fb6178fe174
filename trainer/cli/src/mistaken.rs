//! Advice for options that other programs have, and for arguments in the wrong place.

use clap::{
    Command, CommandFactory,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Options of PyG scripts, GraphStorm and other trainers, and what to write instead.
const ELSEWHERE: &[(&str, &str)] = &[
    ("--model", "name the model first, as in `kith train gat --graph PLACE`"),
    ("--preset-name", "name the preset first, as in `kith train cora/gat --graph PLACE`"),
    ("--dataset", "give the graph with --graph; `kith data list` lists datasets to import"),
    ("--data", "give the graph with --graph; `kith data list` lists datasets to import"),
    ("--heads", "use --set model.heads=8"),
    ("--dropout", "use --set model.dropout=0.5"),
    ("--weight-decay", "use --set optimizer.weight_decay=5e-4"),
    ("--num-neighbors", "use --set 'train.fanouts=[10, 10]'"),
    ("--fanout", "use --set 'train.fanouts=[10, 10]'"),
    ("--fanouts", "use --set 'train.fanouts=[10, 10]'"),
    ("--mini-batch", "use --batch-size 1024"),
    ("--patience", "use --set early_stop.patience=20"),
    ("--num-epochs", "use --epochs"),
    ("--learning-rate", "use --lr"),
    ("--gpu", "use --device cuda"),
    ("--cuda", "use --device cuda"),
    ("--checkpoint", "use --resume with the --out of the run, or --init FILE for its weights"),
    ("--x", "use --features"),
    ("--edge-index", "use --edges"),
    ("--y", "use --labels"),
    ("--num-nodes", "use --nodes"),
];

/// A better sentence for an error of the command line, if there is one.
pub(crate) fn advice(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    if let Some((_, advice)) = ELSEWHERE.iter().find(|(name, _)| name == argument) {
        return Some(format!("there is no option {argument}: {advice}"));
    }
    let is_number = argument.strip_prefix('-').is_some_and(|rest| rest.parse::<f64>().is_ok());
    if is_number {
        return Some(format!("{argument} is below zero: expected a number above 0"));
    }
    (!argument.starts_with('-'))
        .then(|| format!("unexpected argument {argument}: give the graph with --graph {argument}"))
}

/// Removes tips that lead nowhere: hidden options, and how to pass an unknown option as a value.
pub(crate) fn without_idle_tips(mut error: clap::Error, root: &Command) -> clap::Error {
    error.remove(ContextKind::Suggested);
    if let Some(ContextValue::String(suggested)) = error.get(ContextKind::SuggestedArg)
        && is_hidden(root, suggested.trim_start_matches('-'))
    {
        error.remove(ContextKind::SuggestedArg);
    }
    error
}

/// True if commands have an option only for names of 0.1.0 and for mixtures of places.
fn is_hidden(command: &Command, name: &str) -> bool {
    let mut own = command.get_arguments().filter(|argument| argument.get_long() == Some(name));
    own.any(|argument| argument.is_hide_set()) || command.get_subcommands().any(|command| is_hidden(command, name))
}

/// The command line, as clap describes it.
pub(crate) fn root() -> Command {
    crate::Args::command()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn error(line: &str) -> clap::Error {
        crate::Args::try_parse_from(line.split(' ')).err().unwrap()
    }

    #[test]
    fn options_of_other_programs_are_translated() {
        for (line, expected) in [
            ("kith train --model gat", "there is no option --model: name the model first"),
            ("kith train gcn --graph a --heads 8", "there is no option --heads: use --set model.heads=8"),
            ("kith train gat --graph a --num-neighbors 10,10", "use --set 'train.fanouts=[10, 10]'"),
            ("kith train gat stores/cora", "give the graph with --graph stores/cora"),
            ("kith train gat --graph a --lr -1", "-1 is below zero: expected a number above 0"),
        ] {
            let found = advice(&error(line));
            assert!(found.as_ref().is_some_and(|found| found.contains(expected)), "{line}: {found:?}");
        }
        assert_eq!(advice(&error("kith train gat --graph a --num-layers 3")), None, "clap suggests --layers");
    }

    /// A name that a command has is no mistake.
    #[test]
    fn no_option_of_ours_is_listed() {
        fn all(command: &Command, found: &mut Vec<String>) {
            found.extend(command.get_arguments().filter_map(|argument| Some(format!("--{}", argument.get_long()?))));
            command.get_subcommands().for_each(|command| all(command, found));
        }
        let mut train = Vec::new();
        all(root().find_subcommand("train").unwrap(), &mut train);
        let listed: Vec<&str> = ELSEWHERE.iter().map(|(name, _)| *name).collect();
        assert!(train.iter().all(|name| !listed.contains(&name.as_str())), "{train:?}");
    }

    #[test]
    fn idle_tips_go() {
        let shown = without_idle_tips(error("kith train gat --graph a --shard 8"), &root()).to_string();
        assert!(!shown.contains("--shards") && !shown.contains("as a value"), "{shown}");
        let shown = without_idle_tips(error("kith train gat --graph a --num-layers 3"), &root()).to_string();
        assert!(shown.contains("--layers"), "{shown}");
    }
}
