//! Every run is recorded once, has the same results on every device, and fails alone.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use kith_partition::{
    generate::{PartitionGraph, partition_graph},
    progress::Quiet,
};
use kith_run::{
    config::{RunConfig, Supervision},
    report::Results,
    run_file::RunFile,
};
use kith_trainer::{
    data::{Data, opened::Opened},
    error::TrainError,
};

use super::*;
use crate::{experiment::Training, kept::KeptRun, subject::Subject};

fn subject(dir: &Path) -> Subject {
    let graph = PartitionGraph { n_classes: 3, nodes_per_class: 180, average_degree: 4.0, homophily: 0.7, run_key: 1 };
    let store = dir.join("graph");
    if !store.exists() {
        partition_graph(&graph, &store, 1 << 30, &Quiet).unwrap();
    }
    Subject { name: "made".to_owned(), opened: Opened::open_store(&store).unwrap() }
}

fn cell(subject: &Subject, model: &str, changes: &[&str]) -> Cell {
    let file = kith_run::preset::Preset::get(&format!("partition-graph/{model}")).unwrap().run_file().unwrap();
    let mut file: RunFile = file;
    ["train.epochs=6", "early_stop=off"].iter().chain(changes).for_each(|change| file.set(change).unwrap());
    let config = file.resolve().unwrap();
    Cell { subject: subject.clone(), model: model.to_owned(), config, run_keys: 42..44 }
}

fn place(dir: &Path, n_workers: usize) -> Workplace {
    Workplace { dir: dir.to_owned(), device: "cpu".to_owned(), n_workers: Some(n_workers), memory: None }
}

/// Counts reported progress.
#[derive(Default)]
struct Counted(AtomicU64);

impl Progress for Counted {
    fn begin(&self, _what: &str, _total: Option<u64>, _unit: Unit) {}

