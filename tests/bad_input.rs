//! Bad input to the real program: one sentence with file and place, exit code 1, and no incomplete store.

use std::{fs, path::Path, process::Command};

use crate::kith::{finish, kith, newest_checkpoint, program, run_kith};

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

/// A store of twelve nodes in a ring, from tables; `split` gives each node's part.
fn ring(dir: &Path, name: &str, options: &[&str], split: impl Fn(usize) -> &'static str) -> String {
    let path = |file: &str| dir.join(file).to_str().unwrap().to_owned();
    let table = |file: &str, lines: &mut dyn Iterator<Item = String>| {
        fs::write(path(file), lines.collect::<Vec<_>>().join("\n") + "\n").unwrap();
    };
    table("edges.csv", &mut (0..12).map(|node| format!("{node},{}", (node + 1) % 12)));
    table("rows.csv", &mut (0..12).map(|node| format!("{}.0,{}.5", node % 3, node % 5)));
    table("labels.csv", &mut (0..12).map(|node| format!("{node},{}", node % 3)));
    table(
        "split.csv",
        &mut (0..12).filter(|node| !split(*node).is_empty()).map(|node| format!("{node},{}", split(node))),
    );
    let out = path(name);
    let files = [path("edges.csv"), path("rows.csv"), path("labels.csv"), path("split.csv")];
    let mut args = vec!["data", "import", "--ids", "dense", "--symmetrize", "--out", &out];
    for (option, file) in ["--edges", "--features", "--labels", "--split"].into_iter().zip(&files) {
        if !options.contains(&option) {
            args.extend([option, file]);
        }
    }
    args.extend(options.iter().filter(|option| !files_options().contains(option)));
    kith(args);
    out
}

fn files_options() -> [&'static str; 4] {
    ["--edges", "--features", "--labels", "--split"]
}

const THIRDS: fn(usize) -> &'static str = |node| ["train", "valid", "test"][node / 3 % 3];

#[test]
fn stores_that_cannot_be_trained_on() {
    let temp = tempfile::tempdir().unwrap();
    let refused = |store: &str, more: &[&str]| {
        let args = [&["train", "cora/gat", "--graph", store, "--set", "train.epochs=2"], more].concat();
        run_kith(args).sentence().to_owned()
    };
    let good = ring(temp.path(), "good", &[], THIRDS);
    kith(["train", "cora/gat", "--graph", &good, "--set", "train.epochs=2"]);
    assert_eq!(refused(&good, &["--set", "train.split=mine"]), "the store has no split \"mine\": it has given");

    let unlabeled = ring(temp.path(), "unlabeled", &["--labels"], THIRDS);
    assert_eq!(refused(&unlabeled, &[]), "the store has no labels: import it with --labels");
    let rowless = ring(temp.path(), "rowless", &["--features"], THIRDS);
    assert_eq!(refused(&rowless, &[]), "the store has no features: import it with --features");
    let splitless = ring(temp.path(), "splitless", &["--split"], THIRDS);
    assert_eq!(refused(&splitless, &[]), "the store has no split: import it with --split");
    let testless = ring(temp.path(), "testless", &[], |node| ["train", "valid", ""][node / 3 % 3]);
    assert_eq!(refused(&testless, &[]), "the split \"given\" has no test nodes");
    let rare = ring(temp.path(), "rare", &["--classes", "4"], THIRDS);
    assert_eq!(refused(&rare, &[]), "class 3 of 4 never occurs: no node of the store has it");

    let path = Path::new(&good).join("features.f32");
    let mut bytes = fs::read(&path).unwrap();
    bytes[40..44].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    assert!(
        refused(&good, &[])
            .contains("features.f32: block 0 of column features (bytes 0 to 96) does not match its checksum")
    );
    assert_eq!(refused(&good, &["--verify", "off"]), "store damaged at features, row 5: run `kith data verify`");
    assert!(refused("nowhere", &[]).contains("nowhere"));
}

