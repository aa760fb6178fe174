//! Runs every command of the documents as a reader would: the shell blocks of each document, in order, in one folder,
//! on its own host. An HTML comment before a block changes that:
//!
//! - none, or `<!-- test: run -->`: run;
//! - `<!-- test: slow -->`: run by `make slow`;
//! - `<!-- test: parse; REASON -->`: not run, because a test lacks something it needs. As for all blocks, bash checks its
//!   syntax, and `trainer/cli/src/documented.rs` checks options and subcommands.
//!
//! After `run` and `slow`, separated by semicolons:
//!
//! - `s/WORDS/OTHERS/`, or with bars instead of slashes: replaces words, which the block must contain, such as large
//!   numbers and ports;
//! - `needs DATASET`: run if the raw files of the dataset are present.
//!
//! `docs/given.sh` makes what readers already have (a store, a run file, tables). In `make test`, runs have two epochs.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use crate::{
    hosts::Hosts,
    kith::{finish_within, is_slow_asked_for, program, real_files, root},
    tidy::files,
};

const LIMIT: Duration = Duration::from_secs(90);
const SLOW_LIMIT: Duration = Duration::from_secs(600);

/// A block of shell in a document.
#[derive(Debug, PartialEq)]
struct Block {
    /// Its first line.
    line: usize,
    how: How,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Run,
    Slow,
    Parse,
}

/// The blocks of a document, with replacements; an error for an invalid comment.
fn blocks(document: &str, has_dataset: impl Fn(&str) -> bool) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut comment: Option<(usize, String)> = None;
    let mut lines = document.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(begun) = line.strip_prefix("<!-- test:") {
            let mut text = begun.to_owned();
            while !text.contains("-->") {
                let (_, more) = lines.next().ok_or("a comment has no end")?;
                text = text + " " + more.trim();
            }
            let text = text.split("-->").next().unwrap_or_default().trim().to_owned();
            if let Some((before, _)) = comment.replace((number + 1, text)) {
                return Err(format!("line {before}: no block follows"));
            }
        } else if let Some(kind) = line.strip_prefix("```") {
            let mut text = String::new();
            loop {
                match lines.next() {
                    Some((_, "```")) => break,
                    Some((_, line)) => text = text + line + "\n",
                    None => return Err(format!("line {}: a block has no end", number + 1)),
                }
            }
            let said = comment.take();
            if kind == "sh" {
                let line = number + 1;
                let (how, text) = directed(said.map_or_else(|| "run".to_owned(), |(_, said)| said), text, &has_dataset)
                    .map_err(|error| format!("line {line}: {error}"))?;
                blocks.push(Block { line, how, text });
            } else if said.is_some() {
                return Err(format!("line {}: a comment on a block that is not sh", number + 1));
            }
        } else if line.trim_start().starts_with("```sh") {
            return Err(format!("line {}: a block of shell must begin its line", number + 1));
        } else if let Some((before, _)) = &comment
            && !line.trim().is_empty()
        {
            return Err(format!("line {before}: no block follows"));
        }
    }
    match comment {
        Some((before, _)) => Err(format!("line {before}: no block follows")),
        None => Ok(blocks),
    }
}

/// Applies a comment to a block.
fn directed(said: String, mut text: String, has_dataset: impl Fn(&str) -> bool) -> Result<(How, String), String> {
    let mut parts = said.split("; ").map(str::trim);
    let how = match parts.next().unwrap_or_default() {
        "run" => How::Run,
        "slow" => How::Slow,
        "parse" => How::Parse,
        other => return Err(format!("{other:?} is not run, slow or parse")),
    };
    let mut how_here = how;
    let mut has_reason = false;
    for part in parts {
        if let Some(dataset) = part.strip_prefix("needs ").filter(|_| how != How::Parse) {
            if !has_dataset(dataset) {
                how_here = How::Parse;
            }
        } else if let Some((words, others)) = substitution(part)? {
            if !text.contains(words) {
                return Err(format!("it has no {words:?} to be replaced"));
            }
            text = text.replace(words, others);
        } else {
            has_reason = true;
        }
    }
    if has_reason != (how == How::Parse) {
        return Err(format!("{said:?}: a reason stands after parse, and only there"));
    }
    Ok((how_here, text))
}

