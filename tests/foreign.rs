//! A process deletes only files that it created, and two processes with the same output cannot damage it.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::kith::{finish, kith, program, run_kith};

const GENERATE: [&str; 7] = ["data", "generate", "partition-graph", "--degree", "5", "--homophily", "0.5"];

/// All files below a folder, by name.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn resuming_a_run_deletes_nothing_of_other_runs() {
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("store");
    let store = store.to_str().unwrap();
    kith([&GENERATE[..], &["--out", store]].concat());
    let bucket = temp.path().join("bucket");
    let train = |place: &str, epochs: &str, more: &[&str]| {
        let (out, epochs) = (format!("file://{}/{place}", bucket.display()), format!("train.epochs={epochs}"));
        let sets = ["--set", "train.mode=mini-batch", "--set", "train.checkpoint_every=1", "--set", &epochs];
        let mut args = vec!["train", "partition-graph/supergat-mx", "--graph", store, "--out", &out];
        args.extend(sets.iter().chain(more));
        kith(args);
    };
    train("exp", "2", &[]);
    train("exp/variant", "2", &["--seed", "7"]);
    fs::write(bucket.join("exp/notes.txt~"), "mine").unwrap();
    let before = files(&bucket);
    train("exp", "3", &["--resume"]);
    let after = files(&bucket);
    for (name, bytes) in before.iter().filter(|(name, _)| name.starts_with("exp/variant/") || name.ends_with(".txt~")) {
        assert_eq!(after.get(name), Some(bytes), "{name} was changed or deleted");
    }
    assert!(before.keys().any(|name| !after.contains_key(name)), "the run's own old objects are removed");
    train("exp/variant", "3", &["--resume", "--seed", "7"]);
}

#[test]
fn a_folder_called_like_a_draft_is_kept() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("store");
    let own = temp.path().join("store.draft");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("thesis.tex"), "mine").unwrap();
    let refused = run_kith([&GENERATE[..], &["--out", out.to_str().unwrap()]].concat());
    let expected = format!("{}: holds files and was not made by this command", own.display());
    assert!(refused.sentence().starts_with(&expected), "{}", refused.stderr);
    assert_eq!(fs::read(own.join("thesis.tex")).unwrap(), b"mine");
    assert!(!out.exists());
}

#[test]
fn of_imports_into_one_place_one_is_whole() {
    let temp = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let out = temp.path().join(format!("store-{round}"));
        let out = out.to_str().unwrap();
        let start = |key: &str| {
            let mut command = Command::new(program());
            command.args(GENERATE).args(["--seed", key, "--out", out]).stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let ended = ["1", "2", "3"].map(start).map(|child| child.wait_with_output().unwrap());
        let codes: Vec<Option<i32>> = ended.iter().map(|output| output.status.code()).collect();
        assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1, "{codes:?}");
        for output in ended.iter().filter(|output| output.status.code() != Some(0)) {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("another process is writing there") || said.contains("already exists"), "{said}");
        }
        kith(["data", "verify", out]);
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), round + 1, "no draft is left");
    }
}

#[test]
fn of_pushes_to_one_place_one_is_whole() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    for (name, key) in [("a", "1"), ("b", "2")] {
        kith([&GENERATE[..], &["--seed", key, "--out", &path(name)]].concat());
    }
    for (round, more) in [(0, None), (1, Some("--replace"))] {
        let url = format!("file://{}", path(&format!("bucket-{round}")));
        let start = |name: &str| {
            let mut command = Command::new(program());
            command.args(["data", "push", &path(name), &url]).args(more).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let ended = ["a", "b"].map(start).map(|child| child.wait_with_output().unwrap());
        for output in ended.iter().filter(|output| !output.status.success()) {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                said.contains("holds other files already") || said.contains("another process writes there"),
                "{said}"
            );
        }
        assert!(ended.iter().any(|output| output.status.success()));
        let pulled = path(&format!("pulled-{round}"));
        kith(["data", "pull", &url, &pulled]);
        kith(["data", "verify", &pulled]);
        let digest = |dir: &str| fs::read(Path::new(dir).join("manifest.json")).unwrap();
        let whose = ["a", "b"].into_iter().position(|name| digest(&path(name)) == digest(&pulled));
        // If both succeed, one after the other, the later has replaced the earlier.
        assert!(whose.is_some_and(|place| ended[place].status.success()), "{whose:?}");
    }
    let again = finish(Command::new(program()).args(["data", "push", &path("a"), &format!("file://{}", path("a"))]));
    assert!(again.sentence().contains("exists, and no push put it there"), "{}", again.stderr);
    kith(["data", "verify", &path("a")]);
}
