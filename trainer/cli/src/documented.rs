//! Tests that commands in documents have existing subcommands and options, in shell blocks and in backticks.
//! `tests/docs.rs` runs them.

use std::{fs, path::Path};

use clap::{
    Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::Args;

/// Words that may precede a program and start it.
const STARTERS: &[&str] = &["do", "exec", "nohup", "srun", "sudo", "then", "time"];

/// Words of a command.
type Words = Vec<String>;

/// All commands of a Markdown text that start our programs.
fn commands(text: &str) -> Vec<Words> {
    let (mut shell, mut outside) = (String::new(), String::new());
    let mut block: Option<bool> = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), block) {
            (Some(_), Some(_)) => block = None,
            (Some(kind), None) => block = Some(kind == "sh"),
            (None, Some(true)) => shell = shell + line + "\n",
            (None, Some(false)) => {}
            (None, None) => outside = outside + line + "\n",
        }
    }
    let in_backticks = outside.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " "));
    let all = in_backticks.flat_map(|span| split(&span)).chain(split(&shell));
    all.filter_map(|words| ours(&words)).collect()
}

/// Splits shell text into commands, for the syntax that documents use.
fn split(shell: &str) -> Vec<Words> {
    let mut commands = vec![Words::new()];
    let (mut word, mut quote) = (None::<String>, None);
    let mut letters = shell.replace("\\\n", " ").chars().collect::<Vec<_>>().into_iter().peekable();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (_, Some(end)) if letter == end => quote = None,
            (_, Some(_)) => word.get_or_insert_default().push(letter),
            ('"' | '\'', None) => (quote, word) = (Some(letter), Some(word.unwrap_or_default())),
            ('#', None) if word.is_none() => while letters.next_if(|letter| *letter != '\n').is_some() {},
            (' ' | '\n' | ';' | '&' | '|', None) => {
                // Alternatives such as A|B are one word; a pipe has spaces around it.
                if letter == '|' && word.is_some() {
                    word.get_or_insert_default().push(letter);
                    continue;
                }
                commands.last_mut().expect("there is one").extend(word.take());
                if letter != ' ' {
                    commands.push(Words::new());
                }
            }
            (_, None) => word.get_or_insert_default().push(letter),
        }
    }
    commands.last_mut().expect("there is one").extend(word);
    commands
}

/// Words of a command from the name of our program on, if it starts one.
fn ours(words: &[String]) -> Option<Words> {
    let is_name = |word: &String| word == "kith" || word == "kith-sampler";
    let is_assignment = |word: &&String| word.split_once('=').is_some_and(|(name, _)| is_to_be_filled_in(name));
    let n_assignments = words.iter().take_while(is_assignment).count();
    let words = &words[n_assignments..];
    let start = match words.first()? {
        first if STARTERS.contains(&first.as_str()) => words.iter().position(is_name)?,
        _ => words.iter().position(|word| word == "--").map_or(0, |dashes| dashes + 1),
    };
    let words = words.get(start..).filter(|words| words.first().is_some_and(is_name))?;
    let end = words.iter().position(|word| word.starts_with(['>', '<']) || word.starts_with("2>"));
    // Skips ellipses, and takes the first of alternatives.
    let said = words[..end.unwrap_or(words.len())].iter().filter(|word| *word != "…");
    Some(said.map(|word| word.trim_matches(['[', ']']).split('|').next().unwrap_or_default().to_owned()).collect())
}

/// True for placeholders: names in capitals, shell variables, ellipses.
fn is_to_be_filled_in(word: &str) -> bool {
    let is_name =
        word.chars().all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || "_:".contains(letter));
    is_name || word.starts_with('$') || word.contains('…')
}

/// Error of a command, if any. Missing arguments are allowed, because documents may leave them out.
fn objection(words: &[String]) -> Option<String> {
    let error = match words[0].as_str() {
        "kith-sampler" => kith_sampler::program::Args::try_parse_from(words).err()?,
        _ => Args::try_parse_from(words).err()?,
    };
    let is_fine = match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand => true,
        _ => [ContextKind::InvalidValue, ContextKind::InvalidSubcommand]
            .into_iter()
            .any(|kind| matches!(error.get(kind), Some(ContextValue::String(word)) if is_to_be_filled_in(word))),
    };
    (!is_fine).then(|| format!("`{}`: {error}", words.join(" ")))
}

#[test]
fn every_command_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut wrong, mut n_commands) = (String::new(), 0);
    let parts =
        fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    for folder in [root.clone(), root.join("docs")].into_iter().chain(parts) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "md") {
                continue;
            }
            for words in commands(&fs::read_to_string(&path).unwrap()) {
                n_commands += 1;
                if let Some(objection) = objection(&words) {
                    wrong += &format!("{}: {objection}\n", path.file_name().unwrap_or_default().display());
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(n_commands > 80, "only {n_commands} commands were found");
}

#[test]
fn commands_are_found() {
    let text = "A `kith\ntrain` and `make` and `A=1 kith data stats X|Y`\n\n```sh\n\
         kith data list | head -3; B=\"a b\" C=2 kith plan \"a b\" \\\n    --shards 3   # kith no\n\
         for i in 1 2; do kith-sampler --shards $i & done\nkubectl -n kith exec pod -- kith devices >out\n\
         docker build -t kith .\n```\n```json\nkith no\n```\n";
    let found: Vec<String> = commands(text).iter().map(|words| words.join(",")).collect();
    let expected = [
        "kith,train",
        "kith,data,stats,X",
        "kith,data,list",
        "kith,plan,a b,--shards,3",
        "kith-sampler,--shards,$i",
        "kith,devices",
    ];
    assert_eq!(found, expected);
}

#[test]
fn commands_that_do_not_exist_are_noticed() {
    let first = |command: &str| commands(&format!("`{command}`")).remove(0);
    for wrong in [
        "kith train --samples one:7000",
        "kith serving --graph DIR",
        "kith data stat STORE",
        "kith-sampler --shard 1",
        "kith replay RUN_DIR --step seven",
    ] {
        assert!(objection(&first(wrong)).is_some(), "{wrong}");
    }
    for right in [
        "kith train --samplers … --cache 20",
        "kith data",
        "kith replay RUN_DIR --step S [--slice K]",
        "kith bench NAME --help",
        "kith-sampler --graph DIR --shards 0,1",
    ] {
        assert_eq!(objection(&first(right)), None);
    }
}