/// Words and their replacement, of `s/WORDS/OTHERS/` or with bars.
fn substitution(part: &str) -> Result<Option<(&str, &str)>, String> {
    let Some(mark) = part.strip_prefix('s').and_then(|rest| rest.chars().next()).filter(|mark| "/|".contains(*mark))
    else {
        return Ok(None);
    };
    match part.split(mark).collect::<Vec<_>>()[..] {
        [_, words, others, ""] if !words.is_empty() => Ok(Some((words, others))),
        _ => Err(format!("{part:?} is not s{mark}WORDS{mark}OTHERS{mark}")),
    }
}

/// All blocks of a document that are run, as one script.
fn script(blocks: &[&Block]) -> String {
    let mut script = String::from(
        "set -euo pipefail\nblock=given\n\
         trap 'code=$?; [[ $code == 0 ]] || echo \"exit code $code: $block\" >&2' EXIT\n\
         source \"$GIVEN\"\n",
    );
    for Block { line, text, .. } in blocks {
        script += &format!("block='line {line}'\n{text}");
    }
    script
}

/// A folder with our programs, for PATH. Its `make` only prints commands.
fn programs(folder: &Path, is_slow: bool) -> PathBuf {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let program = program().display().to_string();
    let short = "case ${1:-} in train | launch) set -- \"$@\" --set train.epochs=2 ;; esac\n";
    let short = if is_slow { "" } else { short };
    let make = finish_within(Command::new("bash").args(["-c", "command -v make"]), LIMIT).stdout;
    for (name, script) in [
        ("kith", format!("{short}exec '{program}' \"$@\"")),
        ("kith-sampler", format!("exec '{program}-sampler' \"$@\"")),
        ("make", format!("exec {} --dry-run --silent -C '{}' \"$@\" >/dev/null", make.trim(), root().display())),
    ] {
        fs::write(bin.join(name), format!("#!/bin/bash\n{script}\n")).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    bin
}

/// Runs a document; an error if it fails.
fn try_document(path: &Path, folder: &Path, datasets: &Path, is_slow: bool) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let blocks = blocks(&text, |dataset| datasets.join(dataset).is_dir())?;
    fs::create_dir_all(folder).unwrap();
    let file = folder.join("commands.sh");
    fs::write(&file, blocks.iter().map(|block| block.text.as_str()).collect::<String>()).unwrap();
    let syntax = finish_within(Command::new("bash").arg("-n").arg(&file), LIMIT);
    if syntax.code != Some(0) {
        return Err(syntax.stderr);
    }
    let is_run = |block: &&Block| block.how == How::Run || is_slow && block.how == How::Slow;
    let blocks: Vec<&Block> = blocks.iter().filter(is_run).collect();
    if blocks.is_empty() {
        return Ok(());
    }
    // One host per document: its ports are free, and background processes end with it.
    let Some(hosts) = Hosts::new(&["here"]) else { return Ok(()) };
    fs::write(&file, script(&blocks)).unwrap();
    let path_with_ours =
        format!("{}:{}", programs(folder, is_slow).display(), std::env::var("PATH").unwrap_or_default());
    let mut command = hosts.command("here", "bash");
    command.arg(&file).current_dir(folder).env("PATH", path_with_ours);
    command.env("DOCUMENT", path).env("DATASETS", datasets).env("GIVEN", root().join("tests/docs/given.sh"));
    // Output goes to a file: background processes would hold a pipe open.
    let said = File::create(folder.join("said")).unwrap();
    command.stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (started, limit) = (Instant::now(), if is_slow { SLOW_LIMIT } else { LIMIT });
    let status = loop {
        match child.try_wait().expect("a child can be waited for") {
            None if started.elapsed() < limit => thread::sleep(Duration::from_millis(2)),
            ended => break ended,
        }
    };
    drop(hosts); // With all its processes.
    let _ = child.wait();
    match status {
        Some(status) if status.success() => Ok(()),
        Some(_) => Err(fs::read_to_string(folder.join("said")).unwrap_or_default()),
        None => Err(format!("it did not end within {limit:?}:\n{}", fs::read_to_string(folder.join("said")).unwrap())),
    }
}

