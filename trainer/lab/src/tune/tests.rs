//! Whole searches on a small graph: deterministic, guided by validation alone, and the same when interrupted.

use std::{fs, path::Path, sync::Arc};

use kith_block::{Block, BlockError};
use kith_draw::{Name, Purpose};
use kith_kernels::InputRows;
use kith_run::config::Kernels;
use kith_trainer::{
    data::{
        Data,
        input::{GraphInput, Input, Labels},
        opened::Source,
    },
    engine::device::{self, Device},
};

use super::{trials::bar, *};

const FILE: &str = "
[model]
kind = \"gcn\"
hidden = 4
dropout = 0.2
[optimizer]
learning_rate = 0.05
weight_decay = 1e-4

[train]
epochs = 8
";

/// A ring of three classes with weakly informative features; `turned` changes the classes of the test nodes.
fn data(turned: bool) -> [Data; 1] {
    device::start();
    let (n, dim) = (60u32, 3);
    let mut draws = Name { run_key: 3, purpose: Purpose::Generator, step: 0, layer: 0 }.stream().draws(0, 0, 0);
    let beside = |node: u64| {
        let mut sources = [(node + 3) % u64::from(n), (node + u64::from(n) - 3) % u64::from(n)];
        sources.sort_unstable();
        Ok::<_, BlockError>(sources.into_iter())
    };
    let values = (0..n * dim).map(|place| {
        let signal = if place % dim == place / dim % 3 { 1.0 } else { 0.0 };
        (signal + draws.normal()) as f32
    });
    let values = values.collect();
    let part = |third| (0..n).filter(|node| node / 3 % 3 == third).collect::<Vec<u32>>();
    let class = |node: u32| i64::from(if turned && node / 3 % 3 == 2 { (node + 1) % 3 } else { node % 3 });
    let graph = GraphInput {
        block: Arc::new(Block::full(u64::from(n), 2 * u64::from(n), beside).unwrap()),
        rows: Arc::new(InputRows::Dense { dim: dim as usize, values }),
        labels: Some(Labels::Classes((0..n).map(class).collect())),
        train: part(0),
        valid: part(1),
        test: part(2),
        is_symmetric: true,
        is_one_of_many: false,
    };
    [Data::Full(Input {
        graphs: vec![graph],
        dim: dim as usize,
        n_classes: 3,
        label_kind: kith_store::LabelKind::Classes,
        scales: Vec::new(),
        links: None,
    })]
}

fn tuning(n_trials: usize, n_together: usize) -> Tuning {
    let run_file = RunFile::parse(FILE, "test").unwrap();
    let asked = ["optimizer.learning_rate=1e-3..0.3:log", "model.dropout=0..0.8"].map(str::to_owned);
    Tuning {
        space: Space::new(&run_file, &asked).unwrap(),
        run_file,
        method: Method::Gp,
        tuning_key: 1,
        n_trials,
        run_keys: vec![42, 43],
        n_together,
    }
}

fn search(tuning: &Tuning, data: &[Data], kept: &mut TrialLog) -> (Vec<Trial>, String) {
    let source = Source { dataset: "test".to_owned(), digest: "0123".to_owned(), session: None };
    let ground = Ground { data, source, device: Device::Cpu, gpu: None, kernels: Kernels::Fused };
    let mut n_heard = 0;
    let n_before = kept.trials().len();
    tune(tuning, &ground, kept, |progress| {
        n_heard += 1;
        assert_eq!((progress.n_done, progress.trial.trial), (n_before + n_heard, n_before + n_heard - 1));
    })
    .unwrap();
    let outcome = kept.finish(tuning).unwrap();
    let trials = outcome.trials.iter().map(|trial| Trial { seconds: 0.0, ..trial.clone() }).collect();
    let found = (trials, outcome.config.to_toml());
    assert_eq!(n_heard, tuning.n_trials - n_before);
    found
}

