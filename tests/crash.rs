//! Loss of power and failing disks. The file operations of real commands are recorded; every state that a loss of power may
//! leave of them is opened with the real readers, and the commands are run again on samples of these states. Operations
//! that fail end a command with the documented exit code, and the next run of the command repairs what is left.

mod recording;
mod replay;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use kith_bucket::{BucketError, LISTING, Place, Pull, Wanted};
use kith_store::{Cluster, Graph, StoreError};
use kith_trainer::output::checkpoint::Checkpoint;
use serde_json::Value;

use self::{
    recording::{Bytes, Entry, Fault, FaultKind, Operation, Recorder, Recording, Tree},
    replay::{Disk, State, states},
};
use crate::kith::{finish, is_slow_asked_for, kith, program};

/// For slow tests: as many as there are.
const ALL: usize = usize::MAX;

/// Numbers of `EIO` and `ENOSPC`.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// The promise of a command that has ended, or has printed its result.
const DONE: u64 = u64::MAX;

/// A file of somebody else, in each folder that commands write to.
const FOREIGN: &str = "notes.txt";

/// A command whose files are watched.
struct Case<'a> {
    /// Content of the watched folder before the command.
    before: Tree,
    /// The command for a watched folder.
    command: &'a dyn Fn(&Path) -> Command,
    /// Folders in it that nobody reads after a loss of power.
    ignored: &'a [&'a str],
    /// Promises that the program has made by these operations.
    promised: &'a dyn Fn(&[Operation]) -> u64,
    /// Opens what is there with the real reader; an error for a state that must not be.
    check: &'a dyn Fn(&Path, u64) -> Result<(), String>,
    /// Everything that the command makes, without times and names drawn at random.
    result: &'a dyn Fn(&Path) -> BTreeMap<String, Bytes>,
    /// The sentence of a command that finds its work done.
    is_done: &'a str,
}

