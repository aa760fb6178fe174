//! The paper's experiments as commands: each makes tables and a report, and a killed one resumes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::kith::{kith, program, run_kith};

/// A folder of datasets: a small generated graph in place of Cora.
fn data(dir: &Path) -> PathBuf {
    let data = dir.join("data");
    let store = data.join("cora");
    fs::create_dir_all(&data).unwrap();
    let size = ["--nodes-per-class", "180", "--classes", "3", "--homophily", "0.8", "--degree", "4", "--seed", "7"];
    kith([&["data", "generate", "partition-graph", "--out", store.to_str().unwrap()], &size[..]].concat());
    data
}

fn bench(dir: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(dir.join("bench.json")).unwrap()).unwrap()
}

/// All cells of a bench's tables, without columns of times.
fn cells(dir: &Path) -> Vec<Value> {
    let bench = bench(dir);
    let mut found = Vec::new();
    for table in bench["tables"].as_array().unwrap() {
        let columns = table["columns"].as_array().unwrap();
        for row in table["rows"].as_array().unwrap() {
            let row = row.as_array().unwrap().iter().zip(columns);
            found.extend(row.filter(|(_, column)| *column != "seconds").map(|(cell, _)| cell.clone()));
        }
    }
    found
}

fn runs(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join("runs.jsonl")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_killed_bench_repeats_no_finished_run_and_ends_with_the_same_table() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let args = |out: &Path| {
        let (data, out) = (data.to_str().unwrap().to_owned(), out.to_str().unwrap().to_owned());
        let few = ["--datasets", "cora,pubmed", "--models", "gat,supergat-mx", "--seeds", "42..46"];
        let mut args = vec!["bench".to_owned(), "table".to_owned(), "--data".to_owned(), data, "--out".to_owned(), out];
        args.extend(
            few.iter().chain(&["--set", "train.epochs=80", "--set", "early_stop=off"]).map(|a| (*a).to_owned()),
        );
        args
    };
    let (whole, cut) = (temp.path().join("whole"), temp.path().join("cut"));
    kith(args(&whole));
    assert_eq!(runs(&whole).len(), 8);

    // Killed twice, each time after some more runs are recorded.
    for n_runs in [2, 5] {
        let mut child = Command::new(program()).args(args(&cut)).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while runs(&cut).len() < n_runs {
            assert!(begun.elapsed() < Duration::from_secs(120), "no run was kept");
            assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
            thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let before = runs(&cut);
    // An incomplete line, as a killed process leaves it.
    let torn = fs::read_to_string(cut.join("runs.jsonl")).unwrap() + "{\"id\":\"12";
    fs::write(cut.join("runs.jsonl"), torn).unwrap();
    let finished = kith(args(&cut));
    let after = runs(&cut);
    let n_whole = before.iter().filter(|line| line.ends_with('}')).count();
    assert_eq!(after[..n_whole], before[..n_whole], "what was finished is as it was");
    assert_eq!(after.len(), 8, "and nothing was done twice");
    assert_eq!(cells(&cut), cells(&whole));
    assert!(finished.stdout.contains("note: pubmed is left out: there is no folder"), "{}", finished.stdout);

    // A further start has nothing left to do.
    kith(args(&cut));
    assert_eq!(runs(&cut), after);
}

#[test]
fn every_experiment_is_one_command_and_has_a_page() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(temp.path());
    let data = data.to_str().unwrap();
    let few = ["--set", "train.epochs=2", "--set", "early_stop=off", "--seeds", "42..44"];
    let of_cora = ["--data", data, "--datasets", "cora"];
    let sub_grid = ["--degrees", "5", "--homophilies", "0.5", "--weight-decays", "1e-5", "--edge-weights", "0.1,10"];
    // Name, arguments, number of tables, rows of the first table, number of figures.
    let experiments: [(&str, &[&str], usize, usize, usize); 7] = [
        ("table", &[&of_cora[..], &["--models", "gcn,gat,supergat-mx"]].concat(), 2, 2, 0),
        ("supervised", &[&of_cora[..], &["--models", "gat-full,supergat-mx-full"]].concat(), 2, 2, 0),
        ("links", &[&of_cora[..], &["--edge-weights", "0.1,10"]].concat(), 1, 4, 2),
        ("attention", &of_cora, 1, 1 + 2 + 2 + 4 + 4, 1),
        ("sensitivity", &of_cora, 1, 20, 3),
        ("wallclock", &of_cora, 1, 2, 0),
        ("synthetic", &sub_grid, 3, 4, 3),
    ];
    for (name, args, n_tables, n_rows, n_figures) in experiments {
        let out = temp.path().join(name);
        let out_text = out.to_str().unwrap();
        let answer = kith([&["bench", name, "--out", out_text, "--json"], args, &few].concat()).json();
        let mut bench = bench(&out);
        let checksum = bench.as_object_mut().unwrap().remove("crc32");
        assert!(checksum.is_some_and(|checksum| checksum.is_string()), "{name}: the file has its checksum");
        assert_eq!(answer, bench, "{name}");
        assert_eq!(bench["kind"], name);
        assert_eq!(bench["tables"].as_array().unwrap().len(), n_tables, "{name}");
        assert_eq!(bench["tables"][0]["rows"].as_array().unwrap().len(), n_rows, "{name}: {bench}");
        assert_eq!(bench["figures"].as_array().unwrap().len(), n_figures, "{name}");
        assert_eq!(bench["machine"]["devices"][0], "cpu");
        let page = kith(["report", out_text]).stdout;
        let html = fs::read_to_string(page.trim()).unwrap();
        assert!(html.contains("<svg") == (n_figures > 0), "{name}");
        assert!(html.contains("data-from=\"bench.json#/tables/0/rows/0/"), "{name}");
        assert!(fs::read_to_string(out.join("bench.md")).unwrap().starts_with("## "), "{name}");
    }

    // A single run, and a graph.
    let run = temp.path().join("run");
    let (run, store) = (run.to_str().unwrap(), format!("{data}/cora"));
    kith(["train", "cora/gat-dp", "--graph", &store, "--out", run, "--set", "train.epochs=2"]);
    let found = kith(["analyze", "attention", run, "--graph", &store, "--json"]).json();
    assert_eq!(found["tables"][0]["rows"].as_array().unwrap().len(), 3, "uniform and two layers");
    let out = temp.path().join("graph");
    let readable = kith(["analyze", "graph", &store, "--out", out.to_str().unwrap()]).stdout;
    assert!(readable.contains("the paper's recipe says: "), "{readable}");
    kith(["report", out.to_str().unwrap()]);
}

#[test]
fn what_cannot_be_asked_is_told_in_one_sentence() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("out");
    let out = out.to_str().unwrap();
    let missing = temp.path().join("none");
    let missing = missing.to_str().unwrap();
    for (args, sentence) in [
        (vec!["bench", "table", "--data", missing, "--datasets", "cora", "--out", out], "no dataset was found: cora"),
        (
            vec!["bench", "synthetic", "--models", "gta", "--degrees", "1", "--homophilies", "0.5", "--out", out],
            "did you mean",
        ),
        (vec!["bench", "table", "--seeds", "5..5", "--out", out], "expected A..B with A below B"),
        (vec!["analyze", "graph", missing], "none"),
        (vec!["analyze", "attention", missing, "--graph", missing], "none"),
    ] {
        let finished = run_kith(args);
        assert_eq!(finished.code, Some(1), "{}", finished.stderr);
        assert!(finished.stderr.contains(sentence), "{}", finished.stderr);
    }
}
