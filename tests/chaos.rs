//! Random signals to ranks, servers and the launcher: every run ends with the losses of an undisturbed one, and no
//! process or file is left.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    kith::{is_slow_asked_for, kith, program},
    launch::{processes, wait_until},
    whole_path::{report, steps},
};

/// Time for a run to end after its last signal.
const LIMIT: Duration = Duration::from_secs(120);
/// Time for processes to end whose launcher was killed.
const ALONE: Duration = Duration::from_secs(30);
/// Maximum number of signals to one run.
const MAX_SIGNALS: u32 = 12;

/// Pseudorandom numbers of a seed (SplitMix64).
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

struct Chaos {
    temp: tempfile::TempDir,
    draws: Draws,
    /// Numbers of sent signals and of exit codes.
    counts: BTreeMap<String, u32>,
}

impl Chaos {
    fn new(seed: u64) -> Chaos {
        let chaos = Chaos { temp: tempfile::tempdir().unwrap(), draws: Draws(seed), counts: BTreeMap::new() };
        fs::create_dir(chaos.path("tmp")).unwrap();
        let path = |name: &str| chaos.path(name).to_str().unwrap().to_owned();
        let options = ["--nodes", "2000", "--degree", "8", "--classes", "4", "--dim", "16", "--seed", "7"];
        kith([&["data", "generate", "power-law", "--out", &path("store")], &options[..]].concat());
        kith(["partition", &path("store"), "--shards", "3", "--method", "hash", "--out", &path("cluster")]);
        let mut alone = chaos.command(&["train", "--graph", &path("store")], "plain");
        assert!(alone.status().unwrap().success());
        chaos
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn command(&self, first: &[&str], out: &str) -> Command {
        let mut command = Command::new(program());
        command.args(first).args(["partition-graph/supergat-mx", "--json", "--out"]).arg(self.path(out));
        let set = ["train.mode=mini-batch", "train.fanouts=[5, 5]", "train.batch_size=50", "train.edge_seeds=50"];
        let more = ["train.epochs=8", "train.evaluate_every=2", "train.checkpoint_every=1", "early_stop=off"];
        command.args(set.iter().chain(&more).chain(&["train.slices=3"]).flat_map(|assignment| ["--set", assignment]));
        command.env("RAYON_NUM_THREADS", "1").env("TMPDIR", self.path("tmp"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Starts or resumes a run.
    fn launch(&self, out: &str) -> Child {
        let cluster = self.path("cluster");
        let first = ["launch", "--ranks", "3", "--samplers", "2", "--shards", cluster.to_str().unwrap(), "--resume"];
        // Shorter than some pauses.
        let patience = ["--heartbeat-timeout", "2", "--join-timeout", "20", "--grace", "10"];
        let said = fs::File::options().create(true).append(true).open(self.path("said")).unwrap();
        let mut command = self.command(&[&first[..], &patience].concat(), out);
        command.stderr(said).spawn().expect("kith starts")
    }

    /// Sends a signal to one of the processes of a launch.
    fn disturb(&mut self, launcher: &Child) {
        let of = |command: &str| processes(self.temp.path(), command);
        let (who, pids) = match self.draws.below(10) {
            0 => ("launcher", vec![launcher.id()]),
            1..4 => ("server", of("serve")),
            _ => ("rank", of("train")),
        };
        if pids.is_empty() {
            return; // They are still being started.
        }
        let pid = pids[self.draws.below(pids.len() as u64) as usize];
        let signal = ["KILL", "STOP", "TERM"][self.draws.below(3) as usize];
        send(signal, pid);
        if signal == "STOP" {
            thread::sleep(Duration::from_millis(100 + self.draws.below(5_000)));
            send("CONT", pid);
        }
        *self.counts.entry(format!("{signal} {who}")).or_default() += 1;
    }

    /// One run from start to end, with any number of restarts.
    fn run(&mut self, out: &str) {
        let mut n_signals = 0;
        for _ in 0..=MAX_SIGNALS + 1 {
            let mut launcher = self.launch(out);
            let started = Instant::now();
            // A signal before a process has installed its handlers ends it silently.
            let mut next = Duration::from_millis(300 + self.draws.below(3_000));
            let mut is_disturbed = started;
            let status = loop {
                if let Some(status) = launcher.try_wait().unwrap() {
                    break status;
                }
                if is_disturbed.elapsed() > LIMIT {
                    let _ = launcher.kill();
                    panic!("{out} hangs:\n{}", self.said());
                }
                if n_signals < MAX_SIGNALS && started.elapsed() > next {
                    self.disturb(&launcher);
                    n_signals += 1;
                    is_disturbed = Instant::now();
                    next = started.elapsed() + Duration::from_millis(self.draws.below(3_000));
                }
                thread::sleep(Duration::from_millis(5));
            };
            let end = status.code().or(status.signal().map(|signal| -signal)).expect("it has ended");
            assert!([0, 75, -9].contains(&end), "{out} ended with {end}:\n{}", self.said());
            let said = self.said();
            assert!(!said.contains("this is a bug") && !said.contains("panicked"), "{said}");
            *self.counts.entry(format!("ended with {end}")).or_default() += 1;
            let left = || ["launch", "train", "serve"].map(|command| processes(self.temp.path(), command)).concat();
            wait_until(ALONE, || left().is_empty());
            assert_eq!(left(), Vec::<u32>::new(), "{out} left processes:\n{}", self.said());
            if end == 0 {
                assert_eq!(steps(&self.path(out)), steps(&self.path("plain")), "{out}");
                assert_eq!(report(&self.path(out))["results"], report(&self.path("plain"))["results"], "{out}");
                fs::remove_dir_all(self.path(out)).unwrap();
                fs::remove_file(self.path("said")).unwrap();
                return;
            }
        }
        panic!("{out} did not end although nobody disturbs it any more:\n{}", self.said());
    }

    fn said(&self) -> String {
        fs::read_to_string(self.path("said")).unwrap_or_default()
    }
}

/// Sends a signal; ignores a process that has ended.
fn send(name: &str, pid: u32) {
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Shared memory, except that of other tests.
fn shared_memory() -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir("/dev/shm") else { return BTreeSet::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| !name.starts_with(".tmp")).collect()
}

/// For a minute, or `KITH_CHAOS_SECONDS`; `KITH_CHAOS_SEED` is the seed.
#[test]
#[allow(clippy::print_stderr)]
fn slow_random_signals_leave_no_trace() {
    if !is_slow_asked_for() {
        return;
    }
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (seconds, seed) = (number("KITH_CHAOS_SECONDS").unwrap_or(60), number("KITH_CHAOS_SEED").unwrap_or(1));
    let before = shared_memory();
    let mut chaos = Chaos::new(seed);
    let started = Instant::now();
    let mut n_runs = 0;
    while started.elapsed() < Duration::from_secs(seconds) {
        chaos.run(&format!("run-{n_runs}"));
        n_runs += 1;
    }
    assert_eq!(names(&chaos.path("tmp")), BTreeSet::new(), "temporary files are left");
    let left: Vec<String> = shared_memory().difference(&before).cloned().collect();
    assert!(left.is_empty(), "shared memory is left: {left:?}");
    for whom in ["rank", "server"] {
        let n_signals: u32 = chaos.counts.iter().filter(|(what, _)| what.ends_with(whom)).map(|(_, n)| n).sum();
        assert!(n_signals > 0, "no {whom} got a signal: {:?}", chaos.counts);
    }
    eprintln!("{n_runs} runs in {} s, seed {seed}: {:?}", started.elapsed().as_secs(), chaos.counts);
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
