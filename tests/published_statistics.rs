//! Importers on the real files: nodes, edges, classes, splits, degree and homophily, at the published precision.

use crate::kith::{is_slow_asked_for, kith, real_files, run_kith};

struct Expected {
    name: &'static str,
    n_nodes: u64,
    n_edges: u64,
    n_undirected_edges: u64,
    n_self_loops: u64,
    dim: u64,
    n_classes: u64,
    split: Option<(&'static str, [u64; 3])>,
    degree: (&'static str, &'static str),
    homophily: Option<&'static str>,
}

fn check(expected: Expected, features: &[&str]) {
    let Some(folder) = real_files(expected.name) else { return };
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("store");
    let (folder, store) = (folder.to_str().unwrap(), store.to_str().unwrap());
    kith([&["data", "import", expected.name, "--from", folder, "--out", store], features].concat());
    let stats = kith(["data", "stats", store, "--json"]).json();
    let number = |name: &str| stats[name].as_u64().unwrap_or_else(|| panic!("{name}: {stats}"));
    assert_eq!(number("n_nodes"), expected.n_nodes);
    assert_eq!(number("n_edges"), expected.n_edges);
    assert_eq!(number("n_undirected_edges"), expected.n_undirected_edges);
    assert_eq!(number("n_self_loops"), expected.n_self_loops);
    assert_eq!(number("dim"), expected.dim);
    assert_eq!(number("n_classes"), expected.n_classes);
    assert_eq!(stats["labels"], "classes");
    let float = |name: &str| stats[name].as_f64().unwrap_or_else(|| panic!("{name}: {stats}"));
    assert_eq!(format!("{:.2}", float("degree_mean")), expected.degree.0);
    assert_eq!(format!("{:.2}", float("degree_std")), expected.degree.1);
    match expected.homophily {
        Some(homophily) => assert_eq!(format!("{:.4}", float("homophily")), homophily),
        None => assert!(stats["homophily"].is_null()),
    }
    match expected.split {
        Some((name, [train, valid, test])) => {
            let split = &stats["splits"][name];
            let found =
                ["train", "valid", "test"].map(|part| split[part].as_u64().unwrap_or_else(|| panic!("{stats}")));
            assert_eq!(found, [train, valid, test]);
        }
        None => assert_eq!(stats["splits"].as_object().unwrap().len(), 0),
    }
    let verified = run_kith(["data", "verify", store]);
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
}

#[test]
fn cora() {
    check(
        Expected {
            name: "cora",
            n_nodes: 2708,
            n_edges: 10556,
            n_undirected_edges: 5278,
            n_self_loops: 0,
            dim: 1433,
            n_classes: 7,
            split: Some(("public", [140, 500, 1000])),
            degree: ("3.90", "5.23"),
            homophily: Some("0.8252"),
        },
        &[],
    );
}

#[test]
fn citeseer() {
    check(
        Expected {
            name: "citeseer",
            n_nodes: 3327,
            n_edges: 9104,
            n_undirected_edges: 4552,
            n_self_loops: 0,
            dim: 3703,
            n_classes: 6,
            split: Some(("public", [120, 500, 1000])),
            degree: ("2.78", "3.39"),
            homophily: Some("0.7166"),
        },
        &[],
    );
}

#[test]
fn pubmed() {
    check(
        Expected {
            name: "pubmed",
            n_nodes: 19717,
            n_edges: 88648,
            n_undirected_edges: 44324,
            n_self_loops: 0,
            dim: 500,
            n_classes: 3,
            split: Some(("public", [60, 500, 1000])),
            degree: ("4.50", "7.43"),
            homophily: Some("0.7924"),
        },
        &[],
    );
}

#[test]
fn cora_ml() {
    check(
        Expected {
            name: "cora-ml",
            n_nodes: 2995,
            n_edges: 16316,
            n_undirected_edges: 8158,
            n_self_loops: 0,
            dim: 2879,
            n_classes: 7,
            split: Some(("fixed", [140, 210, 2645])),
            degree: ("5.45", "8.24"),
            homophily: Some("0.8098"),
        },
        &[],
    );
}

/// Slow, because of its PCA.
#[test]
fn slow_cs() {
    if !is_slow_asked_for() {
        return;
    }
    check(
        Expected {
            name: "cs",
            n_nodes: 18333,
            n_edges: 163788,
            n_undirected_edges: 81894,
            n_self_loops: 0,
            dim: 500,
            n_classes: 15,
            split: Some(("fixed", [300, 450, 17583])),
            degree: ("8.93", "9.11"),
            homophily: Some("0.8320"),
        },
        &[],
    );
}

#[test]
fn photo() {
    check(
        Expected {
            name: "photo",
            n_nodes: 7650,
            n_edges: 238162,
            n_undirected_edges: 119081,
            n_self_loops: 0,
            dim: 745,
            n_classes: 8,
            split: Some(("fixed", [160, 240, 7250])),
            degree: ("31.13", "47.27"),
            homophily: Some("0.8493"),
        },
        &[],
    );
}

#[test]
fn computers() {
    check(
        Expected {
            name: "computers",
            n_nodes: 13752,
            n_edges: 491722,
            n_undirected_edges: 245861,
            n_self_loops: 0,
            dim: 767,
            n_classes: 10,
            split: Some(("fixed", [200, 300, 13252])),
            degree: ("35.76", "70.31"),
            homophily: Some("0.8017"),
        },
        &[],
    );
}

#[test]
fn chameleon() {
    check(
        Expected {
            name: "chameleon",
            n_nodes: 2277,
            n_edges: 36101,
            n_undirected_edges: 31371,
            n_self_loops: 50,
            dim: 500,
            n_classes: 6,
            split: Some(("fixed", [120, 180, 1977])),
            degree: ("15.85", "18.20"),
            homophily: Some("0.2119"),
        },
        &[],
    );
}

#[test]
fn four_univ() {
    check(
        Expected {
            name: "four-univ",
            n_nodes: 4518,
            n_edges: 3426,
            n_undirected_edges: 2762,
            n_self_loops: 164,
            dim: 2000,
            n_classes: 6,
            split: Some(("official", [4014, 248, 256])),
            degree: ("1.83", "1.71"),
            homophily: Some("0.1637"),
        },
        &[],
    );
}

#[test]
fn ogbn_arxiv() {
    check(
        Expected {
            name: "ogbn-arxiv",
            n_nodes: 169343,
            n_edges: 1166243,
            n_undirected_edges: 1157799,
            n_self_loops: 0,
            dim: 128,
            n_classes: 40,
            split: Some(("official", [90941, 29799, 48603])),
            degree: ("7.68", "9.05"),
            homophily: Some("0.6316"),
        },
        &["--features", "gaussian:128"],
    );
}

#[test]
fn flickr() {
    check(
        Expected {
            name: "flickr",
            n_nodes: 89250,
            n_edges: 899756,
            n_undirected_edges: 449878,
            n_self_loops: 0,
            dim: 500,
            n_classes: 7,
            split: Some(("official", [44625, 22312, 22313])),
            degree: ("10.08", "31.75"),
            homophily: Some("0.3221"),
        },
        &["--features", "gaussian:500", "--dtype", "f16"],
    );
}

/// Missing features are generated, and the manifest says so.
#[test]
fn made_up_features_are_announced() {
    let Some(folder) = real_files("flickr") else { return };
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("store");
    let import = ["data", "import", "flickr", "--features", "gaussian:8"];
    let finished =
        kith([&import[..], &["--from", folder.to_str().unwrap(), "--out", store.to_str().unwrap()]].concat());
    assert!(finished.stderr.contains("THE FEATURES ARE MADE UP"), "{}", finished.stderr);
    assert!(std::fs::read_to_string(store.join("manifest.json")).unwrap().contains("THE FEATURES ARE MADE UP"));
}
