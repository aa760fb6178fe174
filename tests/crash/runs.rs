//! Runs: in a folder, mirrored in object storage, of several seeds.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use kith_bucket::LISTING;
use kith_trainer::output::checkpoint::Checkpoint;
use serde_json::Value;

use super::{
    buckets::pulled,
    case::{Case, DONE, all_files, command, foreign, in_memory, text},
    graphs::generate,
    recording::{Bytes, Entry, Operation, Recorder, Tree},
    replay::Disk,
};
use crate::kith::finish;

/// Training of a small run with checkpoints, which starts or resumes.
fn train(store: &Path, out: &str) -> Command {
    let settings = ["train.mode=mini-batch", "train.fanouts=[3, 3]", "train.batch_size=20", "train.epochs=3"];
    let more = ["train.checkpoint_every_steps=2", "train.checkpoint_every=2", "early_stop=off", "model.hidden=4"];
    let first = ["train", "partition-graph/supergat-mx", "--graph", text(store), "--out", out, "--resume"];
    let mut command = command(&[&first[..], &["--max-starts", "9"]].concat());
    command.args(settings.iter().chain(&more).flat_map(|setting| ["--set", setting]));
    command
}

/// Checkpoints in a run's folder, the newest last.
fn checkpoints(run: &Path) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = fs::read_dir(run.join("checkpoints")) else { return Vec::new() };
    let mut found: Vec<_> =
        entries.map(|entry| entry.unwrap().path()).filter_map(|path| Some((step_of(&path)?, path))).collect();
    found.sort();
    found
}

fn step_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok()
}

/// Checks the folder of a run: every checkpoint is whole, counts on records that are there, and the newest is not older than
/// was promised.
fn check_run(run: &Path, promised: u64) -> Result<(), String> {
    let records = fs::read_to_string(run.join("steps.jsonl")).unwrap_or_default();
    let n_whole = records.split_inclusive('\n').take_while(|line| is_record(line)).count() as u64;
    let found = checkpoints(run);
    for (step, path) in &found {
        Checkpoint::load(path).map_err(|error| format!("it is no checkpoint: {error}"))?;
        if n_whole < *step {
            return Err(format!("{n_whole} records, and a checkpoint after {step} steps"));
        }
    }
    let newest = found.last().map_or(0, |(step, _)| *step);
    if promised != DONE && newest < promised {
        return Err(format!("the checkpoint after {promised} steps is lost: the newest is {newest}"));
    }
    let is_reported = match fs::read_to_string(run.join("report.json")) {
        Ok(report) => match serde_json::from_str::<Value>(&report) {
            Ok(report) => report["results"].is_object(),
            Err(error) => return Err(format!("half a report: {error}")),
        },
        Err(_) => false,
    };
    if promised == DONE && !is_reported { Err("the report is lost".to_owned()) } else { Ok(()) }
}

fn is_record(line: &str) -> bool {
    line.ends_with('\n') && serde_json::from_str::<Value>(line).is_ok_and(|record| record["step"].is_u64())
}

/// Promises of a run: its checkpoints. One is acknowledged when the run goes on to the next, removes an older one, or ends.
fn saved(operations: &[Operation]) -> u64 {
    let (mut written, mut acknowledged) = (0, 0);
    for operation in operations {
        match operation {
            Operation::Rename(_, to) => written = step_of(Path::new(to)).map_or(written, |step| written.max(step)),
            Operation::Unlink(path) if step_of(Path::new(path)).is_some() => acknowledged = written,
            Operation::Create(path) if path.contains("/step-") && !path.contains(&format!("/step-{written}.")) => {
                acknowledged = written;
            }
            Operation::Said(1) => acknowledged = DONE,
            _ => {}
        }
    }
    acknowledged
}