impl Case<'_> {
    /// A copy of a tree in a folder of its own.
    fn folder(tree: &Tree) -> tempfile::TempDir {
        let temp = in_memory();
        tree.write(temp.path());
        temp
    }

    /// Records an undisturbed run, and checks that the operations explain every byte that is there afterwards.
    fn record(&self, recorder: &Recorder) -> (Recording, BTreeMap<String, Bytes>) {
        let temp = Case::folder(&self.before);
        let recording = recorder.record(temp.path(), &mut (self.command)(&temp.path().canonicalize().unwrap()), None);
        assert_eq!(recording.finished.code, Some(0), "{}", recording.finished.stderr);
        let mut disk = Disk::new(&recording.before);
        recording.operations.iter().for_each(|operation| disk.apply(operation));
        let (replayed, after) = (disk.tree(), &recording.after);
        let differs = |name: &&String| replayed.0.get(*name) != after.0.get(*name);
        let found: Vec<_> = replayed.0.keys().chain(after.0.keys()).filter(differs).collect();
        assert!(found.is_empty(), "the record does not explain {found:?}");
        let result = (self.result)(temp.path());
        (self.check)(temp.path(), DONE).unwrap();
        (recording, result)
    }

    /// Every state that a loss of power may leave is good, and the command repairs `n_repairs` of them.
    #[track_caller]
    fn survives_power_loss(&self, recorder: &Recorder, n_repairs: usize) {
        let (recording, expected) = self.record(recorder);
        let left = states(&recording.before, &recording.operations, self.ignored, self.promised);
        let mut bad = Vec::new();
        for state in &left {
            let temp = Case::folder(&state.tree);
            if let Err(problem) = (self.check)(temp.path(), state.promised) {
                bad.push(format!("{problem}\n    after {}", describe(state, &recording)));
            }
        }
        assert!(bad.is_empty(), "{} of {} states are bad, such as:\n{}", bad.len(), left.len(), some(&bad));
        // Of the states that lose most, and of the others.
        let (strict, others): (Vec<&State>, Vec<&State>) = left.iter().partition(|state| state.is_strict);
        let mut chosen = some_of(&strict, n_repairs);
        chosen.extend(some_of(&others, n_repairs));
        for state in &chosen {
            if let Err(problem) = self.repair(&state.tree, &expected) {
                bad.push(format!("{problem}\n    after {}", describe(state, &recording)));
            }
        }
        assert!(bad.is_empty(), "{} of {} states are not repaired, such as:\n{}", bad.len(), chosen.len(), some(&bad));
        report(&format!(
            "{} operations, {} states, {} of them strict, {} repaired",
            recording.operations.len(),
            left.len(),
            strict.len(),
            chosen.len()
        ));
    }

    /// Runs the command again on what is left: it ends as an undisturbed one does.
    fn repair(&self, left: &Tree, expected: &BTreeMap<String, Bytes>) -> Result<(), String> {
        let temp = Case::folder(&self.with_folders(left.clone()));
        let root = temp.path().canonicalize().unwrap();
        let again = finish(&mut (self.command)(&root));
        let is_done = again.code == Some(1) && !self.is_done.is_empty() && again.stderr.contains(self.is_done);
        if again.code != Some(0) && !is_done {
            return Err(format!("the next run ended with {:?}: {}", again.code, again.stderr));
        }
        (self.check)(&root, DONE)?;
        let found = (self.result)(&root);
        let differs = |name: &&String| found.get(*name) != expected.get(*name);
        let differing: Vec<&String> = expected.keys().chain(found.keys()).filter(differs).collect();
        if differing.is_empty() { Ok(()) } else { Err(format!("the next run made other {differing:?}")) }
    }

    /// Operations fail, one at a time or from one on: the exit code and the sentence are as documented, nothing is half
    /// there, and the next run repairs it. `n_faults` of each kind.
    #[track_caller]
    fn survives_faults(&self, recorder: &Recorder, n_faults: usize) {
        let (recording, expected) = self.record(recorder);
        let [n_changes, n_reads] = recording.counts;
        let mut bad = Vec::new();
        let mut codes: BTreeMap<(&str, Option<i32>), usize> = BTreeMap::new();
        let kinds = [
            ("EIO", FaultKind::Changes, n_changes, EIO, false),
            ("ENOSPC", FaultKind::Changes, n_changes, ENOSPC, true),
            ("EIO at reads", FaultKind::Reads, n_reads, EIO, false),
        ];
        for (name, kind, n, errno, is_lasting) in kinds {
            for first in chosen(n as usize, n_faults) {
                let first = first as u64;
                let fault = Fault { kind, first, last: if is_lasting { u64::MAX } else { first }, errno };
                match self.fail(recorder, fault, &expected) {
                    Ok(code) => *codes.entry((name, code)).or_default() += 1,
                    Err(problem) => bad.push(format!("{problem}\n    after {name} at operation {first} of {n}")),
                }
            }
        }
        assert!(bad.is_empty(), "{} faults end badly, such as:\n{}", bad.len(), some(&bad));
        report(&format!("exit codes {codes:?}"));
    }

    /// One run with a fault; its exit code.
    fn fail(
        &self,
        recorder: &Recorder,
        fault: Fault,
        expected: &BTreeMap<String, Bytes>,
    ) -> Result<Option<i32>, String> {
        let temp = Case::folder(&self.before);
        let root = temp.path().canonicalize().unwrap();
        let Recording { operations, finished, after, .. } =
            recorder.record(&root, &mut (self.command)(&root), Some(fault));
        let failed = operations.iter().find_map(|operation| match operation {
            Operation::Failed(path) => Some(path.clone()),
            _ => None,
        });
        let Some(failed) = failed else { return Ok(None) }; // Threads may do less than in the recorded run.
        let said = format!("{failed} failed, and the command ended with {:?}: {}", finished.code, finished.stderr);
        let code = if fault.errno == ENOSPC { 1 } else { 75 };
        match finished.code {
            // An operation that cleans up may fail without harm.
            Some(0) => {
                (self.check)(&root, DONE).map_err(|problem| format!("{problem}: {said}"))?;
                if (self.result)(&root) != *expected {
                    return Err(format!("other files: {said}"));
                }
            }
            Some(found) if found == code => {
                let sentences: Vec<&str> =
                    finished.stderr.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
                let names_file = |sentence: &&str| sentence.contains(root.to_str().unwrap());
                if sentences.len() != 1 || !sentences.iter().any(names_file) || finished.stderr.contains("panicked") {
                    return Err(format!("no sentence that names a file: {said}"));
                }
                (self.check)(&root, (self.promised)(&operations)).map_err(|problem| format!("{problem}: {said}"))?;
            }
            _ => return Err(format!("expected exit code {code}: {said}")),
        }
        for (name, entry) in self.before.0.iter().filter(|(name, _)| name.ends_with(FOREIGN)) {
            if after.0.get(name) != Some(entry) {
                return Err(format!("{name} was changed: {said}"));
            }
        }
        let left = self.ignored.iter().fold(after, |tree, folder| tree.without(folder));
        self.repair(&left, expected).map_err(|problem| format!("{problem}\n    {said}"))?;
        Ok(finished.code)
    }

    /// Folders that are ignored, empty.
    fn with_folders(&self, mut tree: Tree) -> Tree {
        tree.0.extend(self.ignored.iter().map(|folder| ((*folder).to_owned(), Entry::Folder)));
        tree
    }
}

