//! The whole path, as far as it exists, with real processes: generate → verify → stats, and what was made by one number
//! of threads is made by any.

use std::process::Command;

use crate::kith::{finish, kith, program, run_kith};

#[test]
fn from_generate_to_stats() {
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("graph");
    let store = store.to_str().unwrap();
    let options = ["--degree", "10", "--homophily", "0.7", "--run-key", "7", "--json"];
    let made = kith([&["data", "generate", "partition-graph", "--out", store], &options[..]].concat()).json();
    assert_eq!(made["n_nodes"], 5000);

    assert_eq!(run_kith(["data", "verify", store]).code, Some(0));
    let stats = kith(["data", "stats", store, "--json"]).json();
    assert_eq!(stats["digest"], made["digest"]);
    assert_eq!(stats["n_classes"], 10);
    assert_eq!(stats["dim"], 2);
    assert_eq!(stats["is_symmetric"], true);
    assert_eq!(stats["splits"]["fixed"], serde_json::json!({ "train": 200, "valid": 500, "test": 1000 }));
    assert!((stats["degree_mean"].as_f64().unwrap() - 10.0).abs() < 0.3, "{stats}");
    assert!((stats["homophily"].as_f64().unwrap() - 0.7).abs() < 0.02, "{stats}");
    let readable = kith(["data", "stats", store]).stdout;
    assert!(readable.contains("nodes") && readable.contains("5,000"), "{readable}");

    // The same name again, on one thread: the same store to the last bit.
    let again = temp.path().join("again");
    let again_args =
        [&["data", "generate", "partition-graph", "--out", again.to_str().unwrap()], &options[..]].concat();
    let finished = finish(Command::new(program()).args(again_args).env("RAYON_NUM_THREADS", "1"));
    assert_eq!(finished.json()["digest"], made["digest"]);
}

#[test]
fn a_flipped_byte_is_found_and_named() {
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("graph");
    kith(["data", "generate", "power-law", "--nodes", "1000", "--dim", "4", "--out", store.to_str().unwrap()]);
    let path = store.join("rows.f32");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[1000] ^= 0x40;
    std::fs::write(&path, bytes).unwrap();
    let verified = run_kith(["data", "verify", store.to_str().unwrap()]);
    assert_eq!(verified.code, Some(1));
    assert_eq!(verified.stdout, "rows, block 0 (bytes 0..16000): the checksum differs\n");
}

#[test]
fn the_command_explains_itself() {
    assert!(kith(["--help"]).stdout.contains("data"));
    assert!(kith(["--version"]).stdout.starts_with("kith "));
    assert!(kith(["data", "list"]).stdout.contains("ogbn-arxiv"));
    assert_eq!(kith(["data", "list", "--json"]).json().as_array().unwrap().len(), 17);
    assert!(kith(["devices"]).stdout.contains("libtorch"));
    assert_eq!(run_kith(["data", "nonsense"]).code, Some(1));
}