/// All documents: those of the root, and the chapters of the book.
fn documents() -> Vec<PathBuf> {
    let documents = files(&["md"]).into_iter().map(|(path, _)| path);
    documents.filter(|path| !path.contains('/') || path.starts_with("docs/")).map(|path| root().join(path)).collect()
}

/// Runs all documents, two at a time.
#[allow(clippy::print_stderr)]
fn try_documents(is_slow: bool) {
    program();
    let temp = tempfile::tempdir().unwrap();
    let datasets = real_files("cora").and_then(|cora| cora.parent()?.canonicalize().ok());
    let datasets = datasets.unwrap_or_else(|| temp.path().join("none"));
    let (documents, next) = (documents(), AtomicUsize::new(0));
    assert!(documents.len() > 5, "{documents:?}");
    let try_some = || {
        let mut wrong = String::new();
        while let Some(document) = documents.get(next.fetch_add(1, Relaxed)) {
            let name = document.strip_prefix(root()).unwrap().display().to_string();
            let started = Instant::now();
            if let Err(error) = try_document(document, &temp.path().join(&name), &datasets, is_slow) {
                wrong += &format!("{name}: {error}\n");
            }
            eprintln!("{name}: {:.1} s", started.elapsed().as_secs_f64());
        }
        wrong
    };
    let wrong = thread::scope(|scope| {
        let others = scope.spawn(try_some);
        try_some() + &others.join().unwrap()
    });
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn commands_of_documents_run() {
    try_documents(false);
}

#[test]
fn slow_all_commands_of_documents_run() {
    if is_slow_asked_for() {
        try_documents(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(document: &str) -> Result<Vec<Block>, String> {
        blocks(document, |dataset| dataset == "cora")
    }

    #[test]
    fn blocks_are_found_and_directed() {
        let document = "Text.\n\n```sh\nls a\n```\n<!-- test: run; s/9000/9/;\n     s/a b/c/ -->\n\n```sh\nls 9000 a b\n```\n```json\n{}\n```\n\
             <!-- test: parse; hours long -->\n```sh\nkith\n```\n<!-- test: run; needs cora -->\n```sh\n```\n\
             <!-- test: slow; needs pubmed -->\n```sh\n```\n<!-- test: slow; s/60/2/ -->\n```sh\ntune 60\n```\n";
        let found: Vec<(usize, How, String)> =
            told(document).unwrap().into_iter().map(|block| (block.line, block.how, block.text)).collect();
        let expected = [
            (3, How::Run, "ls a\n"),
            (9, How::Run, "ls 9 c\n"),
            (16, How::Parse, "kith\n"),
            (20, How::Run, ""),
            (23, How::Parse, ""),
            (26, How::Slow, "tune 2\n"),
        ];
        assert_eq!(found, expected.map(|(line, how, text)| (line, how, text.to_owned())));
    }

    #[test]
    fn comments_that_mean_nothing_are_refused() {
        for (comment, words) in [
            ("run; s/a/b/", "no \"a\""),
            ("run; s/x/b", "is not s/WORDS/OTHERS/"),
            ("run; because", "a reason stands"),
            ("parse", "a reason stands"),
            ("ignore; me", "not run, slow or parse"),
        ] {
            let error = told(&format!("<!-- test: {comment} -->\n```sh\nx\n```\n")).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        for document in [
            "<!-- test: run -->\nText.\n",
            "<!-- test: run -->\n",
            "<!-- test: run -->\n```json\n```\n",
            "```sh\n",
            "  ```sh\n  ```\n",
        ] {
            assert!(told(document).is_err(), "{document}");
        }
    }
}