fn describe(state: &State, recording: &Recording) -> String {
    let last = recording.operations[..state.n_operations].last().map(Operation::shown);
    let files = state.tree.0.keys().cloned().collect::<Vec<_>>().join(" ");
    format!("operation {} ({}): {}: {files}", state.n_operations, last.unwrap_or_default(), state.loss)
}

fn some(bad: &[String]) -> String {
    chosen(bad.len(), 6).into_iter().map(|place| bad[place].clone()).collect::<Vec<_>>().join("\n")
}

/// Numbers below `n`, evenly spaced.
fn chosen(n: usize, n_chosen: usize) -> Vec<usize> {
    let n_chosen = n_chosen.min(n);
    (0..n_chosen).map(|place| place * n / n_chosen + n / n_chosen / 2).collect()
}

/// States among these, evenly spaced.
fn some_of<'a>(states: &[&'a State], n_chosen: usize) -> Vec<&'a State> {
    chosen(states.len(), n_chosen).into_iter().map(|place| states[place]).collect()
}

#[allow(clippy::print_stderr)]
fn report(text: &str) {
    eprintln!("{text}");
}

/// A temporary folder, in memory if the system has such a place: thousands of states are written and synced.
fn in_memory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// A command with one thread for computations, so that its operations come in the same order every time.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).env("RAYON_NUM_THREADS", "1");
    command
}

/// The promise of commands that print one result on stdout.
fn printed(operations: &[Operation]) -> u64 {
    if operations.iter().any(|operation| matches!(operation, Operation::Said(1))) { DONE } else { 0 }
}

/// A folder of somebody else's files.
fn foreign<const N: usize>(folders: [&str; N]) -> Tree {
    let mut tree = Tree::default();
    for folder in folders {
        let mut end = 0;
        while let Some(next) = folder[end..].find('/').map(|place| end + place) {
            tree.0.insert(folder[..next].to_owned(), Entry::Folder);
            end = next + 1;
        }
        if !folder.is_empty() {
            tree.0.insert(folder.to_owned(), Entry::Folder);
        }
        let name = if folder.is_empty() { FOREIGN.to_owned() } else { format!("{folder}/{FOREIGN}") };
        tree.0.insert(name, Entry::File(Bytes::new(b"mine".to_vec())));
    }
    tree
}

/// Everything in a folder, without the marker that a crash may leave in it.
fn all_files(dir: &Path) -> BTreeMap<String, Bytes> {
    if !dir.is_dir() {
        return BTreeMap::new();
    }
    let files = Tree::read(dir).0.into_iter().filter_map(|(name, entry)| match entry {
        Entry::File(bytes) if !name.ends_with("kith.draft") => Some((name, bytes)),
        _ => None,
    });
    files.collect()
}

