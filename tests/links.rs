//! Link prediction by the programs: training, probabilities of held-out and of given pairs, and refusals.

use std::{fs, path::Path};

use crate::{
    kith::{is_slow_asked_for, kith, real_files, run_kith},
    servers::Sampler,
    whole_path::steps,
};

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

#[test]
fn links_in_mini_batches_are_the_same_from_a_store_and_from_servers() {
    let temp = tempfile::tempdir().unwrap();
    let [store, cluster, own, served, held, again] =
        ["graph", "cluster", "own", "served", "held.csv", "again.csv"].map(|name| temp.path().join(name));
    let size = ["--nodes-per-class", "60", "--classes", "3", "--degree", "8", "--homophily", "0.9"];
    kith([&["data", "generate", "partition-graph"], &size[..], &["--out", text(&store)]].concat());
    kith(["partition", text(&store), "--shards", "3", "--out", text(&cluster)]);
    let sampler = Sampler::start(&cluster, "0,1,2");
    let address = sampler.address.to_string();
    let settings =
        ["--task", "links", "--batch-size", "128", "--epochs", "8", "--set", "train.fanouts=[6,4]", "--json"];
    let places = [(&own, ["--graph", text(&store)]), (&served, ["--samplers", &address])];
    for (out, graph) in &places {
        let report = kith([&["train", "sage", "--out", text(out)], &graph[..], &settings].concat()).json();
        assert_eq!(report["model"], "sage-links");
        assert!(report["test"].as_f64().unwrap() > 0.6, "{report}");
        let replayed = kith([&["replay", text(out), "--step", "5"], &graph[..]].concat());
        assert!(replayed.stdout.contains("as recorded"), "{}", replayed.stdout);
    }
    assert_eq!(steps(&served), steps(&own));
    let predict = |out: &Path, graph: [&str; 2], table: &Path| {
        kith([&["predict", text(out), "--what", "links", "--out", text(table)], &graph[..]].concat());
        fs::read_to_string(table).unwrap()
    };
    let expected = predict(&own, places[0].1, &held);
    assert_eq!(predict(&served, places[1].1, &again), expected);

    // What was held out can be given, and then it is held out by another seed too.
    let given = format!("links.pairs={}", text(&held));
    let other = temp.path().join("other");
    let train = ["train", "sage", "--out", text(&other), "--graph", text(&store), "--seed", "9", "--set", &given];
    kith([&train[..], &settings].concat());
    let names = |table: &str| table.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&predict(&other, places[0].1, &again)), names(&expected));
    fs::write(&held, expected.replacen("valid,1", "valid,0", 1)).unwrap();
    let resumed = run_kith(["train", "--resume", "--out", text(&other), "--graph", text(&store)]);
    assert!(resumed.sentence().contains("(links.pairs_digest)"), "{}", resumed.sentence());
}

/// Edges of one direction only: both modes, store and servers, hold out the same pairs.
#[test]
fn links_of_a_directed_graph_have_no_direction() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    let [edges, features, store, cluster] = ["edges.csv", "features.csv", "store", "cluster"].map(path);
    // Two rings of steps 1 and 7, some edges both ways, one self-loop, one edge twice.
    let ring = (0..90u32).flat_map(|node| [(node, (node + 1) % 90), (node, (node + 7) % 90)]);
    let both = (0..30u32).map(|node| ((node + 1) % 90, node)).chain([(5, 5), (5, 6)]);
    let lines = ring.chain(both).map(|(a, b)| format!("n{a},n{b}\n"));
    fs::write(&edges, format!("source,destination\n{}", lines.collect::<String>())).unwrap();
    let rows =
        (0..90).map(|node| format!("n{node},{},{}\n", (f64::from(node) / 9.0).sin(), (f64::from(node) / 5.0).cos()));
    fs::write(&features, format!("id,a,b\n{}", rows.collect::<String>())).unwrap();
    let tables = ["--edges", text(&edges), "--features", text(&features)];
    kith([&["data", "import"], &tables[..], &["--out", text(&store)]].concat());
    kith(["partition", text(&store), "--shards", "2", "--out", text(&cluster)]);
    let sampler = Sampler::start(&cluster, "0,1");
    let address = sampler.address.to_string();
    let train = |name: &str, graph: [&str; 2], more: &[&str]| {
        let (out, table) = (path(name), path(&format!("{name}.csv")));
        let settings = ["--task", "links", "--epochs", "3", "--set", "model.dropout=0.0"];
        kith([&["train", "gat", "--out", text(&out)], &graph[..], &settings, more].concat());
        kith([&["predict", text(&out), "--what", "links", "--out", text(&table)], &graph[..]].concat());
        fs::read_to_string(&table).unwrap()
    };
    let names = |table: &str| table.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned()).collect::<Vec<_>>();
    let whole = ["--graph", text(&store)];
    let batches = ["--batch-size", "64", "--set", "train.fanouts=[3,3]"];
    let mini = train("mini", whole, &batches);
    // 180 pairs: those both ways and the one that comes twice are one pair each.
    assert_eq!(mini.lines().filter(|line| line.contains(",test,1")).count(), 18);
    assert_eq!(names(&train("full", whole, &["--set", "train.mode=full-batch"])), names(&mini));
    assert_eq!(train("served", ["--samplers", &address], &batches), mini);
    assert_eq!(steps(&path("served")), steps(&path("mini")));
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
