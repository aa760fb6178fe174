//! `kith partition` and `kith plan`, as processes.

use std::{fs, path::Path};

use serde_json::Value;

use crate::kith::{kith, run_kith};

fn make_store(folder: &Path) -> String {
    let store = folder.join("store").to_str().unwrap().to_owned();
    let options = ["--nodes", "6000", "--degree", "10", "--classes", "6", "--dim", "8", "--community", "200"];
    kith([&["data", "generate", "power-law", "--out", &store], &options[..]].concat());
    store
}

#[test]
fn a_store_is_cut_verified_and_planned() {
    let temp = tempfile::tempdir().unwrap();
    let store = make_store(temp.path());
    let mut cut = Vec::new();
    for method in ["metis", "stream", "hash", "range"] {
        let out = temp.path().join(method).to_str().unwrap().to_owned();
        let made = kith(["partition", &store, "--shards", "3", "--method", method, "--out", &out, "--json"]);
        assert!(made.stderr.contains(&format!("method {method}")), "said before it starts: {}", made.stderr);
        let made = made.json();
        assert_eq!(made["findings"], serde_json::json!([]));
        let report = &made["report"];
        if ["metis", "stream"].contains(&method) {
            assert_eq!(report["is_balanced"], true, "{made}");
            for weight in ["nodes", "edges", "train"] {
                assert!(report["balance"][weight].as_f64().unwrap() <= 1.05, "{made}");
            }
        }
        cut.push(report["cut_percent"].as_f64().unwrap());
        let whole = kith(["partition", "verify", &out, "--graph", &store]).stdout;
        assert!(whole.contains(": whole, "), "{whole}");
    }
    assert!(cut[0] < cut[2] && cut[1] < cut[2], "metis, stream, hash: {cut:?}");

    // The plans of a store and of its partitioned graph are the same.
    let cluster = temp.path().join("stream").to_str().unwrap().to_owned();
    let asked = ["--ranks", "3", "--batch-size", "128", "--fanouts", "5,5", "--json"];
    let of_cluster = kith([&["plan", &cluster], &asked[..]].concat()).json();
    let of_store = kith([&["plan", &store, "--shards", "3", "--method", "stream"], &asked[..]].concat()).json();
    assert_eq!(of_cluster["cut_percent"], of_store["cut_percent"]);
    for key in ["rows", "local_rows", "remote_rows", "remote_hop_bytes", "row_bytes"] {
        assert_eq!(of_cluster["per_step"][key], of_store["per_step"][key], "{key}");
    }
    let number = |plan: &Value, key: &str| plan["per_step"][key].as_f64().unwrap();
    assert_eq!(number(&of_store, "rows"), number(&of_store, "local_rows") + number(&of_store, "remote_rows"));
    assert!(number(&of_store, "remote_rows_cached") < number(&of_store, "remote_rows"));
    assert_eq!(of_store["fits"], true);
    let readable = kith([&["plan", &cluster, "--memory", "1KiB"], &asked[..6]].concat()).stdout;
    assert!(readable.contains("more than the 1.0 KiB of memory"), "{readable}");
}

#[test]
fn what_cannot_be_cut_gets_a_sentence() {
    let temp = tempfile::tempdir().unwrap();
    let store = make_store(temp.path());
    let out = temp.path().join("cluster").to_str().unwrap().to_owned();
    let refused = |args: &[&str]| run_kith([&["partition", &store, "--out", &out], args].concat());
    let finished = refused(&["--shards", "2", "--method", "metis", "--memory", "1MiB"]);
    assert!(finished.sentence().ends_with("use --method stream"), "{}", finished.stderr);
    // Without `--method`, a method that fits is chosen, with a reason.
    let finished = refused(&["--shards", "2", "--memory", "1MiB"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("method stream (metis needs about"), "{}", finished.stderr);
    assert!(refused(&["--shards", "2"]).sentence().contains("already exists"));
    fs::remove_dir_all(&out).unwrap();
    assert!(refused(&["--shards", "0"]).sentence().contains("ask for 1 to 65536"));
    assert!(run_kith(["partition", "verify", &store]).sentence().contains("not a partitioned graph"));
    assert!(run_kith(["plan", &store]).sentence().contains("give --shards"));
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1, "nothing is left behind but the store");
}

#[test]
fn damage_of_a_cluster_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let store = make_store(temp.path());
    let out = temp.path().join("cluster");
    let text = out.to_str().unwrap().to_owned();
    kith(["partition", &store, "--shards", "2", "--method", "hash", "--out", &text]);
    let column = out.join("shard-1/indices.u32");
    let mut bytes = fs::read(&column).unwrap();
    bytes[17] ^= 4;
    fs::write(&column, bytes).unwrap();
    let finished = run_kith(["partition", "verify", &text]);
    assert_eq!(finished.code, Some(1));
    assert!(finished.stdout.contains("shard-1/indices, block 0"), "{}", finished.stdout);
    assert!(finished.stderr.contains("1 findings"), "{}", finished.stderr);
}