/// Files of a run, without times and the checksums that cover them: its settings, records, results, and the tensors of its checkpoints.
fn result_of_run(run: &Path) -> BTreeMap<String, Bytes> {
    let mut files = all_files(run);
    files.retain(|name, _| name != "starts.json" && name != LISTING);
    // A run that is lost while it removes an older checkpoint leaves it.
    let found = checkpoints(run);
    for (_, older) in &found[..found.len().saturating_sub(2)] {
        files.remove(older.strip_prefix(run).unwrap().to_str().unwrap());
    }
    for (name, bytes) in &mut files {
        *bytes = match &**name {
            "steps.jsonl" => Bytes::new(without_times(bytes, &["crc32", "micros", "phases"])),
            "report.json" => {
                let mut report: Value = serde_json::from_slice(bytes).unwrap();
                (report["phases"], report["crc32"]) = (Value::Null, Value::Null);
                for time in ["seconds", "seconds_evaluating"] {
                    report["results"][time] = Value::Null;
                }
                Bytes::new(report.to_string().into_bytes())
            }
            _ if step_of(Path::new(name)).is_some() => {
                let n_header = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
                Bytes::new(bytes[8 + n_header..].to_vec())
            }
            _ => continue,
        };
    }
    files
}

fn without_times(lines: &[u8], times: &[&str]) -> Vec<u8> {
    let mut text = String::new();
    for line in std::str::from_utf8(lines).unwrap().lines() {
        let mut record: Value = serde_json::from_str(line).unwrap();
        times.iter().for_each(|time| record[*time] = Value::Null);
        text.push_str(&format!("{record}\n"));
    }
    text.into_bytes()
}

