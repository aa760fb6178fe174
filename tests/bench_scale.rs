//! `kith bench scale` with real processes: every combination is measured once, also after interruptions.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    kith::{Finished, finish_within, kith, program},
    launch::{processes, signal, wait_until},
};

const LIMIT: Duration = Duration::from_secs(120);
/// For orphaned processes to end.
const SECONDS: Duration = Duration::from_secs(10);

/// One or two shards, zero or one server, two ranks.
const GRID: [&str; 6] = ["--shards", "1,2", "--servers", "0,1", "--ranks", "2"];
const N_COMBINATIONS: usize = 4;

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

    fn work(&self) -> PathBuf {
        self.temp.path().join("work")
    }

    /// A bench of a few steps by default.
    fn bench(&self, options: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(["bench", "scale", &self.store, "--work"]).arg(self.work());
        command.args(["--fanouts", "5,5", "--method", "hash", "--threads", "1"]);
        for (name, value) in [("--batch-size", "200"), ("--steps", "25"), ("--warm-up", "2")] {
            if !options.contains(&name) {
                command.args([name, value]);
            }
        }
        command.args(options);
        command
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.work().join("scale.jsonl")).unwrap_or_default();
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect()
    }

    /// Starts it, and stops it after `n_lines` lines, while the next combination runs.
    fn stop_after(&self, n_lines: usize, name: &str) -> Finished {
        let mut command = self.bench(&GRID);
        let running = thread::spawn(move || finish_within(&mut command, LIMIT));
        let is_at_work = || self.lines().len() >= n_lines && !processes(self.temp.path(), "train").is_empty();
        wait_until(LIMIT, || is_at_work() || running.is_finished());
        let benches = processes(self.temp.path(), "bench");
        assert_eq!(benches.len(), 1, "it was over before it was stopped: {:?}", self.lines());
        signal(name, benches[0]);
        running.join().unwrap()
    }

    #[track_caller]
    fn assert_nothing_is_left(&self) {
        let left = || ["bench", "train", "serve"].map(|command| processes(self.temp.path(), command)).concat();
        wait_until(SECONDS, || left().is_empty());
        assert_eq!(left(), Vec::<u32>::new());
    }
}

#[track_caller]
fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} is no number in {value}"))
}

/// Properties of every measurement.
#[track_caller]
fn assert_plausible(line: &Value) {
    let (asked, measured) = (&line["asked"], &line["measured"]);
    let count = |name: &str| asked[name].as_u64().unwrap() as usize;
    for name in ["seconds", "n_seeds", "n_edges", "seeds_per_second", "edges_per_second", "step_micros"] {
        assert!(number(measured, name) > 0.0, "{name}: {line}");
    }
    let (n_steps, seconds) = (number(measured, "n_steps"), number(measured, "seconds"));
    assert!(n_steps >= 25.0, "{line}");
    // Steps have 200 seed nodes, except the last of an epoch; fanouts are 5 and 5.
    let (n_seeds, n_edges) = (number(measured, "n_seeds"), number(measured, "n_edges"));
    assert!(n_seeds <= 200.0 * n_steps && n_seeds > 100.0 * n_steps, "{line}");
    assert!(n_edges > 2.0 * n_seeds && n_edges < 35.0 * n_seeds, "{line}");
    assert!((number(measured, "seeds_per_second") - n_seeds / seconds).abs() < 1.0, "{line}");

    // With servers, features of 16 floats come from them.
    let (to, from) = (number(measured, "to_servers_bytes_per_step"), number(measured, "from_servers_bytes_per_step"));
    match count("servers") {
        0 => assert_eq!((to, from), (0.0, 0.0), "{line}"),
        _ => assert!(to > 800.0 && from > 200.0 * 64.0, "{line}"),
    }
    let between = number(measured, "between_ranks_bytes_per_step");
    match count("ranks") {
        1 => assert!(between == 0.0, "{line}"),
        _ => assert!(between > 10_000.0, "the gradients of all weights: {line}"),
    }
    assert!(number(measured, "rank_cpu_seconds_per_1000_seeds") > 0.0, "{line}");
    let of_servers = number(measured, "server_cpu_seconds_per_1000_seeds");
    assert_eq!(count("servers") > 0, of_servers > 0.0, "{line}");

    let (ranks, servers) = (measured["ranks"].as_array().unwrap(), measured["servers"].as_array().unwrap());
    assert_eq!((ranks.len(), servers.len()), (count("ranks"), count("servers")), "{line}");
    for process in ranks.iter().chain(servers) {
        let [private, resident] = ["private_bytes", "resident_bytes"].map(|name| number(process, name));
        assert!(private > 0.0 && private <= resident && resident < 8e9, "{line}");
        assert!(number(process, "peak_bytes") > private / 2.0, "{line}");
    }
    for rank in ranks {
        let phases = rank["phases"].as_object().unwrap();
        let median: f64 = phases.values().map(|micros| micros.as_f64().unwrap()).sum();
        let (sum, mean) = (median / 1e6, seconds / n_steps);
        assert!(phases["compute"].as_u64() > Some(0) && sum > mean / 5.0 && sum < mean * 5.0, "{line}");
    }
}