fn in_memory(tuning: &Tuning, data: &[Data]) -> (Vec<Trial>, String) {
    search(tuning, data, &mut TrialLog::nowhere())
}

#[test]
fn the_same_search_twice_whatever_runs_first() {
    let data = data(false);
    let (trials, best) = in_memory(&tuning(14, 3), &data);
    assert_eq!((trials.clone(), best), in_memory(&tuning(14, 3), &data));
    assert!(trials.iter().all(|trial| trial.state != State::Finished || trial.runs.len() == 2));
    let (other, _) = in_memory(&Tuning { tuning_key: 2, ..tuning(14, 3) }, &data);
    assert_ne!(trials, other);
}

/// Test labels change neither the tried settings nor the best one.
#[test]
fn test_nodes_decide_nothing() {
    let blind = |(trials, best): (Vec<Trial>, String)| {
        let tests: Vec<f64> = trials.iter().flat_map(|trial| &trial.runs).map(|run| run.test).collect();
        let without = |trial: Trial| {
            let runs = trial.runs.iter().map(|run| TrialRun { test: 0.0, ..*run }).collect();
            Trial { runs, ..trial }
        };
        ((trials.into_iter().map(without).collect::<Vec<_>>(), best), tests)
    };
    let (found, tests) = blind(in_memory(&tuning(13, 1), &data(false)));
    let (turned, other_tests) = blind(in_memory(&tuning(13, 1), &data(true)));
    assert_eq!(found, turned);
    assert_ne!(tests, other_tests);
}

fn left(dir: &Path) -> (Vec<String>, String) {
    let lines = fs::read_to_string(dir.join("trials.jsonl")).unwrap();
    let lines = lines.lines().map(|line| line.split(",\"seconds\"").next().unwrap().to_owned()).collect();
    (lines, fs::read_to_string(dir.join("best.toml")).unwrap())
}

fn search_in(dir: &Path, tuning: &Tuning, data: &[Data]) {
    search(tuning, data, &mut TrialLog::open(dir, tuning, "0123").unwrap());
}

#[test]
fn a_search_goes_on_as_if_it_had_not_stopped() {
    let (temp, data) = (tempfile::tempdir().unwrap(), data(false));
    let whole = temp.path().join("whole");
    search_in(&whole, &tuning(14, 3), &data);
    for n_first in [1, 10, 13] {
        let dir = temp.path().join(n_first.to_string());
        search_in(&dir, &tuning(n_first, 3), &data);
        let before = fs::read(dir.join("trials.jsonl")).unwrap();
        // An incomplete line, as a killed writer leaves it.
        let torn = [&before[..], b"{\"trial\":14,\"sta"].concat();
        fs::write(dir.join("trials.jsonl"), torn).unwrap();
        search_in(&dir, &tuning(14, 3), &data);
        assert!(fs::read(dir.join("trials.jsonl")).unwrap().starts_with(&before), "nothing is run again");
        assert_eq!(left(&dir), left(&whole), "{n_first}");
    }
    let best = RunFile::read(&whole.join("best.toml")).unwrap().resolve().unwrap();
    assert_eq!(best.train.epochs, 8);
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(whole.join("tune.json")).unwrap()).unwrap();
    assert_eq!(report["trials"].as_array().unwrap().len(), 14);
    assert_eq!(report["best"]["values"]["optimizer.weight_decay"].as_f64(), Some(best.optimizer.weight_decay));
}

