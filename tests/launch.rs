//! `kith launch` with real processes: the same run also after failures, and no process left.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    kith::{Finished, finish_within, is_slow_asked_for, kith, program},
    whole_path::{report, steps},
};

const LIMIT: Duration = Duration::from_secs(60);
/// Time for orphaned processes to end: servers stay for the last step of ranks.
const SECONDS: Duration = Duration::from_secs(30);

/// A store, a partitioned graph of three shards, and a run on the store.
struct Made {
    temp: tempfile::TempDir,
    store: String,
    cluster: String,
    plain: Finished,
}

impl Made {
    fn new() -> Made {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
        let (store, cluster) = (path("store"), path("cluster"));
        let options = ["--nodes", "2000", "--degree", "8", "--classes", "4", "--dim", "16", "--seed", "7"];
        kith([&["data", "generate", "power-law", "--out", &store], &options[..]].concat());
        kith(["partition", &store, "--shards", "3", "--method", "hash", "--out", &cluster]);
        let mut made =
            Made { plain: Finished { code: None, stdout: String::new(), stderr: String::new() }, temp, store, cluster };
        made.plain = finish_within(&mut made.command(&["train", "--graph", &made.store], "plain"), LIMIT);
        assert_eq!(made.plain.code, Some(0), "{}", made.plain.stderr);
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// A run that takes a second or two.
    fn command(&self, first: &[&str], out: &str) -> Command {
        let mut command = Command::new(program());
        command.args(first).args(["partition-graph/supergat-mx", "--json", "--out"]).arg(self.path(out));
        let set = ["train.mode=mini-batch", "train.fanouts=[5, 5]", "train.batch_size=50", "train.edge_seeds=50"];
        let more = ["train.epochs=5", "train.evaluate_every=5", "train.checkpoint_every=1", "early_stop=off"];
        command.args(set.iter().chain(&more).chain(&["train.slices=3"]).flat_map(|assignment| ["--set", assignment]));
        command.env("RAYON_NUM_THREADS", "1");
        command
    }

    fn launch(&self, first: &[&str], out: &str) -> Command {
        self.command(&[&["launch"], first].concat(), out)
    }

    /// Starts a command on a thread, and returns after some steps.
    fn start(&self, mut command: Command, out: &str) -> JoinHandle<Finished> {
        let running = thread::spawn(move || finish_within(&mut command, LIMIT));
        let n_steps = || fs::read_to_string(self.path(out).join("steps.jsonl")).map_or(0, |text| text.lines().count());
        wait_until(LIMIT, || n_steps() >= 8 || running.is_finished());
        assert!(!running.is_finished(), "it was over before it was disturbed: {}", running.join().unwrap().stderr);
        running
    }

    fn processes(&self, command: &str) -> Vec<u32> {
        processes(self.temp.path(), command)
    }

    /// The process of a rank.
    #[track_caller]
    fn rank(&self, rank: usize) -> u32 {
        let own = format!("RANK={rank}");
        let is_own = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == own.as_bytes())
        };
        let found: Vec<u32> = self.processes("train").into_iter().filter(is_own).collect();
        assert_eq!(found.len(), 1, "rank {rank}: {found:?}");
        found[0]
    }

    #[track_caller]
    fn only(&self, command: &str) -> u32 {
        let found = self.processes(command);
        assert_eq!(found.len(), 1, "kith {command}: {found:?}");
        found[0]
    }

    #[track_caller]
    fn assert_nothing_is_left(&self) {
        let left = || ["launch", "train", "serve"].map(|command| self.processes(command)).concat();
        wait_until(SECONDS, || left().is_empty());
        assert_eq!(left(), Vec::<u32>::new());
    }

    #[track_caller]
    fn assert_same(&self, out: &str) {
        assert_eq!(steps(&self.path(out)), steps(&self.path("plain")));
        assert_eq!(report(&self.path(out))["results"], report(&self.path("plain"))["results"]);
    }
}

/// Processes whose arguments contain a folder and a command. Skips a child that still has its parent's arguments before
/// exec.
pub(crate) fn processes(folder: &Path, command: &str) -> Vec<u32> {
    let folder = folder.to_str().unwrap();
    let is_meant = |pid: &u32| {
        let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let args: Vec<String> = args.split(|byte| *byte == 0).map(|arg| String::from_utf8_lossy(arg).into()).collect();
        args.get(1).is_some_and(|first| first == command) && args.iter().any(|arg| arg.starts_with(folder))
    };
    let numbers = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let found: Vec<u32> = numbers.filter(is_meant).collect();
    let is_child = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
        parent.is_some_and(|parent| found.contains(&parent))
    };
    found.iter().filter(|pid| !is_child(pid)).copied().collect()
}

