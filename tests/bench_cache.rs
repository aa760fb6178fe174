//! `kith bench cache`: equal memory for all policies, the bytes of `kith plan`, refusals.

use serde_json::Value;

use crate::kith::{kith, run_kith};

struct Made {
    temp: tempfile::TempDir,
    store: String,
}

impl Made {
    fn new() -> Made {
        let temp = tempfile::tempdir().unwrap();
        let store = temp.path().join("store").to_str().unwrap().to_owned();
        let options = ["--nodes", "3000", "--degree", "8", "--classes", "4", "--dim", "16", "--seed", "7"];
        kith([&["data", "generate", "power-law", "--out", &store], &options[..]].concat());
        Made { temp, store }
    }

    fn path(&self, name: &str) -> String {
        self.temp.path().join(name).to_str().unwrap().to_owned()
    }
}

const BATCHES: [&str; 4] = ["--fanouts", "5,5", "--batch-size", "100"];

#[track_caller]
fn bench(graph: &str, options: &[&str]) -> Value {
    kith([&["bench", "cache", graph, "--json"], &BATCHES[..], options].concat()).json()
}

#[track_caller]
fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} is no number in {value}"))
}

/// The first result of a policy.
fn of<'a>(cache: &'a Value, policy: &str) -> &'a Value {
    cache["policies"].as_array().unwrap().iter().find(|result| result["policy"] == policy).unwrap()
}

#[test]
fn policies_have_equal_memory_and_none_is_better_than_the_bound() {
    let made = Made::new();
    let found = bench(&made.store, &["--steps", "12", "--cache", "10,20", "--windows", "2,8"]);
    assert_eq!(found["n_seeds"], 1200);
    let distinct: Vec<f64> =
        found["windows"].as_array().unwrap().iter().map(|w| number(w, "distinct_percent")).collect();
    assert!(100.0 > distinct[0] && distinct[0] > distinct[1] && distinct[1] > 0.0, "{distinct:?}");
    for cache in found["caches"].as_array().unwrap() {
        let names: Vec<&str> =
            cache["policies"].as_array().unwrap().iter().map(|result| result["policy"].as_str().unwrap()).collect();
        let expected = ["none", "static", "lru", "clairvoyant", "hybrid", "clairvoyant", "hybrid", "bound"];
        assert_eq!(names, expected);
        let [none, bound] = ["none", "bound"].map(|policy| number(of(cache, policy), "bytes_per_seed"));
        for result in cache["policies"].as_array().unwrap() {
            let memory = number(result, "feature_bytes") + number(result, "bookkeeping_bytes");
            assert!(memory <= number(cache, "memory_bytes"), "{result}");
            let fetched = number(result, "bytes_per_seed");
            assert!((bound..=none).contains(&fetched), "{result}");
            assert!((fetched - none * (1.0 - number(result, "hit_percent") / 100.0)).abs() < 1e-6 * none, "{result}");
        }
        assert_eq!(number(of(cache, "static"), "saved_percent"), 0.0);
        assert_eq!(number(of(cache, "static"), "n_kept"), number(cache, "percent") * 30.0);
    }
    assert_eq!(found, bench(&made.store, &["--steps", "12", "--cache", "10,20", "--windows", "2,8"]));

    let shared = bench(&made.store, &["--steps", "12", "--cache", "20", "--windows", "2,8", "--in-flight", "3"]);
    let (alone, shared) = (&found["caches"][1], &shared["caches"][0]);
    for (one, other) in alone["policies"].as_array().unwrap().iter().zip(shared["policies"].as_array().unwrap()) {
        assert_eq!(one["policy"], other["policy"]);
        assert!(number(other, "hit_percent") > number(one, "hit_percent"), "{other} instead of {one}");
    }
    let shown = kith(["bench", "cache", &made.store, "--steps", "2", "--windows", "2", "--batch-size", "100"]).stdout;
    assert!(["distinct", "clairvoyant", "hybrid", "bytes/seed"].iter().all(|word| shown.contains(word)), "{shown}");
}

#[test]
fn the_static_cache_fetches_what_a_plan_predicts() {
    let made = Made::new();
    let shards = made.path("graph.shards");
    kith([&["partition", &made.store, "--shards", "4", "--method", "hash", "--out", &shards], &BATCHES[..]].concat());
    for ranks in ["1", "2"] {
        let options = ["--ranks", ranks, "--cache", "10", "--steps"];
        let planned = kith([&["plan", &shards, "--json"], &BATCHES[..], &options, &["1000000"]].concat()).json();
        let per_step = &planned["per_step"];
        let n_steps = per_step["n_steps"].to_string();
        let found = bench(&shards, &[&options[..], &[&n_steps, "--windows", "2"]].concat());
        let cache = &found["caches"][0];
        for (policy, name) in [("none", "remote_row_bytes"), ("static", "remote_row_bytes_cached")] {
            let (found, planned) = (number(of(cache, policy), "bytes_per_seed"), number(per_step, name) / 100.0);
            assert!((found / planned - 1.0).abs() < 1e-9, "{ranks} ranks, {policy}: {found} instead of {planned}");
        }
        let all = ["--method", "hash", "--shards", "4", "--ranks", ranks, "--cache", "10", "--steps", &n_steps];
        let of_store = bench(&made.store, &[&all[..], &["--windows", "2"]].concat());
        assert_eq!(of_store, found, "{ranks} ranks: a store is partitioned in memory as on disk");
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let made = Made::new();
    let refused = |options: &[&str], words: &str| {
        let finished = run_kith([&["bench", "cache"], options].concat());
        assert!(finished.sentence().contains(words), "{options:?}: {}", finished.sentence());
    };
    let store = made.store.as_str();
    refused(&[], "required");
    refused(&["--like", "arxiv"], "required");
    refused(&[store, "--like", "arxiv", "--work", &made.path("work")], "cannot be used with");
    refused(&[store, "--method", "hash"], "required");
    refused(&[store, "--steps", "3", "--epochs", "2"], "cannot be used with");
    refused(&[store, "--windows", "0"], "0");
    refused(&[store, "--cache", "101"], "expected a number from 0 to 100");
    refused(&[store, "--batch-size", "5000"], "batch_size");
    refused(&["no/store"], "no/store");
    let bare = made.path("bare");
    kith(["data", "generate", "power-law", "--nodes", "300", "--dim", "0", "--out", &bare]);
    refused(&[&bare, "--batch-size", "10"], "the graph has no features");
}