#[test]
fn another_search_in_the_folder_is_a_sentence() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let open = |tuning: Tuning, digest| TrialLog::open(dir, &tuning, digest).map_err(|error| error.to_string());
    let usual = || tuning(3, 1);
    open(usual(), "0123").unwrap();
    open(Tuning { n_trials: 99, ..usual() }, "0123").unwrap();
    let sentence = |what: &str| {
        format!(
            "{}: holds a search with another {what}: search with the same to go on, or choose another place",
            dir.display()
        )
    };
    for (tuning, digest, what) in [
        (Tuning { method: Method::Random, ..usual() }, "0123", "method"),
        (Tuning { n_together: 2, run_keys: vec![1], ..usual() }, "0123", "parallel, another run_keys"),
        (usual(), "4567", "store"),
        (Tuning { space: Space::new(&usual().run_file, &[]).unwrap(), ..usual() }, "0123", "space"),
    ] {
        assert_eq!(open(tuning, digest).unwrap_err(), sentence(what));
    }
    fs::write(dir.join("trials.jsonl"), "{}\n").unwrap();
    let damaged = open(usual(), "0123").unwrap_err();
    assert!(damaged.contains("trials.jsonl: line 1 is not one of ours: missing field"), "{damaged}");
    let second = serde_json::to_string(&Trial { trial: 1, ..trial(State::Finished, &[0.5]) }).unwrap();
    fs::write(dir.join("trials.jsonl"), second + "\n").unwrap();
    let damaged = open(usual(), "0123").unwrap_err();
    assert!(damaged.ends_with("line 1 is not trial 0: the file was changed"), "{damaged}");
}

fn trial(state: State, valid: &[f64]) -> Trial {
    let run = |valid: &f64| TrialRun { run_key: 1, valid: *valid, test: 0.0, epochs: 1 };
    let runs: Vec<TrialRun> = valid.iter().map(run).collect();
    let mean = valid.iter().sum::<f64>() / valid.len() as f64;
    let valid = (!valid.is_empty()).then_some(mean);
    Trial { trial: 0, state, values: Default::default(), valid, runs, seconds: 0.0 }
}

#[test]
fn a_first_run_clearly_below_the_median_ends_its_trial() {
    let finished = |first| trial(State::Finished, &[first, 0.0]);
    let mut trials: Vec<Trial> = [0.7, 0.9, 0.5, 0.8].map(finished).into();
    trials.extend((0..9).map(|_| trial(State::Stopped, &[0.1])));
    assert_eq!(bar(&trials), None, "four are too few, and those that were stopped do not count");
    trials.push(finished(0.6));
    assert_eq!(bar(&trials), Some(0.7 - 0.01));
    trials.push(finished(0.8));
    assert_eq!(bar(&trials), Some(0.75 - 0.01));
    assert_eq!(bar(&[]), None);
}

/// Trials with settings that learn nothing stop after one run.
#[test]
fn bad_trials_are_stopped_after_one_run() {
    let (trials, _) = in_memory(&Tuning { method: Method::Random, ..tuning(40, 1) }, &data(false));
    let stopped: Vec<&Trial> = trials.iter().filter(|trial| trial.state == State::Stopped).collect();
    assert!(!stopped.is_empty() && stopped.iter().all(|trial| trial.runs.len() == 1));
    for trial in stopped {
        assert!(trial.valid < bar(&trials[..trial.trial]), "{trial:?}");
    }
}

#[test]
fn the_best_has_all_its_runs_and_failures_are_the_worst() {
    use super::{space::Space, trials::best};
    let trials = [trial(State::Stopped, &[0.99]), trial(State::Finished, &[0.5, 0.7]), trial(State::Failed, &[])];
    assert_eq!(best(&trials).unwrap().runs.len(), 2);
    assert!(best(&trials[..1]).is_none());
    let with_values = |trial: &Trial| Trial { values: [("model.dropout".to_owned(), 0.4)].into(), ..trial.clone() };
    let file = RunFile::parse(FILE, "test").unwrap();
    let asked = ["optimizer.weight_decay=off", "model.dropout=0..0.8"].map(str::to_owned);
    let seen = super::trials::seen(&trials.each_ref().map(with_values), &Space::new(&file, &asked).unwrap());
    let values: Vec<f64> = seen.iter().map(|seen| seen.value).collect();
    assert_eq!((values, &seen[0].point), (vec![0.99, 0.6, 0.6], &vec![0.5]));
}