pub(crate) fn wait_until(limit: Duration, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() && started.elapsed() < limit {
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(sent.expect("kill is there").success());
}

/// Output of a run, without the time.
fn answer(finished: &Finished) -> Value {
    let mut answer = finished.json();
    assert!(answer["seconds"].as_f64() > Some(0.0));
    answer["seconds"] = Value::Null;
    answer
}

#[test]
fn a_launched_run_is_a_plain_run() {
    let made = Made::new();
    let one = finish_within(&mut made.launch(&["--ranks", "1", "--graph", &made.store], "one"), LIMIT);
    assert_eq!(one.code, Some(0), "{}", one.stderr);
    made.assert_same("one");
    assert_eq!(answer(&one), answer(&made.plain), "rank 0's answer is ours");
    assert!(one.stderr.lines().all(|line| line.starts_with("rank 0 | ")), "{}", one.stderr);

    let served = finish_within(&mut made.launch(&["--samplers", "2", "--shards", &made.cluster], "served"), LIMIT);
    assert_eq!(served.code, Some(0), "{}", served.stderr);
    made.assert_same("served");
    assert_eq!(answer(&served), answer(&made.plain));
    for line in ["server 0 | serving shards 0,2 of 3 on 127.0.0.1:", "server 1 | serving shards 1 of 3 on 127.0.0.1:"] {
        assert!(served.stderr.lines().any(|said| said.starts_with(line)), "{}", served.stderr);
    }
    let rows = &report(Path::new(&made.path("served")))["features"];
    assert!(rows["remote"].as_u64() > Some(0) && rows["local"].as_u64() == Some(0), "servers were asked: {rows}");
    made.assert_nothing_is_left();
}

/// Launched ranks and servers compute the same as one process.
fn is_one_process(made: &Made, name: &str, first: &[&str]) {
    let finished = finish_within(&mut made.launch(first, name), LIMIT);
    assert_eq!(finished.code, Some(0), "{name}: {}", finished.stderr);
    made.assert_same(name);
    assert_eq!(answer(&finished), answer(&made.plain), "{name}");
    made.assert_nothing_is_left();
}

#[test]
fn a_world_that_is_launched_is_one_process() {
    let made = Made::new();
    is_one_process(&made, "servers", &["--ranks", "2", "--samplers", "2", "--shards", &made.cluster]);
}

#[test]
fn slow_worlds_that_are_launched_are_one_process() {
    if is_slow_asked_for() {
        let made = Made::new();
        is_one_process(&made, "store", &["--ranks", "2", "--graph", &made.store]);
        is_one_process(&made, "shards", &["--ranks=3", "--shards", &made.cluster]);
    }
}

fn is_killed_and_starts_again(made: &Made, out: &str, n_ranks: &str, rank: usize) {
    let launch = made.launch(&["--ranks", n_ranks, "--restarts", "2", "--graph", &made.store], out);
    let running = made.start(launch, out);
    signal("KILL", made.rank(rank));
    let finished = running.join().unwrap();
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let restart = format!(
        "rank {rank} was killed by signal 9: starting all again from the last checkpoint in {} in 1 s (restart 1 of 2 since \
         the last checkpoint)",
        made.path(out).display()
    );
    assert_eq!(finished.stderr.lines().filter(|line| *line == restart).count(), 1, "{}", finished.stderr);
    made.assert_same(out);
    made.assert_nothing_is_left();
}

#[test]
fn a_killed_rank_starts_again_and_changes_nothing() {
    is_killed_and_starts_again(&Made::new(), "second", "2", 1);
}

#[test]
fn slow_any_rank_that_is_killed_starts_again() {
    if is_slow_asked_for() {
        let made = Made::new();
        is_killed_and_starts_again(&made, "alone", "1", 0);
        is_killed_and_starts_again(&made, "first", "2", 0);
    }
}

#[test]
fn a_killed_server_starts_again_and_changes_nothing() {
    let made = Made::new();
    let launch = made.launch(&["--restarts", "1", "--samplers", "1", "--shards", &made.cluster], "served");
    let running = made.start(launch, "served");
    signal("KILL", made.only("serve"));
    let finished = running.join().unwrap();
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("\nserver 0 was killed by signal 9: starting all again"), "{}", finished.stderr);
    made.assert_same("served");
    made.assert_nothing_is_left();
}

#[test]
fn without_restarts_a_lost_process_is_worth_a_retry() {
    let made = Made::new();
    let first = ["--ranks", "2", "--restarts", "0", "--samplers", "2", "--shards", &made.cluster];
    let launch = made.launch(&first, "lost");
    let running = made.start(launch, "lost");
    signal("KILL", made.rank(1));
    let finished = running.join().unwrap();
    assert_eq!(finished.code, Some(75), "{}", finished.stderr);
    let last = finished.stderr.lines().last();
    assert_eq!(last, Some("error: rank 1 was killed by signal 9"), "{}", finished.stderr);
    assert!(finished.stderr.contains("rank 0 | error: rank 1 on "), "rank 0 says who: {}", finished.stderr);
    made.assert_nothing_is_left();
}

