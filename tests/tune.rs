//! `kith tune` as a process: killed at any moment, it resumes as if never interrupted.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::kith::{kith, program, run_kith};

fn store(temp: &Path) -> PathBuf {
    let store = temp.join("made");
    let made = ["data", "generate", "partition-graph", "--classes", "3", "--nodes-per-class", "180", "--out"];
    kith(made.iter().map(Path::new).chain([store.as_path()]));
    store
}

fn arguments<'a>(store: &'a Path, out: &'a Path) -> Vec<&'a Path> {
    let search = ["--trials", "8", "--seeds", "1..3", "--set", "train.epochs=30", "--parallel", "2"];
    let more = ["--tune", "model.dropout=0..0.8", "--tune", "edge_loss.edge_sampling_ratio=off"];
    let texts = ["tune", "partition-graph/supergat-mx"].into_iter().chain(search).chain(more).map(Path::new);
    texts.chain([Path::new("--graph"), store, Path::new("--out"), out]).collect()
}

/// Trials of a folder, without their times and without an incomplete last line.
fn trials(out: &Path) -> Vec<String> {
    let text = fs::read_to_string(out.join("trials.jsonl")).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| line.split(",\"seconds\"").next().unwrap().to_owned()).collect()
}

fn kill_after(arguments: &[&Path], out: &Path, n_trials: usize) {
    let mut child = Command::new(program()).args(arguments).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while trials(out).len() < n_trials {
        assert!(started.elapsed() < Duration::from_secs(100), "no trial ended");
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
}

#[test]
fn a_killed_search_repeats_nothing_and_finds_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let store = store(temp.path());
    let (whole, killed) = (temp.path().join("whole"), temp.path().join("killed"));
    let found = kith(arguments(&store, &whole));
    assert!(found.stdout.starts_with("trial  valid  optimizer.weight_decay"), "{}", found.stdout);
    assert!(found.stderr.contains(" left\n") && found.stderr.contains("8 of 8 done\n"), "{}", found.stderr);

    let last = found.stdout.lines().last().unwrap();
    assert!(last.starts_with("best: trial ") && last.ends_with("whole/best.toml"), "{last}");

    let arguments = arguments(&store, &killed);
    for n_trials in [1, 4] {
        kill_after(&arguments, &killed, n_trials);
    }
    let before = fs::read_to_string(killed.join("trials.jsonl")).unwrap();
    let n_before = trials(&killed).len();
    let resumed = kith(&arguments);
    assert!(resumed.stderr.contains(&format!("{n_before} of 8 trials are kept")), "{}", resumed.stderr);
    let after = fs::read_to_string(killed.join("trials.jsonl")).unwrap();
    assert!(after.starts_with(before.rsplit_once('\n').unwrap().0), "what was kept stays");
    assert_eq!(trials(&killed), trials(&whole));
    let best = |out: &Path| fs::read_to_string(out.join("best.toml")).unwrap();
    assert_eq!(best(&killed), best(&whole));

    // A usual run file.
    let best = killed.join("best.toml");
    kith([Path::new("train"), &best, Path::new("--graph"), &store, Path::new("--set"), Path::new("train.epochs=2")]);
    let mut other = arguments.clone();
    other.extend(["--method", "random"].map(Path::new));
    let refused = run_kith(&other);
    assert!(refused.sentence().contains("holds a search with another method: "), "{}", refused.stderr);
}

#[test]
fn mistakes_are_sentences() {
    let temp = tempfile::tempdir().unwrap();
    let store = store(temp.path());
    let refused = |more: &[&str]| {
        let arguments = ["tune", "partition-graph/gcn", "--trials", "1", "--graph", store.to_str().unwrap()];
        run_kith(arguments.iter().chain(more)).sentence().to_owned()
    };
    assert_eq!(refused(&["--tune", "model.dropout=2..1"]), "--tune model.dropout=2..1: 2 is not below 1");
    let sentence = refused(&["--tune", "edge_loss.edge_sampling_ratio=0.5,1"]);
    assert!(sentence.ends_with("`edge_loss` is for a supergat: a gcn has no such loss"), "{sentence}");
    assert_eq!(refused(&["--set", "train.epochs=0"]).split(':').next(), Some("--set train.epochs=0"));
    assert_eq!(refused(&["--tune", "optimizer.weight_decay=off"]), "nothing is left to search");
}