/// A run in a folder, from its start or from its middle.
pub(super) fn training(is_resumed: bool, f: impl FnOnce(&Recorder, &Case<'_>)) {
    let inputs = in_memory();
    let store = inputs.path().join("store");
    generate(&store, "120", "7");
    let recorder = Recorder::new();
    let command = |root: &Path| train(&store, text(&root.join("runs/mine")));
    let mut before = foreign(["", "runs"]);
    if is_resumed {
        before = in_the_middle(
            &recorder,
            &before,
            &command,
            &|operation| matches!(operation, Operation::Rename(_, to) if step_of(Path::new(to)) == Some(4)),
        );
    }
    let check = |root: &Path, promised| check_run(&root.join("runs/mine"), promised);
    let result = |root: &Path| result_of_run(&root.join("runs/mine"));
    let case = Case { before, promised: &saved, ..Case::new(&command, &check, &result) };
    f(&recorder, &case);
}

/// Files of a command that is killed after an operation.
fn in_the_middle(
    recorder: &Recorder,
    before: &Tree,
    command: &dyn Fn(&Path) -> Command,
    is_last: &dyn Fn(&Operation) -> bool,
) -> Tree {
    let temp = Case::folder(before);
    let root = temp.path().canonicalize().unwrap();
    let recording = recorder.record(&root, &mut command(&root), None);
    assert_eq!(recording.finished.code, Some(0), "{}", recording.finished.stderr);
    let mut disk = Disk::new(before);
    let end = recording.operations.iter().position(is_last).expect("this operation was recorded");
    recording.operations[..=end].iter().for_each(|operation| disk.apply(operation));
    disk.tree()
}

#[test]
fn a_run_survives_a_loss_of_power() {
    training(false, |recorder, case| case.survives_power_loss(recorder, 6));
}

#[test]
fn a_resumed_run_survives_a_loss_of_power() {
    training(true, |recorder, case| case.survives_power_loss(recorder, 3));
}

#[test]
fn a_run_survives_faults_of_the_disk() {
    training(false, |recorder, case| case.survives_faults(recorder, 2));
}

/// A run that is mirrored to a bucket, from its start or from its middle.
pub(super) fn mirroring(is_resumed: bool, f: impl FnOnce(&Recorder, &Case<'_>)) {
    let inputs = in_memory();
    let store = inputs.path().join("store");
    generate(&store, "120", "7");
    let recorder = Recorder::new();
    let command = |root: &Path| {
        let mut command = train(&store, &format!("file://{}", root.join("bucket/runs/mine").display()));
        command.env("TMPDIR", root.join("tmp"));
        command
    };
    let mut before = foreign(["", "bucket"]);
    before.0.insert("tmp".to_owned(), Entry::Folder);
    if is_resumed {
        // The second listing that names a checkpoint.
        let n_listings = RefCell::new(0);
        before = in_the_middle(&recorder, &before, &command, &|operation| {
            let is_listing = matches!(operation, Operation::Rename(_, to) if to.ends_with(LISTING));
            *n_listings.borrow_mut() += usize::from(is_listing);
            is_listing && *n_listings.borrow() == 4
        });
        before = before.without("tmp");
        before.0.insert("tmp".to_owned(), Entry::Folder);
    }
    let check = |root: &Path, promised| match pulled(&root.join("bucket/runs/mine"))? {
        None if promised > 0 => Err("the run is lost".to_owned()),
        None => Ok(()),
        Some(temp) => check_run(temp.path(), promised),
    };
    let result = |root: &Path| match pulled(&root.join("bucket/runs/mine")) {
        Ok(Some(temp)) => result_of_run(temp.path()),
        _ => BTreeMap::new(),
    };
    let case = Case { before, ignored: &["tmp"], ..Case::new(&command, &check, &result) };
    f(&recorder, &case);
}

#[test]
fn a_mirrored_run_survives_a_loss_of_power() {
    mirroring(false, |recorder, case| case.survives_power_loss(recorder, 3));
}

#[test]
fn a_mirrored_run_that_is_resumed_survives_a_loss_of_power() {
    mirroring(true, |recorder, case| case.survives_power_loss(recorder, 3));
}

#[test]
fn a_mirrored_run_survives_faults_of_the_disk() {
    mirroring(false, |recorder, case| case.survives_faults(recorder, 2));
}

/// Runs of several seeds in one folder, which share a file of settings.
pub(super) fn training_of_seeds(f: impl FnOnce(&Recorder, &Case<'_>)) {
    let inputs = in_memory();
    let store = inputs.path().join("store");
    generate(&store, "120", "7");
    let recorder = Recorder::new();
    let command = |root: &Path| {
        let mut command = train(&store, text(&root.join("runs/set")));
        command.args(["--seeds", "1..3", "--set", "train.epochs=1"]);
        command
    };
    let undisturbed = in_memory();
    assert_eq!(finish(&mut command(undisturbed.path())).code, Some(0));
    let settings = fs::read(undisturbed.path().join("runs/set/run.toml")).unwrap();
    let check = |root: &Path, promised| {
        let set = root.join("runs/set");
        match fs::read(set.join("run.toml")) {
            Ok(found) if found != settings => return Err("half a file of settings".to_owned()),
            Err(_) if promised > 0 => return Err("the file of settings is lost".to_owned()),
            _ => {}
        }
        match fs::read(set.join("report.json")) {
            Ok(found) if serde_json::from_slice::<Value>(&found).is_err() => return Err("half a report".to_owned()),
            _ => {}
        }
        let runs = ["run-1", "run-2"].map(|run| set.join(run));
        runs.iter().try_for_each(|run| check_run(run, if promised == DONE { DONE } else { 0 }))
    };
    let result = |root: &Path| {
        let runs = ["run-1", "run-2"].map(|run| (run, result_of_run(&root.join("runs/set").join(run))));
        let files = runs
            .into_iter()
            .flat_map(|(run, files)| files.into_iter().map(move |(name, bytes)| (format!("{run}/{name}"), bytes)));
        files.collect()
    };
    let case = Case { before: foreign(["", "runs"]), promised: &saved, ..Case::new(&command, &check, &result) };
    f(&recorder, &case);
}

#[test]
fn runs_of_several_seeds_survive_a_loss_of_power() {
    training_of_seeds(|recorder, case| case.survives_power_loss(recorder, 1));
}
