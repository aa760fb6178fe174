//! Link prediction by the programs: training, probabilities of held-out and of given pairs, and refusals.

use std::{fs, path::Path};

use crate::kith::{is_slow_asked_for, kith, real_files, run_kith};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn links_are_trained_and_predicted() {
    let temp = tempfile::tempdir().unwrap();
    let [store, out, held, pairs, scores] =
        ["graph", "run", "held.csv", "pairs.csv", "scores.csv"].map(|name| temp.path().join(name));
    let size = ["--nodes-per-class", "40", "--classes", "3", "--degree", "8", "--homophily", "0.9"];
    kith([&["data", "generate", "partition-graph"], &size[..], &["--out", text(&store)]].concat());
    let train = ["train", "gcn", "--graph", text(&store), "--task", "links", "--epochs", "30", "--json"];
    let report = kith([&train[..], &["--out", text(&out)]].concat()).json();
    assert_eq!(report["model"], "gcn-links");
    assert!(report["test"].as_f64().unwrap() > 0.6, "{report}");

    let predict = ["predict", text(&out), "--graph", text(&store), "--what", "links", "--out"];
    kith([&predict[..], &[text(&held)]].concat());
    let table = fs::read_to_string(&held).unwrap();
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("source,destination,part,is_edge,probability_0"));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let count = |part: &str, is_edge: &str| rows.iter().filter(|row| row[2] == part && row[3] == is_edge).count();
    assert_eq!((count("valid", "1"), count("test", "1")), (count("valid", "0"), count("test", "0")));
    let near = |n: usize, share: usize| (share - 1..=share + 1).contains(&n);
    assert!(near(count("test", "1"), 2 * count("valid", "1")), "10% and 5%");

    fs::write(&pairs, "source,destination\n0,1\n 5 , 7\n\n").unwrap();
    kith([&predict[..], &[text(&scores), "--pairs", text(&pairs)]].concat());
    let table = fs::read_to_string(&scores).unwrap();
    assert!(table.starts_with("source,destination,probability_0\n0,1,0.") && table.contains("\n5,7,"), "{table}");

    fs::write(&pairs, "0,1\n0,4000\n").unwrap();
    let refused = run_kith([&predict[..], &[text(&scores), "--pairs", text(&pairs)]].concat());
    assert!(refused.sentence().contains("line 2: the graph has no node 4000"), "{}", refused.sentence());
    let classes = run_kith(["predict", text(&out), "--graph", text(&store), "--out", text(&scores)]);
    assert!(classes.sentence().contains("has no classes: use --what links"), "{}", classes.sentence());
}

/// The area under the ROC curve of a graph autoencoder in PyG on the same pairs is in docs/science/reproduction.md.
#[test]
fn slow_links_of_cora_are_found() {
    let Some(raw) = real_files("cora").filter(|_| is_slow_asked_for()) else { return };
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("cora");
    kith(["data", "import", "cora", "--from", text(&raw), "--out", text(&store)]);
    for (model, least) in [("gcn", 0.88), ("gatv2", 0.85)] {
        let settings = ["--epochs", "200", "--lr", "0.01", "--set", "model.dropout=0.0"];
        let train = ["train", model, "--graph", text(&store), "--task", "links", "--json"];
        let report = kith([&train[..], &settings].concat()).json();
        assert!(report["test"].as_f64().unwrap() > least, "{report}");
    }
}