/// A store or a partitioned graph that appears by one rename: it is whole, or it is not there.
fn whole_or_absent(dir: &Path, promised: u64) -> Result<(), String> {
    if !dir.exists() {
        return if promised == DONE { Err("what was promised is not there".to_owned()) } else { Ok(()) };
    }
    opens_whole(dir)
}

fn opens_whole(dir: &Path) -> Result<(), String> {
    let opened = match Graph::open(dir) {
        Err(StoreError::Cut { .. }) => Cluster::open(dir).map(drop),
        opened => opened.map(drop),
    };
    opened.map_err(|error| format!("it is not opened: {error}"))?;
    verify_whole(dir)
}

/// Verifies a folder that the reader opens.
fn verify_whole(dir: &Path) -> Result<(), String> {
    let mut dirs = vec![dir.to_owned()];
    if let Ok(cluster) = Cluster::open(dir) {
        dirs.extend((0..cluster.n_shards()).map(|shard| dir.join(format!("shard-{shard}"))));
    }
    for dir in dirs {
        let verified = kith_store::verify(&dir, &|_| ()).map_err(|error| format!("it is not verified: {error}"))?;
        if !verified.findings.is_empty() {
            return Err(format!("it is opened and damaged: {:?}", verified.findings));
        }
    }
    Ok(())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Tables of a small graph.
fn write_tables(dir: &Path) {
    let mut edges = "from,to\n".to_owned();
    let (mut features, mut labels) = ("id,a,b,c\n".to_owned(), "id,class\n".to_owned());
    for node in 0..40 {
        for step in [1, 3, 7] {
            edges.push_str(&format!("n{node},n{}\n", (node + step) % 40));
        }
        features.push_str(&format!("n{node},0.{node},{},1.5\n", node % 5));
        labels.push_str(&format!("n{node},c{}\n", node % 3));
    }
    for (name, table) in [("edges.csv", edges), ("features.csv", features), ("labels.csv", labels)] {
        fs::write(dir.join(name), table).unwrap();
    }
}

fn import(f: impl FnOnce(&Recorder, &Case<'_>)) {
    let inputs = in_memory();
    write_tables(inputs.path());
    let own = |name: &str| inputs.path().join(name).to_str().unwrap().to_owned();
    let command = |root: &Path| {
        let (edges, features, labels) = (own("edges.csv"), own("features.csv"), own("labels.csv"));
        let out = root.join("stores/new/mine");
        let tables = ["--edges", &edges, "--features", &features, "--labels", &labels, "--split", "0.6/0.2/0.2"];
        command(&[&["data", "import"], &tables[..], &["--symmetrize", "--out", text(&out)]].concat())
    };
    let check = |root: &Path, promised| whole_or_absent(&root.join("stores/new/mine"), promised);
    let result = |root: &Path| all_files(&root.join("stores"));
    let case = Case {
        before: foreign(["", "stores"]),
        command: &command,
        ignored: &[],
        promised: &printed,
        check: &check,
        result: &result,
        is_done: "already exists",
    };
    f(&Recorder::new(), &case);
}

#[test]
fn an_import_survives_a_loss_of_power() {
    import(|recorder, case| case.survives_power_loss(recorder, 12));
}

#[test]
fn an_import_survives_faults_of_the_disk() {
    import(|recorder, case| case.survives_faults(recorder, 8));
}

/// A store of a generated graph.
fn generate(out: &Path, nodes: &str, seed: &str) {
    let options = ["--nodes", nodes, "--degree", "4", "--classes", "3", "--dim", "4", "--seed", seed];
    kith([&["data", "generate", "power-law", "--out", text(out)], &options[..]].concat());
}

fn partition(f: impl FnOnce(&Recorder, &Case<'_>)) {
    let inputs = in_memory();
    let store = inputs.path().join("store");
    generate(&store, "60", "7");
    let command = |root: &Path| {
        let out = root.join("graphs/mine.shards");
        let options = ["--shards", "3", "--method", "hash", "--fanouts", "3,3", "--batch-size", "8"];
        command(&[&["partition", text(&store), "--out", text(&out)], &options[..]].concat())
    };
    let check = |root: &Path, promised| whole_or_absent(&root.join("graphs/mine.shards"), promised);
    let result = |root: &Path| all_files(&root.join("graphs"));
    let case = Case {
        before: foreign([""]),
        command: &command,
        ignored: &[],
        promised: &printed,
        check: &check,
        result: &result,
        is_done: "already exists",
    };
    f(&Recorder::new(), &case);
}

#[test]
fn a_partition_survives_a_loss_of_power() {
    partition(|recorder, case| case.survives_power_loss(recorder, 12));
}

#[test]
fn a_partition_survives_faults_of_the_disk() {
    partition(|recorder, case| case.survives_faults(recorder, 8));
}

/// The folder at a place, pulled with the real reader; `None` if nothing was pushed there.
fn pulled(place: &Path) -> Result<Option<tempfile::TempDir>, String> {
    let temp = in_memory();
    let place = Place::parse(&format!("file://{}", place.display())).unwrap();
    match Pull::new(&place, temp.path(), &Wanted::All).and_then(|pull| pull.run(&|_| ())) {
        Err(BucketError::NotPushed { .. }) => Ok(None),
        Err(error) => Err(format!("it is not pulled: {error}")),
        Ok(_) => Ok(Some(temp)),
    }
}

/// Files of a folder that was pulled, without its listing.
fn files_at(place: &Path) -> BTreeMap<String, Bytes> {
    let Ok(Some(temp)) = pulled(place) else { return BTreeMap::new() };
    let mut files = all_files(temp.path());
    files.remove(LISTING);
    files
}

const BUCKET: &str = "bucket/graphs/mine.shards";

/// A push of a partitioned graph, to a place that holds another one if `replaces`.
fn push(replaces: bool, f: impl FnOnce(&Recorder, &Case<'_>)) {
    let inputs = in_memory();
    let own = |name: &str| inputs.path().join(name);
    for (name, seed) in [("new", "7"), ("old", "8")] {
        generate(&own("store"), "60", seed);
        let (store, out) = (own("store"), own(name));
        kith(["partition", text(&store), "--shards", "2", "--method", "hash", "--out", text(&out)]);
        fs::remove_dir_all(own("store")).unwrap();
    }
    let mut before = foreign([""]);
    if replaces {
        let root = in_memory();
        kith(["data", "push", text(&own("old")), &format!("file://{}", root.path().join(BUCKET).display())]);
        before.0.extend(Tree::read(root.path()).0);
    }
    let command = |root: &Path| {
        let url = format!("file://{}", root.join(BUCKET).display());
        let more: &[&str] = if replaces { &["--replace"] } else { &[] };
        command(&[&["data", "push", text(&own("new")), &url], more].concat())
    };
    let contents = [all_files(&own("new")), all_files(&own("old"))];
    let check = |root: &Path, promised| match pulled(&root.join(BUCKET))? {
        None if promised == DONE || replaces => Err("what was promised is not there".to_owned()),
        None => Ok(()),
        Some(temp) => {
            opens_whole(temp.path())?;
            let mut found = all_files(temp.path());
            found.remove(LISTING);
            let allowed = if promised == DONE || !replaces { &contents[..1] } else { &contents[..] };
            if allowed.contains(&found) { Ok(()) } else { Err("another folder is there".to_owned()) }
        }
    };
    let result = |root: &Path| files_at(&root.join(BUCKET));
    let case = Case {
        before,
        command: &command,
        ignored: &[],
        promised: &printed,
        check: &check,
        result: &result,
        is_done: "",
    };
    f(&Recorder::new(), &case);
}

#[test]
fn a_push_survives_a_loss_of_power() {
    push(false, |recorder, case| case.survives_power_loss(recorder, 12));
}

#[test]
fn a_push_that_replaces_survives_a_loss_of_power() {
    push(true, |recorder, case| case.survives_power_loss(recorder, 12));
}

#[test]
fn a_push_survives_faults_of_the_disk() {
    push(false, |recorder, case| case.survives_faults(recorder, 6));
    push(true, |recorder, case| case.survives_faults(recorder, 3));
}

fn pull(f: impl FnOnce(&Recorder, &Case<'_>)) {
    let inputs = in_memory();
    let own = |name: &str| inputs.path().join(name);
    generate(&own("store"), "60", "7");
    kith(["partition", text(&own("store")), "--shards", "2", "--method", "hash", "--out", text(&own("shards"))]);
    let url = format!("file://{}", own("bucket").display());
    kith(["data", "push", text(&own("shards")), &url]);
    let command = |root: &Path| {
        let out = root.join("graphs/new/mine.shards");
        command(&["data", "pull", &url, text(&out)])
    };
    // Files appear one by one, and manifests last: what opens is whole, as is every shard with a manifest.
    let check = |root: &Path, promised| {
        let dir = root.join("graphs/new/mine.shards");
        for folder in [dir.join("shard-0"), dir.join("shard-1"), dir] {
            if folder.join("manifest.json").exists() {
                verify_whole(&folder)?;
            } else if promised == DONE {
                return Err("what was promised is not there".to_owned());
            }
        }
        Ok(())
    };
    let result = |root: &Path| all_files(&root.join("graphs"));
    let case = Case {
        before: foreign([""]),
        command: &command,
        ignored: &[],
        promised: &printed,
        check: &check,
        result: &result,
        is_done: "",
    };
    f(&Recorder::new(), &case);
}

#[test]
fn a_pull_survives_a_loss_of_power() {
    pull(|recorder, case| case.survives_power_loss(recorder, 12));
}

#[test]
fn a_pull_survives_faults_of_the_disk() {
    pull(|recorder, case| case.survives_faults(recorder, 8));
}

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
fn training(is_resumed: bool, f: impl FnOnce(&Recorder, &Case<'_>)) {
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
    let case =
        Case { before, command: &command, ignored: &[], promised: &saved, check: &check, result: &result, is_done: "" };
    f(&recorder, &case);
}

/// What a command leaves that is killed after an operation.
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
fn mirroring(is_resumed: bool, f: impl FnOnce(&Recorder, &Case<'_>)) {
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
    let case = Case {
        before,
        command: &command,
        ignored: &["tmp"],
        promised: &printed,
        check: &check,
        result: &result,
        is_done: "",
    };
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

/// Shards that are copied or moved to another folder.
fn transfer(kind: &str, f: impl FnOnce(&Recorder, &Case<'_>)) {
    let inputs = in_memory();
    let own = |name: &str| inputs.path().join(name);
    generate(&own("store"), "60", "7");
    fs::create_dir(own("root")).unwrap();
    let shards = own("root").join("from.shards");
    kith(["partition", text(&own("store")), "--shards", "3", "--method", "hash", "--out", text(&shards)]);
    let mut before = foreign([""]);
    before.0.extend(Tree::read(&own("root")).0);
    let command = |root: &Path| {
        let (from, to) = (root.join("from.shards"), root.join("disk/to.shards"));
        command(&["shards", kind, text(&from), "--shards", "0,2", "--to", text(&to)])
    };
    // Each shard is whole in one of the folders; with its name, it is whole in each.
    let check = |root: &Path, promised| {
        let (from, to) = (root.join("from.shards"), root.join("disk/to.shards"));
        for shard in 0..3 {
            let places = [&from, &to].map(|dir| dir.join(format!("shard-{shard}")));
            for place in places.iter().filter(|place| place.exists()) {
                verify_whole(place)?;
            }
            if !places.iter().any(|place| place.exists()) {
                return Err(format!("shard {shard} is lost"));
            }
            if promised == DONE && shard != 1 && !places[1].exists() {
                return Err(format!("shard {shard} is not there"));
            }
        }
        Cluster::open(&from).map_err(|error| format!("the source is not opened: {error}"))?;
        match Cluster::open(&to) {
            Ok(_) => Ok(()),
            Err(_) if promised < DONE && !to.join("manifest.json").exists() => Ok(()),
            Err(error) => Err(format!("the destination is not opened: {error}")),
        }
    };
    let result = |root: &Path| all_files(root);
    let case = Case {
        before,
        command: &command,
        ignored: &[],
        promised: &printed,
        check: &check,
        result: &result,
        is_done: "",
    };
    f(&Recorder::new(), &case);
}

#[test]
fn copies_and_moves_of_shards_survive_a_loss_of_power() {
    transfer("copy", |recorder, case| case.survives_power_loss(recorder, 8));
    transfer("move", |recorder, case| case.survives_power_loss(recorder, 8));
}

#[test]
fn copies_and_moves_of_shards_survive_faults_of_the_disk() {
    transfer("copy", |recorder, case| case.survives_faults(recorder, 4));
    transfer("move", |recorder, case| case.survives_faults(recorder, 4));
}

/// Runs of several seeds in one folder, which share a file of settings.
fn training_of_seeds(f: impl FnOnce(&Recorder, &Case<'_>)) {
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
    let case = Case {
        before: foreign(["", "runs"]),
        command: &command,
        ignored: &[],
        promised: &saved,
        check: &check,
        result: &result,
        is_done: "",
    };
    f(&recorder, &case);
}

#[test]
fn runs_of_several_seeds_survive_a_loss_of_power() {
    training_of_seeds(|recorder, case| case.survives_power_loss(recorder, 1));
}

#[test]
fn slow_stores_and_shards_are_repaired_after_every_loss_of_power() {
    if is_slow_asked_for() {
        import(|recorder, case| case.survives_power_loss(recorder, ALL));
        partition(|recorder, case| case.survives_power_loss(recorder, ALL));
        transfer("copy", |recorder, case| case.survives_power_loss(recorder, ALL));
        transfer("move", |recorder, case| case.survives_power_loss(recorder, ALL));
    }
}

#[test]
fn slow_buckets_are_repaired_after_every_loss_of_power() {
    if is_slow_asked_for() {
        push(false, |recorder, case| case.survives_power_loss(recorder, ALL));
        push(true, |recorder, case| case.survives_power_loss(recorder, ALL));
        pull(|recorder, case| case.survives_power_loss(recorder, ALL));
    }
}

#[test]
fn slow_runs_are_repaired_after_every_loss_of_power() {
    if is_slow_asked_for() {
        training(false, |recorder, case| case.survives_power_loss(recorder, ALL));
        training(true, |recorder, case| case.survives_power_loss(recorder, ALL));
        training_of_seeds(|recorder, case| case.survives_power_loss(recorder, ALL));
    }
}

#[test]
fn slow_mirrored_runs_are_repaired_after_every_loss_of_power() {
    if is_slow_asked_for() {
        mirroring(false, |recorder, case| case.survives_power_loss(recorder, ALL));
        mirroring(true, |recorder, case| case.survives_power_loss(recorder, ALL));
    }
}

#[test]
fn slow_every_fault_of_the_disk_is_survived() {
    if is_slow_asked_for() {
        import(|recorder, case| case.survives_faults(recorder, ALL));
        partition(|recorder, case| case.survives_faults(recorder, ALL));
        transfer("copy", |recorder, case| case.survives_faults(recorder, ALL));
        transfer("move", |recorder, case| case.survives_faults(recorder, ALL));
        push(false, |recorder, case| case.survives_faults(recorder, ALL));
        push(true, |recorder, case| case.survives_faults(recorder, ALL));
        pull(|recorder, case| case.survives_faults(recorder, ALL));
    }
}

#[test]
fn slow_every_fault_of_the_disk_is_survived_by_runs() {
    if is_slow_asked_for() {
        training(false, |recorder, case| case.survives_faults(recorder, ALL));
        training(true, |recorder, case| case.survives_faults(recorder, ALL));
        mirroring(false, |recorder, case| case.survives_faults(recorder, ALL));
        mirroring(true, |recorder, case| case.survives_faults(recorder, ALL));
    }
}
