//! Weights of edges and numbers to predict by the programs: import, training, predictions and refusals.

use std::{fs, path::Path};

use crate::{
    kith::{kith, run_kith},
    servers::Sampler,
};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Houses on a grid: what one is worth follows from its size and that of its neighbors, the nearer the more.
fn write_tables(dir: &Path) {
    let side = 14;
    let size = |node: u32| f64::from(node * 37 % 101) / 100.0;
    let (mut edges, mut features, mut targets) =
        ("from,to,nearness\n".to_owned(), "id,size,rooms\n".to_owned(), "id,price\n".to_owned());
    for node in 0..side * side {
        let (row, column) = (node / side, node % side);
        let mut sum = (size(node), 1.0);
        let beside = [(column + 1 < side, node + 1, 0.75), (row + 1 < side, node + side, 0.25)];
        let before = [(column > 0, node.wrapping_sub(1), 0.75), (row > 0, node.wrapping_sub(side), 0.25)];
        for (is_there, other, nearness) in beside.into_iter().chain(before) {
            if is_there {
                edges += &format!("h{other},h{node},{nearness}\n");
                sum = (sum.0 + nearness * size(other), sum.1 + nearness);
            }
        }
        features += &format!("h{node},{},{}\n", size(node), node % 5);
        targets += &format!("h{node},{:.3}\n", 100_000.0 * (1.0 + sum.0 / sum.1));
    }
    for (name, text) in [("edges.csv", edges), ("features.csv", features), ("prices.csv", targets)] {
        fs::write(dir.join(name), text).unwrap();
    }
}

#[test]
fn prices_are_predicted_from_weighted_edges() {
    let temp = tempfile::tempdir().unwrap();
    write_tables(temp.path());
    let [edges, features, prices, store, shards, out, table] =
        ["edges.csv", "features.csv", "prices.csv", "store", "shards", "run", "predicted.csv"]
            .map(|name| temp.path().join(name));
    let import = ["data", "import", "--edges", text(&edges), "--features", text(&features), "--split", "0.6/0.2/0.2"];
    let more = ["--edge-weights", "nearness", "--targets", text(&prices), "--out", text(&store)];
    kith([&import[..], &more].concat());
    let stats = kith(["data", "stats", text(&store), "--json"]).json();
    assert_eq!(
        (&stats["edge_weights"], &stats["labels"], &stats["is_symmetric"]),
        (&true.into(), &"targets".into(), &true.into())
    );
    let shown = kith(["data", "stats", text(&store)]).stdout;
    assert!(shown.contains("weighted") && shown.contains("targets"), "{shown}");

    // One layer says exactly what a price is, if it weighs the neighbors.
    let settings = [
        "--set",
        "model.n_layers=1",
        "--set",
        "model.dropout=0",
        "--set",
        "optimizer.weight_decay=0",
        "--lr",
        "0.1",
        "--epochs",
        "500",
        "--json",
    ];
    let train = |weights: &str, out: &Path| {
        let own = ["train", "sage", "--graph", text(&store), "--set", weights, "--out", text(out)];
        kith([&own[..], &settings].concat()).json()["test"].as_f64().unwrap()
    };
    let (with, without) =
        (train("model.edge_weights=true", &out), train("model.edge_weights=false", &temp.path().join("plain")));
    assert!(with > 0.99 && with > without, "R² {with} with weights, {without} without");

    kith(["predict", text(&out), "--graph", text(&store), "--what", "targets", "--out", text(&table)]);
    let rows = fs::read_to_string(&table).unwrap();
    let mut lines = rows.lines();
    assert_eq!(lines.next(), Some("id,target_0"));
    let known = fs::read_to_string(&prices).unwrap();
    let of = |id: &str| -> f64 {
        known.lines().find_map(|line| line.strip_prefix(&format!("{id},"))).unwrap().parse().unwrap()
    };
    for line in lines {
        let (id, price) = line.split_once(',').unwrap();
        assert!((price.parse::<f64>().unwrap() - of(id)).abs() < 5_000.0, "{line}, not {}", of(id));
    }

    // Mini-batches by weight: of a store, of shards and of servers alike.
    kith(["partition", text(&store), "--shards", "2", "--out", text(&shards)]);
    let servers: Vec<Sampler> = ["0", "1"].map(|own| Sampler::start(&shards, own)).into();
    let addresses: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
    let batches = ["train.mode=mini-batch", "train.sampling=weighted", "train.fanouts=[2]", "model.edge_weights=true"];
    let losses = |place: [&str; 2], name: &str| {
        let out = temp.path().join(name);
        let sets = batches.iter().flat_map(|setting| ["--set", setting]);
        let own =
            ["train", "gcn", place[0], place[1], "--set", "model.n_layers=1", "--epochs", "3", "--out", text(&out)];
        kith(own.into_iter().chain(sets).collect::<Vec<_>>());
        let steps = fs::read_to_string(out.join("steps.jsonl")).unwrap();
        steps.lines().map(|line| line.split(",\"micros\"").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let expected = losses(["--graph", text(&store)], "of-store");
    assert_eq!(losses(["--graph", text(&shards)], "of-shards"), expected);
    assert_eq!(losses(["--samplers", &addresses.join(",")], "of-servers"), expected);
}

#[test]
fn what_does_not_fit_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    write_tables(temp.path());
    let [edges, features, prices, store] =
        ["edges.csv", "features.csv", "prices.csv", "store"].map(|name| temp.path().join(name));
    let import = ["data", "import", "--edges", text(&edges), "--features", text(&features), "--split", "0.6/0.2/0.2"];
    let refused = run_kith([&import[..], &["--edge-weights", "far", "--out", text(&store)]].concat());
    assert!(
        refused.sentence().contains("has no column far for --edge-weights: columns are from, to, nearness"),
        "{}",
        refused.sentence()
    );
    kith([&import[..], &["--targets", text(&prices), "--out", text(&store)]].concat());
    for (model, setting, expected) in [
        ("gcn", "model.edge_weights=true", "`model.edge_weights` needs edge weights, and the graph has none"),
        ("mlp", "model.edge_weights=true", "`model.edge_weights` is not for a mlp"),
        ("gat", "model.edge_dim=2", "expected 2 features per edge (`model.edge_dim`), found none: import the graph"),
        ("gcn", "model.edge_dim=2", "`model.edge_dim` is for a gat or supergat, not a gcn"),
        ("gcn", "train.metric=accuracy", "is for classes, and these nodes have targets: use r2, mae or rmse"),
        ("gcn", "train.sampling=weighted", "`train.sampling` is for mini-batches"),
    ] {
        let refused =
            run_kith(["train", model, "--graph", text(&store), "--set", "train.mode=full-batch", "--set", setting]);
        assert!(refused.sentence().contains(expected), "{}", refused.sentence());
    }
}