#[test]
fn what_would_fail_again_is_not_tried_again() {
    let made = Made::new();
    let launch = |first: &[&str]| {
        let finished = finish_within(&mut made.launch(&[&["--restarts", "3"], first].concat(), "bad"), LIMIT);
        assert!(!finished.stderr.contains("starting all again"), "{}", finished.stderr);
        finished
    };
    let finished = launch(&["--graph", &made.store, "--set", "train.epochs=none"]);
    assert_eq!(finished.sentence(), "rank 0 ended with code 1", "{}", finished.stderr);
    assert!(finished.stderr.contains("rank 0 | error: "), "{}", finished.stderr);
    let cluster = &made.cluster;
    assert!(launch(&["--samplers", "4", "--shards", cluster]).sentence().contains("4 servers for 3 shards"));
    assert!(launch(&["--samplers", "0", "--shards", cluster]).sentence().contains("ask for 1 to 3"));
    assert!(launch(&["--samplers", "2"]).sentence().contains("give its folder with --graph"));
    assert_eq!(launch(&["--ranks", "0"]).code, Some(1));
    let finished = launch(&["--ranks", "4", "--graph", &made.store]);
    let sentence = "4 ranks cannot share steps with train.slices = 3: set it to 4, or start fewer ranks with --ranks";
    assert_eq!(finished.sentence(), sentence);
    assert!(!finished.stderr.contains("rank 0"), "nothing was started: {}", finished.stderr);
    made.assert_nothing_is_left();
}

#[test]
fn a_signal_stops_everything() {
    let made = Made::new();
    for (name, code) in [("INT", 130), ("TERM", 75)] {
        let out = name.to_lowercase();
        let launch = made.launch(&["--restarts", "3", "--samplers", "2", "--shards", &made.cluster], &out);
        let running = made.start(launch, &out);
        assert_eq!(made.processes("serve").len(), 2);
        signal(name, made.only("launch"));
        let finished = running.join().unwrap();
        assert_eq!(finished.code, Some(code), "{}", finished.stderr);
        assert!(!finished.stderr.contains("starting all again"), "{}", finished.stderr);
        made.assert_nothing_is_left();
        // Ranks had time for a checkpoint, and their servers kept running.
        let sentence = finished.stderr.lines().find_map(|line| line.strip_prefix("rank 0 | stopped by SIGTERM after "));
        let n_steps: usize = sentence.unwrap().split_whitespace().next().unwrap().parse().unwrap();
        let checkpoint = made.path(&out).join(format!("checkpoints/step-{n_steps}.safetensors"));
        assert!(checkpoint.exists(), "{}", finished.stderr);
        let launch = ["--resume", "--samplers", "2", "--shards", &made.cluster];
        assert_eq!(finish_within(&mut made.launch(&launch, &out), LIMIT).code, Some(0));
        made.assert_same(&out);
    }
}

/// A terminated rank, as on a drained host, stops all ranks; all are restarted by default.
#[test]
fn a_terminated_rank_starts_again_by_default() {
    let made = Made::new();
    let running = made.start(made.launch(&["--ranks", "2", "--graph", &made.store], "drained"), "drained");
    signal("TERM", made.rank(1));
    let finished = running.join().unwrap();
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let restart = "(restart 1 of 3 since the last checkpoint)";
    assert_eq!(finished.stderr.matches(restart).count(), 1, "{}", finished.stderr);
    assert!(finished.stderr.contains("rank 0 | stopped by SIGTERM after "), "{}", finished.stderr);
    made.assert_same("drained");
    made.assert_nothing_is_left();
}

/// Restarts end without a new checkpoint.
#[test]
fn restarts_without_progress_end() {
    let made = Made::new();
    // Missing servers: a rank exits with 75 before its first step.
    let first = ["--restarts", "1", "--samplers", "127.0.0.1:1", "--sampler-timeout", "1"];
    let finished = finish_within(&mut made.launch(&first, "vain"), LIMIT);
    assert_eq!(finished.code, Some(75), "{}", finished.stderr);
    assert_eq!(finished.stderr.matches("starting all again").count(), 1, "{}", finished.stderr);
    made.assert_nothing_is_left();
}

/// After a second Ctrl-C, a launcher does not wait for a rank that cannot finish its step.
#[test]
fn a_second_ctrl_c_ends_a_launch_at_once() {
    let made = Made::new();
    let first = ["--ranks", "2", "--grace", "500", "--heartbeat-timeout", "60", "--graph", &made.store];
    let running = made.start(made.launch(&first, "twice"), "twice");
    signal("STOP", made.rank(1));
    let launcher = made.only("launch");
    signal("INT", launcher);
    thread::sleep(Duration::from_millis(500));
    assert!(!running.is_finished(), "it waits for a checkpoint");
    signal("INT", launcher);
    let finished = running.join().unwrap();
    assert_eq!(finished.code, Some(130), "{}", finished.stderr);
    made.assert_nothing_is_left();
}

#[test]
fn processes_do_not_outlive_a_killed_launch() {
    let made = Made::new();
    let running = made.start(made.launch(&["--samplers", "2", "--shards", &made.cluster], "orphans"), "orphans");
    signal("KILL", made.only("launch"));
    assert_eq!(running.join().unwrap().code, None);
    made.assert_nothing_is_left();
}
