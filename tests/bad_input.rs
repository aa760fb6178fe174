//! Bad input through the real program: one sentence with the file and the place, exit code 1, and no half-made store.

use std::{fs, path::Path};

use crate::kith::run_kith;

#[track_caller]
fn refused(args: &[&str], out: &Path) -> String {
    let sentence = run_kith([args, &["--out", out.to_str().unwrap()]].concat()).sentence().to_owned();
    assert!(!out.exists(), "a store was left behind");
    assert!(!out.with_extension("draft").exists(), "a draft was left behind");
    sentence
}

#[test]
fn datasets_that_are_not_there() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("store");
    let dir = temp.path().to_str().unwrap();
    assert!(refused(&["data", "import", "corra", "--from", dir], &out).contains("did you mean cora"));
    assert!(refused(&["data", "import", "cora", "--from", dir], &out).contains("ind.cora."));
    assert!(refused(&["data", "import", "cora", "--from", "nowhere"], &out).contains("nowhere"));
    assert!(refused(&["data", "import"], &out).contains("nothing to import"));
}

#[test]
fn damaged_dataset_files() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("store");
    let dir = temp.path().to_str().unwrap();
    fs::write(temp.path().join("cora_ml.npz"), b"PK\x03\x04 no zip").unwrap();
    assert!(refused(&["data", "import", "cora-ml", "--from", dir], &out).contains("cora_ml.npz"));
    fs::write(temp.path().join("data.json"), b"{\"features\": [[1.0, NaN]]").unwrap();
    assert!(refused(&["data", "import", "wiki-cs", "--from", dir], &out).contains("data.json"));
}

#[test]
fn tables_with_errors() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("store");
    let edges = temp.path().join("edges.csv");
    let path = edges.to_str().unwrap();
    fs::write(&edges, "source,destination\n0,1\n1,x\n").unwrap();
    let sentence = refused(&["data", "import", "--ids", "dense", "--edges", path], &out);
    assert!(sentence.contains("edges.csv") && sentence.contains("line 3"), "{sentence}");
    fs::write(&edges, "0,1\n7,2\n").unwrap();
    let sentence = refused(&["data", "import", "--ids", "dense", "--nodes", "5", "--edges", path], &out);
    assert!(sentence.contains("edges.csv") && sentence.contains("line 2") && sentence.contains('7'), "{sentence}");
    fs::write(&edges, "").unwrap();
    assert!(refused(&["data", "import", "--edges", path], &out).contains("edges.csv"));
}

#[test]
fn generators_and_limits() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("store");
    assert!(refused(&["data", "generate", "partition-graph", "--homophily", "1.5"], &out).contains("homophily"));
    assert!(refused(&["data", "generate", "partition-graph", "--degree", "NaN"], &out).contains("degree"));
    assert!(
        refused(&["data", "generate", "power-law", "--nodes", "100", "--memory", "1MiB"], &out).contains("--memory")
    );
    fs::create_dir(&out).unwrap();
    let args = ["data", "generate", "partition-graph", "--out", out.to_str().unwrap()];
    assert!(run_kith(args).sentence().contains("never overwritten"));
}

#[test]
fn stores_that_are_none() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().to_str().unwrap();
    assert!(run_kith(["data", "stats", dir]).sentence().contains("not a store"));
    let missing = run_kith(["data", "verify", "nowhere"]);
    assert!(missing.sentence().contains("nowhere"));
    assert_eq!(missing.sentence().matches("No such file").count(), 1, "a cause is told once");
    fs::write(temp.path().join("manifest.json"), "{\"format_version\": 99}").unwrap();
    assert!(run_kith(["data", "stats", dir]).sentence().contains("format version 99"));
}
