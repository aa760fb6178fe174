//! A recorded command: the states that a loss of power may leave of it, and the faults of its operations.

use std::{collections::BTreeMap, path::Path, process::Command};

use super::{
    recording::{Bytes, Entry, Fault, FaultKind, Operation, Recorder, Recording, Tree},
    replay::{Disk, State, states},
};
use crate::kith::{finish, program};

/// Number that selects all states or faults, for slow tests.
pub(super) const ALL: usize = usize::MAX;

/// Numbers of `EIO` and `ENOSPC`.
pub(super) const EIO: i32 = 5;
pub(super) const ENOSPC: i32 = 28;

/// The promise of a command that has ended, or has printed its result.
pub(super) const DONE: u64 = u64::MAX;

/// A file of somebody else, in each folder that commands write to.
pub(super) const FOREIGN: &str = "notes.txt";

/// A command whose files are watched.
pub(super) struct Case<'a> {
    /// Content of the watched folder before the command.
    pub(super) before: Tree,
    /// The command for a watched folder.
    pub(super) command: &'a dyn Fn(&Path) -> Command,
    /// Folders in it that nobody reads after a loss of power.
    pub(super) ignored: &'a [&'a str],
    /// Promises that the program has made by these operations.
    pub(super) promised: &'a dyn Fn(&[Operation]) -> u64,
    /// Opens what is there with the real reader; an error for a state that must not be.
    pub(super) check: &'a dyn Fn(&Path, u64) -> Result<(), String>,
    /// Everything that the command makes, without times and names drawn at random.
    pub(super) result: &'a dyn Fn(&Path) -> BTreeMap<String, Bytes>,
    /// The sentence of a command that finds its work done.
    pub(super) is_done: &'a str,
}

impl<'a> Case<'a> {
    /// A command that starts without its files, prints its result once they are there, and can be repeated.
    pub(super) fn new(
        command: &'a dyn Fn(&Path) -> Command,
        check: &'a dyn Fn(&Path, u64) -> Result<(), String>,
        result: &'a dyn Fn(&Path) -> BTreeMap<String, Bytes>,
    ) -> Case<'a> {
        Case { before: foreign([""]), command, ignored: &[], promised: &printed, check, result, is_done: "" }
    }

    /// A copy of a tree in a folder of its own.
    pub(crate) fn folder(tree: &Tree) -> tempfile::TempDir {
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
    pub(super) fn survives_power_loss(&self, recorder: &Recorder, n_repairs: usize) {
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

    /// Checks single and lasting faults, `n_faults` of each kind: the exit code and the sentence are as documented, nothing is
    /// half there, and the next run repairs it.
    #[track_caller]
    pub(super) fn survives_faults(&self, recorder: &Recorder, n_faults: usize) {
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
        let n_ended = |name: &str| -> usize {
            codes
                .iter()
                .filter(|((kind, code), _)| *kind == name && code.is_some_and(|code| code > 0))
                .map(|(_, n)| n)
                .sum()
        };
        assert!(["EIO", "ENOSPC"].into_iter().all(|name| n_ended(name) > 0), "no fault ended a command: {codes:?}");
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
pub(super) fn in_memory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// A command with one thread for computations, so that its operations come in the same order every time.
pub(super) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).env("RAYON_NUM_THREADS", "1");
    command
}

/// The promise of commands that print one result on stdout.
pub(super) fn printed(operations: &[Operation]) -> u64 {
    if operations.iter().any(|operation| matches!(operation, Operation::Said(1))) { DONE } else { 0 }
}

/// A folder of somebody else's files.
pub(super) fn foreign<const N: usize>(folders: [&str; N]) -> Tree {
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
pub(super) fn all_files(dir: &Path) -> BTreeMap<String, Bytes> {
    if !dir.is_dir() {
        return BTreeMap::new();
    }
    let files = Tree::read(dir).0.into_iter().filter_map(|(name, entry)| match entry {
        Entry::File(bytes) if !name.ends_with("kith.draft") => Some((name, bytes)),
        _ => None,
    });
    files.collect()
}

pub(super) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
