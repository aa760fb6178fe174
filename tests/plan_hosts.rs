//! `kith bench constants`, `kith plan --hosts`, and predictions beside measurements of `kith bench scale`.

use std::{fs, process::Command, time::Duration};

use serde_json::Value;

use crate::kith::{Finished, finish_within, is_slow_asked_for, kith, program, run_kith};

const LIMIT: Duration = Duration::from_secs(400);

struct Made {
    temp: tempfile::TempDir,
    store: String,
}

impl Made {
    fn new() -> Made {
        let temp = tempfile::tempdir().unwrap();
        let store = temp.path().join("store").to_str().unwrap().to_owned();
        let options = ["--nodes", "4000", "--degree", "8", "--classes", "4", "--dim", "16", "--seed", "7"];
        kith([&["data", "generate", "power-law", "--out", &store], &options[..]].concat());
        Made { temp, store }
    }

    fn path(&self, name: &str) -> String {
        self.temp.path().join(name).to_str().unwrap().to_owned()
    }

    /// A plan for hosts with constants of this file.
    fn plan(&self, constants: &str, options: &[&str]) -> Finished {
        let model = ["--model", "gat", "--fanouts", "5,5", "--batch-size", "256", "--steps", "2"];
        run_kith([&["plan", &self.store, "--constants", constants], &model[..], options].concat())
    }
}

#[test]
fn constants_that_are_absent_or_foreign_are_refused() {
    let made = Made::new();
    let absent = made.path("absent.json");
    let finished = made.plan(&absent, &["--hosts", "2"]);
    let sentence = finished.sentence_with(1);
    assert!(
        sentence.contains("absent.json: no constants") && sentence.contains("`kith bench constants`"),
        "{sentence}"
    );
    let foreign = made.path("foreign.json");
    fs::write(&foreign, "{\"constants\": 7}").unwrap();
    let finished = made.plan(&foreign, &["--hosts", "2"]);
    let sentence = finished.sentence_with(1);
    assert!(sentence.contains("foreign.json: expected constants of `kith bench constants`"), "{sentence}");
    for options in [&["--hosts", "0"][..], &["--hosts", "2", "--network", "fast"], &["--network", "10Gb"]] {
        assert_eq!(made.plan(&foreign, options).code, Some(1), "{options:?}");
    }
}

#[test]
fn slow_constants_of_this_machine_predict_its_steps() {
    if !is_slow_asked_for() {
        return;
    }
    let made = Made::new();
    let constants = made.path("constants.json");
    let mut bench = Command::new(program());
    let quick =
        ["bench", "constants", "--models", "gat", "--rounds", "1", "--round", "200", "--json", "--out", &constants];
    let measured = finish_within(bench.args(quick), LIMIT);
    assert_eq!(measured.code, Some(0), "{}", measured.stderr);
    assert_eq!(measured.json(), serde_json::from_str::<Value>(&fs::read_to_string(&constants).unwrap()).unwrap());
    let price = |name: &str| measured.json()["constants"][name]["median"].as_f64().unwrap();
    assert!(price("gat.multiply") + price("gat.edge") > 0.0 && price("crowd.1.sample") == 1.0);

    let planned = made.plan(&constants, &["--hosts", "4", "--json"]).json();
    let growth = planned["growth"].as_array().unwrap();
    assert_eq!(growth.iter().map(|row| row["hosts"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64]);
    assert_eq!(planned["step"], growth[2]);
    let of = |row: &Value, name: &str| row[name].as_f64().unwrap();
    for row in growth {
        assert!(of(row, "total") >= of(row, "compute") && of(row, "seeds_per_second") > 0.0, "{row}");
        assert_eq!(of(row, "seeds"), 64.0 * of(row, "hosts"), "{row}");
    }
    assert_eq!(of(&growth[0], "answer_bytes"), 0.0, "one host has all shards");
    assert!(growth.windows(2).all(|rows| of(&rows[1], "answer_bytes") > of(&rows[0], "answer_bytes")));
    let slow = made.plan(&constants, &["--hosts", "4", "--network", "1Mb", "--json"]).json();
    assert_eq!(slow["step"]["bound"], "network", "{slow}");
    assert!(of(&slow["step"], "total") > of(&planned["step"], "total"));
    let shown = made.plan(&constants, &["--hosts", "4", "--servers", "2", "--cache", "10"]).stdout;
    assert!(
        ["bound by", "weak scaling", "waiting", "memory of a host"].iter().all(|word| shown.contains(word)),
        "{shown}"
    );

    let work = made.path("work");
    let options =
        ["--shards", "1", "--servers", "0,1", "--ranks", "1", "--steps", "10", "--rounds", "2", "--pin", "--json"];
    let scale = ["bench", "scale", &made.store, "--work", &work, "--model", "gat", "--constants", &constants];
    let finished = finish_within(Command::new(program()).args([&scale[..], &options[..]].concat()), LIMIT);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let answer = finished.json();
    let predictions = answer["predictions"].as_array().unwrap();
    assert_eq!((predictions.len(), answer["results"].as_array().unwrap().len()), (2, 4));
    for one in predictions {
        assert_eq!(one["rounds"], 2);
        // A machine that runs other tests is slower than predicted.
        let ratio = of(&one["predicted"], "total") / of(one, "median");
        assert!(ratio > 0.1 && ratio < 5.0, "{one}");
    }
    let bytes = |name: &str| predictions[1][name][1].as_f64().unwrap();
    let ratio = bytes("predicted_bytes") / bytes("measured_bytes");
    assert!(ratio > 0.8 && ratio < 1.25, "bytes of answers: {}", predictions[1]);
}
