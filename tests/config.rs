//! Run files from the command line: `kith config`, models by name, export and import of weights.

use std::{fs, path::Path};

use serde_json::Value;

use crate::kith::{kith, run_kith};

fn store(dir: &Path) -> String {
    let store = dir.join("store").to_str().unwrap().to_owned();
    kith(["data", "generate", "partition-graph", "--degree", "5", "--homophily", "0.8", "--out", &store]);
    store
}

fn report(run: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(Path::new(run).join("report.json")).unwrap()).unwrap()
}

#[test]
fn a_written_run_file_trains() {
    let temp = tempfile::tempdir().unwrap();
    let store = store(temp.path());
    let file = temp.path().join("my.toml").to_str().unwrap().to_owned();
    let finished = run_kith(["config", "init", &store, "--model", "gcn", "--out", &file]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("full-batch training, because its activations take"), "{}", finished.stderr);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("# number of graph layers"), "{text}");
    assert!(run_kith(["config", "init", &store, "--out", &file]).sentence().contains("exists already"));

    let (by_file, by_name) = (temp.path().join("a"), temp.path().join("b"));
    let (by_file, by_name) = (by_file.to_str().unwrap(), by_name.to_str().unwrap());
    kith(["train", &file, "--graph", &store, "--epochs", "3", "--out", by_file]);
    kith(["train", "gcn", "--graph", &store, "--set", "train.epochs=3", "--out", by_name]);
    assert_eq!(report(by_file)["results"]["test_last"], report(by_name)["results"]["test_last"]);
    let resolved = fs::read_to_string(Path::new(by_name).join("run.toml")).unwrap();
    assert!(resolved.contains("mode = \"full-batch\"") && resolved.contains("hidden = 128"), "{resolved}");
    assert_eq!(kith(["config", "show", Path::new(by_name).join("run.toml").to_str().unwrap()]).stdout, resolved);
    let schema: Value = serde_json::from_str(&kith(["config", "schema"]).stdout).unwrap();
    assert_eq!(schema["properties"]["optimizer"]["properties"]["learning_rate"]["type"], "number");
}

#[test]
fn options_are_settings_of_the_run_file() {
    let temp = tempfile::tempdir().unwrap();
    let store = store(temp.path());
    let out = temp.path().join("run").to_str().unwrap().to_owned();
    let settings = ["--epochs", "2", "--lr", "0.02", "--hidden", "4", "--layers", "3", "--batch-size", "100"];
    kith([&["train", "gat", "--attention", "dp", "--graph", &store, "--out", &out], &settings[..]].concat());
    let resolved = fs::read_to_string(Path::new(&out).join("run.toml")).unwrap();
    for line in [
        "attention = \"dp\"",
        "n_layers = 3",
        "hidden = 4",
        "learning_rate = 0.02",
        "epochs = 2",
        "mode = \"mini-batch\"",
        "batch_size = 100",
    ] {
        assert!(resolved.lines().any(|found| found == line), "{line}:\n{resolved}");
    }
}

