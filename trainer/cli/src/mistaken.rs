//! Advice for options that other programs have, and for arguments in the wrong place.

use clap::{
    Command, CommandFactory,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Commands, options that PyG scripts, GraphStorm and other trainers have there, and what to write instead.
const ELSEWHERE: &[(&[&str], &str, &str)] = &[
    (TRAINING, "--model", "name the model first, as in `kith train gat --graph PLACE`"),
    (TRAINING, "--dataset", "give the graph with --graph; `kith data list` lists datasets to import"),
    (TRAINING, "--data", "give the graph with --graph; `kith data list` lists datasets to import"),
    (TRAINING, "--heads", "use --set model.heads=8"),
    (TRAINING, "--dropout", "use --set model.dropout=0.5"),
    (TRAINING, "--weight-decay", "use --set optimizer.weight_decay=5e-4"),
    (TRAINING, "--num-neighbors", "use --set 'train.fanouts=[10, 10]'"),
    (TRAINING, "--fanout", "use --set 'train.fanouts=[10, 10]'"),
    (TRAINING, "--fanouts", "use --set 'train.fanouts=[10, 10]'"),
    (TRAINING, "--mini-batch", "use --batch-size 1024"),
    (TRAINING, "--patience", "use --set early_stop.patience=20"),
    (TRAINING, "--num-epochs", "use --epochs"),
    (TRAINING, "--learning-rate", "use --lr"),
    (TRAINING, "--gpu", "use --device cuda"),
    (TRAINING, "--cuda", "use --device cuda"),
    (TRAINING, "--checkpoint", "use --resume with the --out of the run, or --init FILE for its weights"),
    (&["data"], "--x", "use --features"),
    (&["data"], "--edge-index", "use --edges"),
    (&["data"], "--y", "use --labels"),
    (&["data"], "--num-nodes", "use --nodes"),
];

const TRAINING: &[&str] = &["train", "launch", "tune"];

/// A better sentence for an error of the command line, if there is one. `command` is the word after the program's name.
pub(crate) fn advice(error: &clap::Error, command: &str) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_meant = |(commands, name, _): &&(&[&str], &str, &str)| commands.contains(&command) && name == argument;
    if let Some((_, _, advice)) = ELSEWHERE.iter().find(is_meant) {
        return Some(format!("there is no option {argument}: {advice}"));
    }
    if argument.strip_prefix('-').is_some_and(|rest| rest.parse::<f64>().is_ok()) {
        return Some(format!("{argument} is below zero: expected a number above 0"));
    }
    // `kith devices` takes one only with --warm.
    let takes_graph =
        command != "devices" && root().find_subcommand(command).is_some_and(|command| has_option(command, "graph"));
    (takes_graph && !argument.starts_with('-'))
        .then(|| format!("unexpected argument {argument}: give the graph with --graph {argument}"))
}

fn has_option(command: &Command, name: &str) -> bool {
    command.get_arguments().any(|argument| argument.get_long() == Some(name))
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
            let found = advice(&error(line), line.split(' ').nth(1).unwrap());
            assert!(found.as_ref().is_some_and(|found| found.contains(expected)), "{line}: {found:?}");
        }
        assert_eq!(advice(&error("kith train gat --graph a --num-layers 3"), "train"), None, "clap suggests --layers");
        assert_eq!(advice(&error("kith devices here"), "devices"), None, "it takes no graph");
        assert_eq!(advice(&error("kith predict run --checkpoint a"), "predict"), None, "advice for training");
    }

    /// A name that a command has is no mistake.
    #[test]
    fn no_option_of_ours_is_listed() {
        for (commands, name, _) in ELSEWHERE {
            for command in *commands {
                let root = root();
                let command = root.find_subcommand(command).unwrap();
                let name = name.trim_start_matches('-');
                let is_ours = has_option(command, name) || command.get_subcommands().any(|own| has_option(own, name));
                assert!(!is_ours, "{} --{name}", command.get_name());
            }
        }
    }

    #[test]
    fn idle_tips_go() {
        let shown = without_idle_tips(error("kith train gat --graph a --shard 8"), &root()).to_string();
        assert!(!shown.contains("--shards") && !shown.contains("as a value"), "{shown}");
        let shown = without_idle_tips(error("kith train gat --graph a --num-layers 3"), &root()).to_string();
        assert!(shown.contains("--layers"), "{shown}");
    }
}
