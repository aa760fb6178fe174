//! `kith shards`, as processes: copies, moves, kills in the middle, disks that are full or cannot be written.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{fs::MetadataExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use crate::kith::{Finished, finish, kith, program, run_kith};

const N_SHARDS: u32 = 3;

/// A partitioned graph of three shards.
struct Made {
    temp: tempfile::TempDir,
    graph: PathBuf,
}

impl Made {
    fn new(n_nodes: u64, dim: u64) -> Made {
        let temp = tempfile::tempdir().unwrap();
        let (store, graph) = (temp.path().join("store"), temp.path().join("a.shards"));
        let options = ["--degree", "6", "--nodes", &n_nodes.to_string(), "--dim", &dim.to_string()].map(String::from);
        let store = text(&store);
        kith([&["data", "generate", "power-law", "--out", store].map(String::from)[..], &options[..]].concat());
        kith(["partition", store, "--shards", "3", "--method", "hash", "--out", text(&graph)]);
        Made { temp, graph }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// All files below a folder, by name.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let Ok(entries) = fs::read_dir(dir) else { return found };
    for entry in entries {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            found.extend(files(&entry.path()).into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else {
            found.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    found
}

fn shards_of(graph: &Path) -> Vec<u64> {
    let listed = kith(["shards", "list", text(graph), "--json"]).json();
    let is_here = |shard: &&serde_json::Value| shard["state"] == "here";
    listed["shards"].as_array().unwrap().iter().filter(is_here).map(|shard| shard["shard"].as_u64().unwrap()).collect()
}

#[test]
fn shards_are_listed_copied_and_moved() {
    let made = Made::new(6000, 16);
    let (a, b, c) = (text(&made.graph).to_owned(), made.path("disk/b.shards"), made.path("c.shards"));
    let (b, c) = (text(&b), text(&c));
    let whole = files(&made.graph);
    let listed = kith(["shards", "list", &a]).stdout;
    assert!(listed.contains("a.shards: 3 of 3 shards, "), "{listed}");

    let copied = kith(["shards", "copy", &a, "--shards", "0,2", "--to", b]).stdout;
    for line in ["shard 0: ", "shard 2: ", "b.shards: verified shards 0,2, "] {
        assert!(copied.contains(line), "{copied}");
    }
    assert!(copied.lines().last().unwrap().ends_with(" s"), "{copied}");
    let listed = kith(["shards", "list", b]).stdout;
    assert!(listed.contains("2 of 3 shards") && listed.contains("not in this folder: 1"), "{listed}");
    let again = kith(["shards", "copy", &a, "--shards", "1-2", "--to", b, "--json"]).json();
    let outcomes: Vec<_> = again["shards"].as_array().unwrap().iter().map(|shard| &shard["outcome"]).collect();
    assert_eq!(outcomes, ["copied", "already-there"]);
    assert!(files(Path::new(b)) == whole && files(&made.graph) == whole);

    let moved = kith(["shards", "move", b, "--shards", "1", "--to", c]);
    assert!(moved.stdout.contains("shard 1: ") && moved.stdout.contains("renamed"), "{}", moved.stdout);
    assert!(moved.stderr.contains("keep serving these shards until they stop"), "{}", moved.stderr);
    assert_eq!((shards_of(Path::new(b)), shards_of(Path::new(c))), (vec![0, 2], vec![1]));
    // Without all shards, a folder is not whole: the missing ones are named, and the others can be verified.
    let finished = run_kith(["partition", "verify", b]);
    assert!(finished.stdout.contains("shard-1, folder: not in this folder"), "{}", finished.stdout);
    assert_eq!(finished.code, Some(1));
    let store = made.path("store");
    let verified = kith(["partition", "verify", b, "--shards", "0,2", "--graph", text(&store)]).stdout;
    assert!(verified.contains("shards 0,2 verified"), "{verified}");
    assert!(run_kith(["partition", "verify", b, "--shards", "3"]).sentence().contains("there is no shard 3"));
    // All that a folder holds.
    kith(["shards", "move", b, "--shards", "all", "--to", c]);
    assert_eq!(shards_of(Path::new(b)), Vec::<u64>::new());
    assert!(files(Path::new(c)) == whole);
    // A move that was killed while it removed the last shard has this to finish.
    fs::create_dir_all(Path::new(b).join("shards.draft/shard-0")).unwrap();
    fs::write(Path::new(b).join("shards.draft/kith.draft"), "shards.draft").unwrap();
    kith(["shards", "move", b, "--shards", "all", "--to", c]);
    assert!(!Path::new(b).join("shards.draft").exists());
    let none = run_kith(["shards", "copy", b, "--shards", "all", "--to", c]);
    assert!(none.sentence().contains("holds no shards"), "{}", none.stderr);
    let absent = run_kith(["serve", "--graph", b, "--listen", "127.0.0.1:0"]);
    assert!(absent.sentence().contains("shard 0 is not in this folder"), "{}", absent.stderr);
}

/// A folder from which all shards seem to have been copied may be deleted.
#[test]
fn all_shards_are_not_copied_if_one_is_damaged() {
    let made = Made::new(3000, 4);
    let to = made.path("b.shards");
    fs::write(made.graph.join("shard-1/indices.u32"), "short").unwrap();
    let before = files(&made.graph);
    for command in ["copy", "move"] {
        let refused = run_kith(["shards", command, text(&made.graph), "--shards", "all", "--to", text(&to)]);
        let sentence = refused.sentence();
        assert!(sentence.contains("a.shards: shard 1 is not usable: incomplete: "), "{sentence}");
        assert!(files(&made.graph) == before && !to.exists());
    }
    kith(["shards", "copy", text(&made.graph), "--shards", "0,2", "--to", text(&to)]);
    // Half of a folder is copied: absent shards are not damaged.
    kith(["shards", "copy", text(&to), "--shards", "all", "--to", text(&made.path("c.shards"))]);
    assert_eq!(shards_of(&made.path("c.shards")), [0, 2]);
}

#[test]
fn refusals_are_one_sentence_and_change_nothing() {
    let made = Made::new(3000, 4);
    let a = text(&made.graph).to_owned();
    let before = files(made.temp.path());
    let other = Made::new(3001, 4);
    let inner = made.graph.join("replica");
    let link = other.path("link");
    std::os::unix::fs::symlink(&made.graph, &link).unwrap();
    let new = made.path("new/b.shards");
    for (shards, to, sentence) in [
        ("0", text(&made.graph), "the same folder as"),
        ("0", text(&link), "the same folder as"),
        ("0", text(&inner), "or one lies in the other"),
        ("0", text(&other.graph), "holds another partitioned graph than"),
        ("0", text(made.temp.path()), "or one lies in the other"),
        ("0", text(other.temp.path()), "holds files and is no partitioned graph"),
        ("0", "/dev/null", "Not a directory"),
        ("3", text(&new), "there is no shard 3: the partitioned graph has 3 shards"),
    ] {
        for command in ["copy", "move"] {
            let refused = run_kith(["shards", command, &a, "--shards", shards, "--to", to]);
            assert!(refused.sentence().contains(sentence), "{to}: {}", refused.stderr);
            assert!(files(made.temp.path()) == before && !new.exists());
        }
    }
    for shards in ["", "0,", "2-1", "x"] {
        assert_eq!(run_kith(["shards", "copy", &a, "--shards", shards, "--to", text(&new)]).code, Some(1));
    }
    let store = made.path("store");
    let refused = run_kith(["shards", "list", text(&store)]);
    assert!(refused.sentence().contains("not a partitioned graph"), "{}", refused.stderr);
}

/// A folder on another file system than that of temporary folders; a note if this machine has none.
#[allow(clippy::print_stderr)]
fn elsewhere() -> Option<tempfile::TempDir> {
    let device = |dir: &Path| fs::metadata(dir).unwrap().dev();
    let other = tempfile::tempdir_in("/dev/shm").ok();
    let other = other.filter(|other| device(other.path()) != device(&std::env::temp_dir()));
    if other.is_none() {
        eprintln!("skipped: /dev/shm is no file system of its own");
    }
    other
}

/// Kills that must land in a move, and of these, between its first and its last shard.
const N_KILLS: u32 = 12;
const N_BETWEEN: u32 = 1;

/// Time for these kills.
const KILLING: Duration = Duration::from_secs(120);

/// Delays before a kill, in one direction: fractions of the time that a move takes.
struct Delays {
    usual: Duration,
    n: u32,
}

impl Delays {
    /// The next delay: the golden ratio spreads any number of fractions evenly.
    fn next(&mut self) -> Duration {
        self.n += 1;
        self.usual.mul_f64((f64::from(self.n) * 0.618_034).fract())
    }

    /// A move that ended before its kill takes less time.
    fn shrink(&mut self, delay: Duration) {
        self.usual = self.usual.min(delay);
    }
}

/// A process killed at any moment of a move has lost nothing, has published nothing incomplete, and the same command
/// finishes its work.
fn is_safe_to_kill(made: &Made, one: &Path, other: &Path) {
    let whole = files(&made.graph);
    let command = |from: &Path, to: &Path| {
        let mut command = Command::new(program());
        command.args(["shards", "move", text(from), "--shards", "0-2", "--to", text(to)]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    assert!(command(&made.graph, one).status().unwrap().success());
    assert!(files(one) == whole);
    // Either direction takes its own time.
    let mut delays = [(one, other), (other, one)].map(|(from, to)| {
        let started = Instant::now();
        assert!(command(from, to).status().unwrap().success());
        Delays { usual: started.elapsed(), n: 0 }
    });
    let (mut from, mut to, mut direction, mut n_killed, mut n_between) = (one, other, 0, 0, 0);
    let started = Instant::now();
    while n_killed < N_KILLS || n_between < N_BETWEEN {
        let n_seen = format!("{n_killed} killed, {n_between} of them in the middle");
        assert!(started.elapsed() < KILLING, "{n_seen}");
        let delay = delays[direction].next();
        let mut child = command(from, to).spawn().unwrap();
        thread::sleep(delay);
        child.kill().unwrap();
        match child.wait().unwrap().signal() {
            Some(_) => n_killed += 1,
            None => delays[direction].shrink(delay),
        }
        let (left, right) = (files(from), files(to));
        for shard in 0..N_SHARDS {
            let prefix = format!("shard-{shard}/");
            let own = |files: &BTreeMap<String, Vec<u8>>| -> BTreeMap<String, Vec<u8>> {
                let own = files.iter().filter(|(name, _)| name.starts_with(&prefix));
                own.map(|(name, bytes)| (name.clone(), bytes.clone())).collect()
            };
            let (left, right, expected) = (own(&left), own(&right), own(&whole));
            assert!(left.is_empty() || left == expected, "{n_seen}: shard {shard} of the source");
            assert!(right.is_empty() || right == expected, "{n_seen}: shard {shard} of the destination");
            assert!(!left.is_empty() || !right.is_empty(), "{n_seen}: shard {shard} is lost");
        }
        let has_shards = |files: &BTreeMap<String, Vec<u8>>| files.keys().any(|name| name.starts_with("shard-"));
        n_between += u32::from(has_shards(&left) && has_shards(&right));
        let again = finish(&mut command(from, to));
        assert_eq!(again.code, Some(0), "{n_seen}: {}", again.stderr);
        assert!(files(to) == whole, "{n_seen}");
        assert!(files(from).keys().all(|name| !name.starts_with("shard")), "{n_seen}: {:?}", files(from).keys());
        (from, to, direction) = (to, from, 1 - direction);
    }
}

#[test]
fn a_killed_move_loses_nothing() {
    let made = Made::new(20_000, 128);
    is_safe_to_kill(&made, &made.path("one"), &made.path("other"));
}

#[test]
fn a_killed_move_to_another_disk_loses_nothing() {
    let Some(elsewhere) = elsewhere() else { return };
    let made = Made::new(20_000, 128);
    is_safe_to_kill(&made, &made.path("one"), &elsewhere.path().join("other"));
}

#[test]
fn a_stopped_copy_leaves_no_draft() {
    let made = Made::new(20_000, 256);
    let to = made.path("b");
    let mut command = Command::new(program());
    command.args(["shards", "copy", text(&made.graph), "--shards", "all", "--to", text(&to)]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    // A draft beside its marker: the process knows by then what it has to remove.
    let has_begun = || fs::read_dir(to.join("shards.draft")).is_ok_and(|entries| entries.count() > 1);
    while !has_begun() && child.try_wait().unwrap().is_none() && started.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_micros(200));
    }
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).stderr(Stdio::null()).status().unwrap();
    let status = child.wait().unwrap();
    assert!([Some(75), Some(0)].contains(&status.code()), "{status}");
    assert!(!to.join("shards.draft").exists());
    assert_eq!(finish(&mut command).code, Some(0));
    assert!(files(&to) == files(&made.graph));
}

/// Runs a script with mounts of its own; `None`, with a note, if this machine does not permit it.
#[allow(clippy::print_stderr)]
fn with_mounts(script: &str, arguments: &[&str]) -> Option<Finished> {
    static WAYS: OnceLock<Option<&[&str]>> = OnceLock::new();
    const ALL: [&[&str]; 2] = [&["--mount"], &["--mount", "--user", "--map-root-user"]];
    let way = WAYS.get_or_init(|| {
        let permits = |way: &&&[&str]| {
            let mount = "mount -t tmpfs none /tmp";
            finish(Command::new("unshare").args(**way).args(["sh", "-c", mount])).code == Some(0)
        };
        ALL.iter().find(permits).copied()
    });
    let Some(way) = way else {
        eprintln!("skipped: this machine permits no mounts");
        return None;
    };
    let mut command = Command::new("unshare");
    command.args(*way).args(["sh", "-c", &format!("set -e; {script}"), text(program())]).args(arguments);
    Some(finish(&mut command))
}

#[test]
fn a_full_disk_is_named_and_loses_nothing() {
    let made = Made::new(20_000, 128);
    let to = made.path("disk");
    fs::create_dir(&to).unwrap();
    let before = files(&made.graph);
    // Space is compared before anything is copied.
    let script = r#"mount -t tmpfs -o size=4m none "$2"; code=0; "$0" shards $3 "$1" --shards 0-1 --to "$2/b" || code=$?
        find "$2" -mindepth 1; exit $code"#;
    for command in ["copy", "move"] {
        let Some(finished) = with_mounts(script, &[text(&made.graph), text(&to), command]) else { return };
        let sentence = finished.stderr.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or_default();
        assert!(sentence.contains("no space on its disk (") && sentence.contains("MiB needed"), "{}", finished.stderr);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(1), ""), "nothing is left on the disk");
        assert!(files(&made.graph) == before);
    }
    // A disk that fills up meanwhile: here it can hold no more files.
    let script = r#"mount -t tmpfs -o nr_inodes=20 none "$2"; code=0
        "$0" shards $3 "$1" --shards 0-2 --to "$2/b" || code=$?
        "$0" shards list "$2/b" --json; find "$2/b" -name '*.draft'; exit $code"#;
    for command in ["copy", "move"] {
        let whole = made.path(command);
        kith(["shards", "copy", text(&made.graph), "--shards", "all", "--to", text(&whole)]);
        let finished = with_mounts(script, &[text(&whole), text(&to), command]).unwrap();
        let sentence = finished.stderr.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or_default();
        assert!(sentence.contains("no space on its disk (No space left on device"), "{}", finished.stderr);
        assert_eq!(finished.code, Some(1), "{}", finished.stderr);
        // Of the shards, those before the failure are there; a move has removed these, and no others.
        let there = finished.json();
        let states: Vec<&str> =
            there["shards"].as_array().unwrap().iter().map(|shard| shard["state"].as_str().unwrap()).collect();
        assert!(states.contains(&"absent") && !states.contains(&"unusable"), "{states:?}");
        let n_left = states.iter().filter(|state| **state == "absent").count();
        assert_eq!(shards_of(&whole).len(), if command == "move" { n_left } else { 3 });
    }
}

#[test]
fn a_source_that_cannot_be_written_is_copied_and_not_moved() {
    let made = Made::new(3000, 4);
    let to = made.path("b");
    let before = files(&made.graph);
    let script = r#"mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; "$0" shards $3 "$1" --shards 1 --to "$2""#;
    let Some(finished) = with_mounts(script, &[text(&made.graph), text(&to), "move"]) else { return };
    let sentence = finished.sentence();
    assert!(sentence.contains("cannot be moved away (Read-only file system"), "{sentence}");
    assert!(sentence.ends_with("use `kith shards copy`, which removes nothing") && !to.exists(), "{sentence}");
    let finished = with_mounts(script, &[text(&made.graph), text(&to), "copy"]).unwrap();
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(shards_of(&to), [1]);
    // The same folder under another name: a link cannot be followed, and paths differ.
    let script = r#"mkdir "$2"; mount --bind "$1" "$2"; "$0" shards move "$1" --shards 1 --to "$2""#;
    let finished = with_mounts(script, &[text(&made.graph), text(&made.path("bound"))]).unwrap();
    assert!(finished.sentence().contains("the same folder as"), "{}", finished.stderr);
    // The same shard under another name.
    let script = r#"mount --bind "$1/shard-1" "$2/shard-1"; "$0" shards move "$1" --shards 1 --to "$2""#;
    let finished = with_mounts(script, &[text(&made.graph), text(&to)]).unwrap();
    assert!(finished.sentence().contains("the folder of the source under another name"), "{}", finished.stderr);
    assert!(files(&made.graph) == before);
    // Two mounts of one file system: a rename is not possible, so the shard is copied.
    let script = r#"mkdir "$2"; mount --bind "$2" "$2"; "$0" shards move "$1" --shards 2 --to "$2/c""#;
    let finished = with_mounts(script, &[text(&made.graph), text(&made.path("mounted"))]).unwrap();
    assert!(finished.stdout.contains(", copied"), "{}{}", finished.stdout, finished.stderr);
    assert_eq!((shards_of(&made.graph), shards_of(&made.path("mounted/c"))), (vec![0, 1], vec![2]));
}

/// One folder that two file systems show, as with a network mount of the same host: the numbers of files and the locks are not
/// the same.
#[test]
#[allow(clippy::print_stderr)]
fn one_folder_on_two_file_systems_is_no_copy() {
    let made = Made::new(3000, 4);
    let before = files(&made.graph);
    for name in ["lower", "work", "shown"] {
        fs::create_dir(made.path(name)).unwrap();
    }
    let script = r#"mount -t overlay none -o "lowerdir=$2/lower,upperdir=$1,workdir=$2/work" "$2/shown" || exit 99
        "$0" shards $3 "$1" --shards 1 --to "$2/shown" || { code=$?; find "$2/shown" "$1" -name '*.draft'; exit $code; }"#;
    let folder = made.temp.path();
    for command in ["copy", "move"] {
        let Some(finished) = with_mounts(script, &[text(&made.graph), text(folder), command]) else { return };
        if finished.code == Some(99) {
            return eprintln!("skipped: this machine permits no overlay of its temporary folder: {}", finished.stderr);
        }
        let sentence = finished.sentence();
        assert!(sentence.contains("the same folder as"), "{sentence}");
        assert_eq!(finished.stdout, "", "no draft is left");
        assert!(files(&made.graph) == before, "{command}");
    }
}