#[test]
fn names_of_0_1_0_are_understood_with_a_note() {
    let temp = tempfile::tempdir().unwrap();
    let store = store(temp.path());
    let old = ["--store", &store, "--run-key", "7", "--set", "train.learning_rate=0.02", "--set", "model.form=dp"];
    let finished = run_kith([&["train", "gat", "--epochs", "1", "--json"], &old[..]].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    for note in [
        "note: --store is now called --graph",
        "note: --run-key is now called --seed",
        "note: `train.learning_rate` is now called `optimizer.learning_rate`",
        "note: `model.form` is now called `model.attention`",
    ] {
        assert_eq!(finished.stderr.lines().filter(|line| *line == note).count(), 1, "{note}:\n{}", finished.stderr);
    }
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!((report["seed"].as_u64(), report["model"].as_str()), (Some(7), Some("gat-dp")));
}

/// The mode of shards needs no setting, neither here nor in pods.
#[test]
fn a_partitioned_graph_is_trained_in_mini_batches() {
    let temp = tempfile::tempdir().unwrap();
    let store = store(temp.path());
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    let (shards, out) = (path("mine.shards"), path("run"));
    kith(["partition", &store, "--shards", "2", "--out", &shards]);
    let finished = kith(["train", "gat", "--graph", &shards, "--epochs", "1", "--out", &out]);
    assert!(finished.stderr.contains("mini-batch training, because the graph is partitioned"), "{}", finished.stderr);
    let resolved = fs::read_to_string(Path::new(&out).join("run.toml")).unwrap();
    assert!(resolved.contains("mode = \"mini-batch\""), "{resolved}");
    let printed = kith(["launch", "--print", "kubernetes", "gat", "--graph", &shards, "--lr", "0.02"]).stdout;
    let parts =
        ["mode = \"mini-batch\"", "learning_rate = 0.02", "value: /graph/mine.shards", "--graph=grpc://$(SAMPLERS)"];
    for part in parts {
        assert!(printed.contains(part), "{part}:\n{printed}");
    }
    let refused = run_kith(["launch", "--print", "kubernetes", "gat", "--graph", "s3://bucket/mine.shards"]);
    assert!(refused.sentence().contains("must be a folder on this machine"), "{}", refused.stderr);
}

/// Training with a negligible learning rate evaluates the initial weights.
#[test]
fn exported_weights_are_where_training_begins() {
    let temp = tempfile::tempdir().unwrap();
    let store = store(temp.path());
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    let still = ["--epochs", "1", "--lr", "1e-30", "--seed", "3"];
    let both = &["kith", "pyg"][..];
    for (model, names) in [("supergat-mx", both), ("gatv2", both), ("gin", &["pyg"]), ("mlp", &["kith"])] {
        let trained = path(model);
        kith(["train", model, "--graph", &store, "--epochs", "4", "--out", &trained]);
        for to in names {
            let (file, again) = (path(&format!("{model}-{to}.safetensors")), path(&format!("{model}-{to}")));
            let said = kith(["export", &trained, "--to", to, "--weights", "last", "--out", &file]).stdout;
            assert!(said.contains(" weights of a "), "{said}");
            kith([&["train", model, "--graph", &store, "--init", &file, "--out", &again], &still[..]].concat());
            let last = |run: &str| report(run)["results"]["test_last"].clone();
            assert_eq!(last(&again), last(&trained), "{model} {to}");
        }
        let drawn = path(&format!("{model}-drawn"));
        kith([&["train", model, "--graph", &store, "--out", &drawn], &still[..]].concat());
        assert_ne!(report(&drawn)["results"]["test_last"], report(&trained)["results"]["test_last"]);
    }
    let refused = run_kith(["export", &path("mlp"), "--to", "pyg", "--out", &path("no.safetensors")]);
    assert!(refused.sentence().contains("an MLP has no graph layers: use Kith's names"), "{}", refused.stderr);
}

/// Common mistakes of new users: each error says what to do.
#[test]
fn first_mistakes_say_what_to_do() {
    let temp = tempfile::tempdir().unwrap();
    let store = store(temp.path());
    let graph = ["--graph", store.as_str()];
    for (typed, said) in [
        (vec!["train"], "nothing to train: name a model (`kith train gat --graph PLACE`)"),
        (vec!["train", "gat"], "no graph: give --graph PLACE"),
        (vec!["train", "gat", "--graph", "nowhere"], "nowhere: no such folder: give a store or a partitioned graph"),
        (vec!["train", "gta", graph[0], graph[1]], "gta: no such model or preset: did you mean gat?"),
        (vec!["train", "cora/supergat-max", graph[0], graph[1]], "did you mean cora/supergat-mx?"),
        (vec!["train", "my.toml", graph[0], graph[1]], "my.toml: No such file"),
        (vec!["train", "gat", graph[0], graph[1], "--lr", "0"], "`optimizer.learning_rate` must be a number above 0"),
        (vec!["train", "gat", graph[0], graph[1], "--epochs", "0"], "`train.epochs` must be a whole number from 1"),
        (vec!["train", "gat", graph[0], graph[1], "--set", "lr=0.1"], "did you mean `optimizer.learning_rate`?"),
        (vec!["train", "gat", graph[0], graph[1], "--set", "model.hidden_size=3"], "did you mean `model.hidden`?"),
        (
            vec!["train", "gat", graph[0], graph[1], "--set", "train.fanouts=[5]", "--set", "train.mode=full-batch"],
            "`train.fanouts` is for mini-batches: set train.mode",
        ),
        (
            vec!["train", "gcn", graph[0], graph[1], "--attention", "mx"],
            "`model.attention` is for models with attention: a gcn has none",
        ),
        (vec!["train", "gat", graph[0], graph[1], "--set", "edge_loss.weight=1"], "`edge_loss` is for a supergat"),
        (
            vec!["train", "gat", graph[0], graph[1], "--set", "early_stop.window=5"],
            "the paper's rule needs all four keys",
        ),
        (vec!["train", "gat", graph[0], graph[1], "--resume"], "--out"),
        (vec!["train", "gat", graph[0], graph[1], "--init", "none.safetensors"], "none.safetensors: No such file"),
        (
            vec!["train", "gat", graph[0], graph[1], "--cache", "5"],
            "--cache is for partitioned graphs and sampling servers",
        ),
        (vec!["predict", "runs/none", graph[0], graph[1], "--out", "a.csv"], "runs/none"),
        (vec!["config", "init", store.as_str(), "--model", "transformer"], "no model is called \"transformer\""),
        (vec!["partition", "nowhere", "--shards", "2", "--out", "x"], "nowhere"),
    ] {
        let finished = run_kith(typed.iter().copied());
        assert_eq!(finished.code, Some(1), "{typed:?}: {}", finished.stderr);
        assert!(finished.stderr.contains(said), "{typed:?}: {}", finished.stderr);
    }
}