#[test]
fn a_bench_that_is_stopped_goes_on() {
    let made = Made::new();
    let stopped = made.stop_after(1, "INT");
    assert_eq!(stopped.code, Some(130), "{}", stopped.stderr);
    made.assert_nothing_is_left();
    let first = made.lines();
    assert!((1..N_COMBINATIONS).contains(&first.len()), "{first:?}");

    assert_eq!(made.stop_after(first.len() + 1, "KILL").code, None);
    made.assert_nothing_is_left();
    let second = made.lines();
    assert!((first.len() + 1..N_COMBINATIONS).contains(&second.len()), "{second:?}");
    // An incomplete line, as a killed process leaves it.
    let path = made.work().join("scale.jsonl");
    fs::write(&path, second.concat() + "{\"asked\":{\"sto").unwrap();

    let finished = finish_within(&mut made.bench(&[&GRID[..], &["--json"]].concat()), LIMIT);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let before = format!("{} of 4 combinations were measured before", second.len());
    assert!(finished.stderr.lines().any(|line| line == before), "{}", finished.stderr);
    let all = made.lines();
    assert_eq!(all[..second.len()], second[..], "what was measured is not measured again");
    assert_eq!(fs::read_to_string(&path).unwrap(), all.concat());

    let answer = finished.json();
    let results = answer["results"].as_array().unwrap();
    assert_eq!((results.len(), all.len()), (N_COMBINATIONS, N_COMBINATIONS));
    for (result, line) in results.iter().zip(&all) {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&result["asked"], &result["measured"]["n_edges"]), (&line["asked"], &line["measured"]["n_edges"]));
    }
    results.iter().for_each(assert_plausible);
    let names = |line: &Value| ["shards", "servers", "ranks"].map(|name| line["asked"][name].as_u64().unwrap());
    let combinations: Vec<[u64; 3]> = results.iter().map(names).collect();
    let expected: Vec<[u64; 3]> = (0..4).map(|n| [1 + n / 2, n % 2, 2]).collect();
    assert_eq!(combinations, expected);

    // Only new combinations are measured: three fanouts make a model of three layers.
    let grown = ["--shards", "2", "--servers", "0,1,3", "--ranks", "2", "--fanouts", "3,3,3"];
    let finished = finish_within(&mut made.bench(&grown), LIMIT);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("\n2 of 4 combinations were measured before\n"), "{}", finished.stderr);
    assert!(finished.stderr.contains("note: 3 servers for 2 shards"), "{}", finished.stderr);
    let heading = finished.stdout.lines().nth(1).unwrap();
    assert!(heading.starts_with("fanouts  shards  servers  ranks  seed nodes/s"), "{}", finished.stdout);
    let rows = |start: &str| finished.stdout.lines().filter(|line| line.trim_start().starts_with(start)).count();
    assert_eq!((rows("5,5 "), rows("3,3,3 ")), (4, 4), "in both tables: {}", finished.stdout);
    assert_eq!(made.lines().len(), N_COMBINATIONS + 2);
    made.assert_nothing_is_left();
}

#[test]
fn a_combination_that_fails_has_its_sentence_and_the_others_go_on() {
    let made = Made::new();
    let one = ["--shards", "1", "--servers", "0,1", "--ranks", "1", "--steps", "1", "--warm-up", "1"];
    let finished = finish_within(&mut made.bench(&[&one[..], &["--batch-size", "5000"]].concat()), LIMIT);
    let expected = format!("2 of 2 combinations failed: see {}", made.work().join("scale.jsonl").display());
    assert_eq!(finished.sentence(), expected);
    let lines = made.lines();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        let line: Value = serde_json::from_str(line).unwrap();
        let sentence = line["failed"].as_str().unwrap();
        assert!(sentence.starts_with("rank 0: ") && sentence.contains("batch_size"), "{sentence}");
    }
    // A failure does not count as a measurement.
    let finished = finish_within(&mut made.bench(&[&one[..], &["--batch-size", "5000"]].concat()), LIMIT);
    assert!(!finished.stderr.contains("measured before"), "{}", finished.stderr);
    assert_eq!((finished.code, made.lines().len()), (Some(1), 4));
    made.assert_nothing_is_left();
}

#[test]
fn wrong_arguments_are_one_sentence() {
    let made = Made::new();
    let refused = |options: &[&str], part: &str| {
        let finished = finish_within(&mut made.bench(options), LIMIT);
        assert!(finished.sentence().contains(part), "{}", finished.stderr);
    };
    refused(&["--shards", "0"], "0");
    refused(&["--fanouts", "ten"], "expected fanouts of 1 or more");
    refused(&["--ranks", "0"], "0");
    refused(&["--steps", "0"], "0");
    refused(&["--like", "arxiv"], "cannot be used with");
    refused(&["--shards", "1", "--servers", "2"], "nothing to measure: ask for fewer --servers or more --shards");
    refused(&["--model", "nothing"], "nothing");
    refused(&["--model", "nothing.toml"], "nothing.toml");
    refused(&["--set", "train.epochs"], "expected KEY=VALUE");
    refused(&["--set", "train.mode=full-batch"], "remove `train.mode` from --set");
    let bench = |options: &[&str]| finish_within(Command::new(program()).args(["bench", "scale"]).args(options), LIMIT);
    let work = made.work();
    let work = work.to_str().unwrap();
    assert!(bench(&["--work", work, "--like", "papers"]).sentence().contains("papers:0.01"));
    assert!(bench(&["--work", work, "no/store"]).sentence().contains("no/store"));
    assert!(bench(&["--work", work]).sentence().contains("required"));
    assert!(bench(&[&made.store]).sentence().contains("required"));

    // A folder of another store.
    let other = made.temp.path().join("other");
    let other = other.to_str().unwrap();
    kith(["data", "generate", "power-law", "--out", other, "--nodes", "500", "--dim", "4"]);
    kith(["partition", other, "--shards", "1", "--out", &format!("{work}/shards-1")]);
    let finished = bench(&[&made.store, "--work", work, "--shards", "1", "--servers", "0"]);
    assert!(finished.sentence().contains("was cut from another store: choose another place with --work"));
    assert!(Path::new(work).join("scale.jsonl").exists());
}