#[test]
fn runs_that_cannot_be_meant() {
    let temp = tempfile::tempdir().unwrap();
    let store = ring(temp.path(), "store", &[], THIRDS);
    let refused = |args: &[&str]| run_kith([&["train", "--graph", &store], args].concat()).sentence().to_owned();
    assert!(refused(&["cora/supergat-max"]).contains("did you mean cora/supergat-mx?"));
    assert!(refused(&[]).starts_with("nothing to train: name a model"));
    assert!(refused(&["nowhere.toml"]).starts_with("nowhere.toml: No such file"));
    assert!(refused(&["cora/gat", "--set", "train.rate=1"]).contains("a run file has no `train.rate`"));
    assert!(refused(&["cora/gat", "--set", "model.heads=0"]).contains("`model.heads` must be a whole number"));
    let sentence = refused(&["cora/gat", "--set", "optimizer.learning_rate=1e30"]);
    assert!(sentence.starts_with("the loss is not finite at step "), "{sentence}");
    assert!(sentence.contains(" of layer "), "{sentence}");
    assert!(refused(&["cora/gat", "--device", "gpu"]).contains("expected cpu, cuda or cuda:N"));
    let bench = |args: &[&str]| run_kith([&["bench", "kernels"], args].concat()).sentence().to_owned();
    assert_eq!(bench(&["--device", "cpu"]), "--device cpu: expected a GPU, such as cuda:0");
    assert!(bench(&["--only", "nothing"]).starts_with("--only \"nothing\": expected a part of a case's name"));
    if !run_kith(["devices"]).stdout.contains("CUDA device") {
        let sentence = "device cuda: libcuda.so.1 not found: install the NVIDIA driver, or use --device cpu";
        assert_eq!(refused(&["cora/gat", "--device", "cuda"]), sentence);
        assert_eq!(refused(&["cora/gcn", "--device", "cuda"]), sentence);
        assert_eq!(bench(&[]), sentence);
    }
    let file = temp.path().join("my.toml");
    fs::write(&file, "[model]\nkind = gat\n").unwrap();
    assert!(refused(&[file.to_str().unwrap()]).contains("my.toml: line 2: "));
    assert_eq!(run_kith(["train", "cora/gat", "--graph", &store, "--seeds", "5..5"]).code, Some(1));
    assert_eq!(run_kith(["train", "cora/gat", "--graph", &store, "--resume"]).code, Some(1));
    assert_eq!(run_kith(["train", "cora/gat"]).code, Some(1));
}

#[test]
fn checkpoints_of_another_model_or_store() {
    let temp = tempfile::tempdir().unwrap();
    let store = ring(temp.path(), "store", &[], THIRDS);
    let other = ring(temp.path(), "other", &[], |node| ["valid", "train", "test"][node / 3 % 3]);
    let run = temp.path().join("run");
    let run = run.to_str().unwrap();
    let train = ["train", "cora/gcn", "--out", run, "--set", "train.epochs=2", "--graph"];
    kith([&train[..], &[&store]].concat());
    let checkpoint = fs::read(newest_checkpoint(Path::new(run)).unwrap()).unwrap();

    assert!(run_kith([&train[..], &[&store]].concat()).sentence().contains("holds a run already"));
    let sentence = run_kith([&train[..], &[&other, "--resume"]].concat()).sentence().to_owned();
    assert!(sentence.contains("a checkpoint of another store"), "{sentence}");
    let other_model = ["train", "cora/gat", "--resume", "--out", run, "--graph", &store];
    let sentence = run_kith(other_model).sentence().to_owned();
    assert!(sentence.contains("a checkpoint of another run: it says `kind = \"gcn\"`"), "{sentence}");
    assert_eq!(fs::read(newest_checkpoint(Path::new(run)).unwrap()).unwrap(), checkpoint);

    let file = temp.path().join("out.csv");
    let predict = |store: &str, file: &str, more: &[&str]| {
        run_kith([&["predict", run, "--graph", store, "--out", file], more].concat())
    };
    let out = file.to_str().unwrap();
    let sentence = predict(&other, out, &[]).sentence().to_owned();
    assert!(
        sentence.contains("a checkpoint of another store") && sentence.ends_with("give --any-store to use it anyway")
    );
    assert_eq!(predict(&other, out, &["--any-store"]).code, Some(0));
    fs::remove_file(&file).unwrap();
    let sentence = predict(&store, out, &["--what", "attention"]).sentence().to_owned();
    assert_eq!(sentence, "a model without attention has no attention weights");
    assert!(predict(&store, "out.txt", &[]).sentence().contains("written as .csv or .npy"));
    assert!(!file.exists(), "a prediction was left behind");
    let missing = run_kith(["predict", "nowhere", "--graph", &store, "--out", out]);
    assert!(missing.sentence().starts_with("nowhere: No such file"), "{}", missing.sentence());
}

/// Exit code 1 of both programs: launchers rely on its meaning.
#[test]
fn a_server_that_is_started_wrong_has_the_code_of_wrong_input() {
    let sampler = || Command::new(program().with_file_name("kith-sampler"));
    for (arguments, code) in [(&["--graph", "x"][..], 1), (&["--index", "0", "--shards", "1"], 1), (&["--help"], 0)] {
        assert_eq!(finish(sampler().args(arguments)).code, Some(code), "{arguments:?}");
    }
    let nobody = finish(sampler().args(["health", "127.0.0.1:1"]));
    assert!(nobody.sentence().starts_with("127.0.0.1:1 does not serve: "), "{}", nobody.stderr);
}