    fn advance(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    fn end(&self) {}
}

/// Results that must not depend on the device or on the grouping of runs.
fn outcomes(done: &[Done]) -> Vec<(String, u64, Option<Results>)> {
    let of_run = |run: &KeptRun| {
        let results = run.results.clone();
        let timeless = results.map(|results| Results { seconds: 0.0, seconds_evaluating: 0.0, ..results });
        (run.model.clone(), run.run_key, timeless)
    };
    done.iter().flat_map(|done| &done.runs).map(of_run).collect()
}

#[test]
fn finished_runs_are_not_done_again_and_come_out_the_same_on_any_number_of_workers() {
    let temp = tempfile::tempdir().unwrap();
    let subject = subject(temp.path());
    let cells = || vec![cell(&subject, "gat", &[]), cell(&subject, "supergat-mx", &[]), cell(&subject, "gcn", &[])];
    let (three, one) = (temp.path().join("three"), temp.path().join("one"));
    let counted = Counted::default();
    let first = run(cells(), &Training, &place(&three, 3), &counted).unwrap();
    assert_eq!(counted.0.load(Relaxed), 6);
    assert!(first.iter().all(|done| done.runs.len() == 2 && done.test().n == 2));

    // With one more seed, only that run is trained.
    let mut more = cells();
    more[0].run_keys = 42..45;
    let counted = Counted::default();
    let second = run(more, &Training, &place(&three, 3), &counted).unwrap();
    assert_eq!(counted.0.load(Relaxed), 1);
    assert_eq!(second[1].runs, first[1].runs, "to the last bit, times included");

    let alone = run(cells(), &Training, &place(&one, 1), &Quiet).unwrap();
    assert_eq!(outcomes(&alone), outcomes(&first));

    // The id of a run covers everything that decides its results.
    let id = |cell: &Cell, key| cell.id(&Training, key);
    let [gat, other] = [cell(&subject, "gat", &[]), cell(&subject, "gat", &["optimizer.weight_decay=0.5"])];
    assert_ne!(id(&gat, 42), id(&gat, 43));
    assert_ne!(id(&gat, 42), id(&other, 42));
}

#[test]
fn a_run_that_goes_wrong_is_kept_as_such_and_alone() {
    let temp = tempfile::tempdir().unwrap();
    let subject = subject(temp.path());
    let cells = vec![cell(&subject, "gat", &["optimizer.learning_rate=1e30"]), cell(&subject, "gat", &[])];
    let done = run(cells, &Training, &place(&temp.path().join("bench"), 2), &Quiet).unwrap();
    let failures: Vec<String> = done[0].failures().collect();
    assert_eq!(failures.len(), 2);
    assert!(failures[0].starts_with("made gat, seed 42 failed: the loss is not finite at step"), "{failures:?}");
    assert!(done[0].test().mean.is_nan() && done[1].failures().next().is_none());
}

/// An experiment whose input cannot be loaded with full supervision.
struct Unreadable;

impl Experiment for Unreadable {
    fn load(&self, opened: &Opened, config: &RunConfig, run_key: u64) -> Result<Data, TrainError> {
        match config.train.supervision {
            Supervision::Split => Data::load(opened, config, run_key),
            _ => Err(TrainError::NoRows),
        }
    }
}

#[test]
fn what_stops_a_bench_stops_runs_that_are_at_work_and_they_are_not_kept() {
    let temp = tempfile::tempdir().unwrap();
    let subject = subject(temp.path());
    let dir = temp.path().join("bench");
    let cells =
        || vec![cell(&subject, "gat", &["train.epochs=100000000"]), cell(&subject, "gcn", &["train.supervision=full"])];
    let error = run(cells(), &Unreadable, &place(&dir, 3), &Quiet).unwrap_err().to_string();
    assert_eq!(error, "the store has no features: import it with --features");
    let kept = FinishedRuns::open(&dir).unwrap();
    assert!(cells().iter().all(|cell| kept.get(&cell.id(&Unreadable, 42)).is_none()));
}

#[test]
fn a_gpu_gets_runs_that_differ_in_numbers_alone_together() {
    let temp = tempfile::tempdir().unwrap();
    let subject = subject(temp.path());
    let cells = [
        cell(&subject, "supergat-mx", &[]),
        cell(&subject, "supergat-mx", &["edge_loss.weight=3.0", "optimizer.weight_decay=0.1", "train.epochs=9"]),
        cell(&subject, "supergat-mx", &["edge_loss.neg_sample_ratio=0.7"]),
        cell(&subject, "supergat-sd", &[]),
        cell(&subject, "gcn", &[]),
        cell(&subject, "gat", &["model.heads=33"]),
    ];
    let all: Vec<Wanted> =
        (0..cells.len()).flat_map(|cell| (42..44).map(move |run_key| Wanted { cell, run_key })).collect();
    let jobs = Jobs::group(&cells, &all, &Training, Some("cuda".to_owned()));
    let mut sizes: Vec<usize> = jobs.on_gpu.iter().map(|job| job.runs.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [2, 2, 2, 4], "the first two cells are one job");
    assert_eq!(jobs.on_cpu.len(), 2, "more than 32 heads are computed beside it");
    let without = Jobs::group(&cells, &all, &Training, None);
    assert_eq!((without.on_gpu.len(), without.on_cpu.len()), (0, 12));
}

/// On the emulated GPU: one of several runs trained together fails and must not stop the others.
#[test]
fn runs_together_are_kept_each_and_one_that_goes_wrong_stops_only_itself() {
    let temp = tempfile::tempdir().unwrap();
    let subject = subject(temp.path());
    device::start();
    let cells = [
        cell(&subject, "gat", &["train.epochs=3"]),
        cell(&subject, "gat", &["optimizer.learning_rate=1e30"]),
        cell(&subject, "gat", &["train.epochs=2"]),
    ];
    let runs: Vec<Wanted> = (0..3).map(|cell| Wanted { cell, run_key: 42 }).collect();
    let kept = FinishedRuns::open(&temp.path().join("bench")).unwrap();
    let shown = Piece::begin(&Quiet, "", None, Unit::Runs);
    let shared =
        Shared { cells: &cells, experiment: &Training, kept: Mutex::new(kept), shown, failed: Mutex::new(None) };
    gpu::do_runs(&shared, &runs, &kith_cuda_emulator::gpu(), "cuda").unwrap();
    let kept = shared.kept.into_inner().unwrap();
    let of = |place: usize| kept.get(&cells[place].id(&Training, 42)).unwrap().clone();
    assert_eq!(of(0).results.unwrap().epochs, 3);
    assert!(of(1).failed.unwrap().contains("not finite"));
    assert_eq!(of(2).results.unwrap().epochs, 2);

    let on_cpu = run(vec![cells[0].clone()], &Training, &place(&temp.path().join("cpu"), 1), &Quiet).unwrap();
    let (found, expected) = (of(0).results.unwrap(), on_cpu[0].runs[0].results.clone().unwrap());
    assert!((found.valid_loss_last - expected.valid_loss_last).abs() < 1e-3, "{found:?} {expected:?}");
}
