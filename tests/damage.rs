//! Changed bytes on disk end a run with their file, column and block; nothing is computed from them.

use std::{fs, path::Path};

use crate::{
    kith::{kith, run_kith},
    servers::Sampler,
};

/// Flips one bit in the middle of a file.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn flipped_bits_end_a_run_and_are_named() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    let options = ["--nodes", "3001", "--degree", "6", "--classes", "4", "--dim", "16", "--seed", "7"];
    kith([&["data", "generate", "power-law", "--out", &path("store")], &options[..]].concat());
    let sets = ["--set", "train.epochs=2", "--set", "early_stop=off"];
    let batches = ["--set", "train.mode=mini-batch", "--set", "train.fanouts=[5, 5]"];
    let train = |out: &str, more: &[&str]| {
        let mut args = vec!["train", "partition-graph/supergat-mx", "--graph", "", "--out", out];
        let store = path("store");
        args[3] = &store;
        args.extend(sets.iter().chain(more));
        run_kith(args)
    };
    let trained = train(&path("run"), &batches);
    assert_eq!(trained.code, Some(0), "{}", trained.stderr);
    kith(["partition", &path("store"), "--shards", "2", "--method", "hash", "--out", &path("shards")]);

    let columns = ["features.f32", "indices.u32", "indptr.u64", "labels.u32"];
    for column in columns {
        let file = temp.path().join("store").join(column);
        let whole = fs::read(&file).unwrap();
        flip(&file);
        let name = column.split('.').next().unwrap();
        let expected = format!("{}: block 0 of column {name} (bytes 0 to ", file.display());
        let out = path("damaged");
        let predict =
            ["predict", &path("run"), "--graph", &path("store"), "--out", &path("classes.csv")].map(String::from);
        let again = ["partition", &path("store"), "--shards", "2", "--out", &path("again")].map(String::from);
        let mut ended = vec![train(&out, &batches), train(&path("full"), &[]), run_kith(&again)];
        if name != "labels" {
            ended.push(run_kith(&predict));
        }
        for finished in &ended {
            assert!(finished.sentence().contains(&expected), "{column}: {}", finished.stderr);
        }
        let opened = train(&path("opened"), &["--verify", "open", "--set", "train.epochs=1"]);
        assert!(opened.sentence().contains(&expected), "{column}: {}", opened.stderr);
        for folder in ["damaged", "full", "opened"] {
            let _ = fs::remove_dir_all(path(folder));
        }
        fs::write(&file, whole).unwrap();
    }
    let whole = train(&path("damaged"), &batches);
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);

    // A server reports the block, and the run that requested it ends.
    let file = temp.path().join("shards/shard-1/features.f32");
    flip(&file);
    let servers = [Sampler::start(Path::new(&path("shards")), "0"), Sampler::start(Path::new(&path("shards")), "1")];
    let samplers = servers.each_ref().map(|server| server.address.to_string()).join(",");
    let mut args = vec!["train", "partition-graph/supergat-mx", "--samplers", &samplers];
    args.extend(sets.iter().chain(&batches));
    let asked = run_kith(args);
    let expected = "block 0 of column features (bytes 0 to ";
    assert!(asked.sentence().contains(expected) && asked.stderr.contains("shard-1/features.f32"), "{}", asked.stderr);
}
