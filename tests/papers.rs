//! `deploy/bench/papers.sh`: its folder and its exit codes; on a tenth of ogbn-papers100M's size, memory and scratch stay within their
//! limits.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::kith::{Finished, finish, finish_within, is_slow_asked_for, program, root};

const LIMIT: Duration = Duration::from_secs(1100);

/// A figure in a line of the script: the number behind a word.
fn figure(line: &str, word: &str) -> f64 {
    let rest = line.split(word).nth(1).unwrap_or_else(|| panic!("{word} is missing: {line}"));
    rest.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no number: {line}"))
}

/// The script with a stand-in for the program; arguments: the folder.
fn with_stand_in(dir: &Path, program: &str) -> Finished {
    let stand_in = dir.with_extension("program");
    fs::write(&stand_in, format!("#!/bin/sh\n{program}\n")).unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    finish(Command::new(root().join("deploy/bench/papers.sh")).arg(dir).arg("0.0001").env("KITH", &stand_in))
}

#[test]
fn folders_of_others_are_not_used() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("mine");
    fs::create_dir_all(dir.join("store")).unwrap();
    fs::create_dir(dir.join("run")).unwrap();
    fs::write(dir.join("run/thesis.tex"), "mine").unwrap();
    let refused = with_stand_in(&dir, "exit 0");
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(refused.stderr.contains("choose a new or empty WORK_DIR"), "{}", refused.stderr);
    assert!(dir.join("store").exists() && dir.join("run/thesis.tex").exists());
    assert!(!dir.join("papers.sh.work").exists());
}

#[test]
fn a_run_that_crashes_is_not_a_stopped_run() {
    let temp = tempfile::tempdir().unwrap();
    // Its first `train` has a checkpoint and ends with some code when it is stopped.
    let program = |code: u8| {
        format!(
            r#"case "$1 $2" in
            "data generate") mkdir store ;;
            "train run.toml")
                case "$*" in *--resume*) exit 3 ;; esac
                mkdir -p run/checkpoints && echo '{{}}' >run/steps.jsonl
                trap 'exit {code}' TERM
                touch run/checkpoints/step-1
                n=0; while [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done ;;
            esac"#
        )
    };
    let of = |code: u8| with_stand_in(&temp.path().join(format!("work{code}")), &program(code));
    let crashed = of(70);
    assert_eq!(crashed.code, Some(1), "{}{}", crashed.stdout, crashed.stderr);
    assert!(crashed.stderr.contains("the run failed with exit code 70"), "{}", crashed.stderr);
    assert!(!crashed.stdout.contains("stopped "), "{}", crashed.stdout);
    assert!(of(0).stderr.contains("the run ended before it was stopped"));
    let stopped = of(75);
    assert!(stopped.stdout.contains("stopped    1 steps"), "{}{}", stopped.stdout, stopped.stderr);
    assert_eq!(stopped.code, Some(3), "the resumed run is the next phase");
    // The same folder again.
    let again = of(75);
    assert!(again.stdout.contains("stopped    1 steps"), "{}{}", again.stdout, again.stderr);
}

#[test]
fn slow_a_tenth_of_papers_trains_within_its_memory() {
    if !is_slow_asked_for() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let mut command = Command::new(root().join("deploy/bench/papers.sh"));
    command.arg(temp.path()).arg("0.1").env("KITH", program()).env("MEMORY", "2GiB");
    let finished = finish_within(&mut command, LIMIT);
    let logs = || {
        let read = |name: &str| std::fs::read_to_string(temp.path().join(name)).unwrap_or_default();
        ["generate.log", "partition.log", "verify.log", "first.log", "train.log", "predict.log"].map(read).concat()
    };
    assert_eq!(finished.code, Some(0), "{}\n{}\n{}", finished.stdout, finished.stderr, logs());
    for name in ["generate", "partition", "verify", "train", "predict"] {
        let line = finished.stdout.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
        assert!(figure(line, "private") < 3.0, "2 GiB, and what a program needs for itself: {line}");
        // Sorting edges takes files of about the size of the store.
        assert!(figure(line, "scratch") < if name == "generate" { 4.0 } else { 1.0 }, "{line}");
    }
    // 0.193% of 11.1 million nodes.
    let n_predicted = figure(&finished.stdout, "predicted") as u64;
    assert!((20_000..23_000).contains(&n_predicted), "{}", finished.stdout);
    let shards: PathBuf = temp.path().join("graph.shards");
    assert!(
        shards.is_dir() && !temp.path().join("store").exists(),
        "the store is deleted once the shards are verified"
    );
}
