//! Data-parallel training with real processes: bit-identical losses on any number of ranks, also after kills and
//! pauses, and one sentence if ranks cannot work together.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    kith::{finish_within, is_slow_asked_for, kith, newest_checkpoint, program},
    servers::Sampler,
    whole_path::{report, steps},
    worlds::{Ranks, free_port, seat},
};

/// Slices of every step.
const N_SLICES: usize = 4;
const LIMIT: Duration = Duration::from_secs(55);
/// Time within which ranks notice the end of another.
const DEADLINE: Duration = Duration::from_secs(10);

/// A store with a prime number of nodes and seed nodes, partitioned graphs of it, and a run by one process.
pub(crate) struct Made {
    temp: tempfile::TempDir,
    store: PathBuf,
    pub(crate) whole: PathBuf,
    n_epochs: u64,
}

impl Made {
    fn new() -> Made {
        Made::of_epochs(4)
    }

    pub(crate) fn of_epochs(n_epochs: u64) -> Made {
        let temp = tempfile::tempdir().unwrap();
        let (store, whole) = (temp.path().join("store"), temp.path().join("whole"));
        let options = ["--nodes", "1009", "--degree", "6", "--classes", "4", "--dim", "16", "--seed", "7"];
        kith([&["data", "generate", "power-law", "--out", store.to_str().unwrap()], &options[..]].concat());
        let made = Made { temp, store, whole, n_epochs };
        let mut command = made.train(&["--graph", made.store.to_str().unwrap()], &made.whole);
        let finished = finish_within(&mut command, LIMIT);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        made
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    pub(crate) fn store(&self) -> [&str; 2] {
        ["--graph", self.store.to_str().unwrap()]
    }

    fn train(&self, graph: &[&str], out: &Path) -> Command {
        self.train_waiting(graph, out, "8")
    }

    /// The same with a join timeout in seconds.
    fn train_waiting(&self, graph: &[&str], out: &Path, join_timeout: &str) -> Command {
        let mut command = self.train_patiently(graph, out);
        command.args(["--heartbeat-timeout", "4", "--join-timeout", join_timeout]);
        command
    }

    /// The same with the default timeouts between ranks.
    pub(crate) fn train_patiently(&self, graph: &[&str], out: &Path) -> Command {
        let mut command = Command::new(program());
        command.args(["train", "partition-graph/supergat-mx", "--out", out.to_str().unwrap()]).args(graph);
        // 101 seed nodes of a few hundred: the last step of an epoch has fewer, and sometimes fewer than there are
        // slices.
        let batches = ["train.mode=mini-batch", "train.fanouts=[5, 5]", "train.batch_size=101", "train.edge_seeds=53"];
        let few = ["train.evaluate_every=2", "train.checkpoint_every_steps=3", "early_stop=off"];
        let (slices, epochs) = (format!("train.slices={N_SLICES}"), format!("train.epochs={}", self.n_epochs));
        let counts = [slices.as_str(), epochs.as_str()];
        command.args(batches.iter().chain(&few).chain(&counts).flat_map(|assignment| ["--set", assignment]));
        command.env("RAYON_NUM_THREADS", "1");
        command
    }

    /// Trains with several ranks to the end.
    #[track_caller]
    fn train_world(&self, n_ranks: usize, graph: &[&str], name: &str, more: &[&str]) -> PathBuf {
        let out = self.path(name);
        let mut ranks = Ranks::start(&self.path(&format!("{name}-said")), n_ranks, |_| {
            let mut command = self.train(graph, &out);
            command.args(more);
            command
        });
        let codes = ranks.wait(LIMIT);
        assert!(codes.iter().all(|code| *code == 0), "{name}: {codes:?}\n{}", ranks.all_said());
        out
    }

    fn cut(&self, n_shards: usize) -> PathBuf {
        let cluster = self.path(&format!("cluster-{n_shards}"));
        if !cluster.exists() {
            let options = ["--shards", &n_shards.to_string(), "--out", cluster.to_str().unwrap()];
            kith([&["partition", self.store.to_str().unwrap()], &options[..]].concat());
        }
        cluster
    }

    /// Trains on shards, from files or from servers.
    #[track_caller]
    fn train_cut(&self, n_ranks: usize, n_shards: usize, is_remote: bool) {
        let cluster = self.cut(n_shards);
        let name = format!("ranks-{n_ranks}-shards-{n_shards}-remote-{is_remote}");
        let out = if is_remote {
            let shards = |rest: usize| -> String {
                let own = (0..n_shards).filter(|shard| shard % 2 == rest).map(|shard| shard.to_string());
                own.collect::<Vec<_>>().join(",")
            };
            let servers: Vec<Sampler> =
                (0..n_shards.min(2)).map(|rest| Sampler::start(&cluster, &shards(rest))).collect();
            let addresses: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
            self.train_world(n_ranks, &["--samplers", &addresses.join(",")], &name, &[])
        } else {
            self.train_world(n_ranks, &["--shards", cluster.to_str().unwrap()], &name, &[])
        };
        assert_eq!(steps(&out), steps(&self.whole), "{name}");
    }
}

/// Results of a run, without the number of ranks and the sources of features.
pub(crate) fn results(run: &Path) -> Value {
    let mut report = report(run);
    (report["n_ranks"], report["features"]) = (Value::Null, Value::Null);
    report
}

#[test]
fn any_number_of_ranks_gives_the_same_bits() {
    let made = Made::new();
    for n_ranks in [2, 3] {
        let out = made.train_world(n_ranks, &made.store(), &format!("ranks-{n_ranks}"), &[]);
        assert_eq!((steps(&out), results(&out)), (steps(&made.whole), results(&made.whole)), "{n_ranks} ranks");
        let report: Value = serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
        assert_eq!(report["n_ranks"], n_ranks);
        let phases = report["phases"].as_array().unwrap();
        assert_eq!(phases.len(), n_ranks);
        assert!(phases.iter().all(|phases| phases["exchange"].as_u64() > Some(0)), "{phases:?}");
    }
    let fast = made.train_world(3, &made.store(), "fast", &["--set", "train.deterministic=false"]);
    let losses = |run: &Path| -> Vec<f64> { steps(run).iter().map(|step| step["loss"].as_f64().unwrap()).collect() };
    for (fast, exact) in losses(&fast).iter().zip(losses(&made.whole)) {
        assert!((fast - exact).abs() <= 1e-5 * exact, "{fast} {exact}");
    }
}

#[test]
fn encrypted_lines_give_the_same_bits() {
    let made = Made::new();
    let out = made.path("encrypted");
    let mut ranks = Ranks::start(&made.path("encrypted-said"), 3, |_| {
        let mut command = made.train(&made.store(), &out);
        command.args(["--rank-tls", "on"]).env("KITH_TOKEN", "a token of sixteen bytes or more");
        command
    });
    assert_eq!(ranks.wait(LIMIT), [0, 0, 0], "{}", ranks.all_said());
    assert_eq!((steps(&out), results(&out)), (steps(&made.whole), results(&made.whole)));
}

#[test]
fn ranks_read_shards_and_ask_servers() {
    let made = Made::new();
    made.train_cut(2, 2, true);
    made.train_cut(3, 4, false);
}

#[test]
fn slow_any_number_of_ranks_shards_and_servers() {
    if !is_slow_asked_for() {
        return;
    }
    let made = Made::new();
    for n_ranks in [1, 2, 3, 4] {
        for n_shards in [1, 2, 4] {
            for is_remote in [false, true] {
                made.train_cut(n_ranks, n_shards, is_remote);
            }
        }
    }
}

/// Kills a rank at a random moment and resumes with another number of ranks, several times, until the run is done.
fn kill_and_resume(made: &Made, name: &str, n_attempts: u64, mut draw: impl FnMut(u64) -> u64) -> u64 {
    let out = made.path(name);
    let mut n_killed = 0;
    for attempt in 0u64.. {
        let n_ranks = 2 + draw(3) as usize;
        let victim = draw(n_ranks as u64) as usize;
        let mut ranks = Ranks::start(&made.path(&format!("{name}-said-{attempt}")), n_ranks, |_| {
            let mut command = made.train(&made.store(), &out);
            command.arg("--resume");
            command
        });
        // The last attempt is not disturbed, so that the run ends.
        let is_left_alone = attempt >= n_attempts;
        if !is_left_alone {
            // After some steps, before the ranks have joined, or during a checkpoint.
            let (n_steps, moment) = (n_recorded(&out) + 5 + draw(45) as usize, Duration::from_millis(draw(600)));
            let (is_early, waits_for_draft) = (draw(4) == 0, draw(3) == 0);
            let started = Instant::now();
            while started.elapsed() < DEADLINE && n_recorded(&out) < n_steps && !ranks.have_ended() {
                if is_early && started.elapsed() > moment || waits_for_draft && has_draft(&out) {
                    break;
                }
                thread::sleep(Duration::from_micros(200));
            }
            ranks.kill(victim);
        }
        let codes = ranks.wait(LIMIT);
        if codes.iter().all(|code| *code == 0) {
            break;
        }
        assert!(!is_left_alone, "{codes:?}\n{}", ranks.all_said());
        n_killed += u64::from(codes[victim] == -1);
        for (rank, code) in codes.iter().enumerate() {
            // Ranks that had finished exit with 0; all others ask to be retried.
            let is_fine = matches!(code, 75 | 0) || (rank == victim && *code == -1);
            assert!(is_fine, "rank {rank} of {codes:?}, killed {victim}:\n{}", ranks.all_said());
        }
    }
    assert_eq!((steps(&out), results(&out)), (steps(&made.whole), results(&made.whole)), "{name}");
    n_killed
}

pub(crate) fn n_recorded(run: &Path) -> usize {
    fs::read_to_string(run.join("steps.jsonl")).map_or(0, |text| text.lines().count())
}

pub(crate) fn has_draft(run: &Path) -> bool {
    let Ok(files) = fs::read_dir(run.join("checkpoints")) else { return false };
    files.flatten().any(|file| file.file_name().to_string_lossy().ends_with(".draft"))
}

/// Deterministic draws of a seed.
pub(crate) fn draws(key: u64) -> impl FnMut(u64) -> u64 {
    let mut state = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) % below
    }
}

#[test]
fn killed_ranks_leave_no_trace() {
    let made = Made::of_epochs(40);
    let n_killed = kill_and_resume(&made, "killed", 3, draws(1));
    assert!(n_killed > 1, "only {n_killed} ranks were killed in time");
}

#[test]
fn slow_fifty_killed_ranks_leave_no_trace() {
    if !is_slow_asked_for() {
        return;
    }
    let made = Made::of_epochs(60);
    let mut n_killed = 0;
    for key in 2.. {
        n_killed += kill_and_resume(&made, &format!("killed-{key}"), 6, draws(key));
        if n_killed >= 50 {
            return;
        }
    }
}

/// Waits until a run has recorded `n_steps` steps.
#[track_caller]
pub(crate) fn wait_for_steps(ranks: &mut Ranks, out: &Path, n_steps: usize) {
    wait_for_steps_within(ranks, out, n_steps, LIMIT);
}

#[track_caller]
pub(crate) fn wait_for_steps_within(ranks: &mut Ranks, out: &Path, n_steps: usize, limit: Duration) {
    let started = Instant::now();
    while n_recorded(out) < n_steps {
        assert!(!ranks.have_ended() && started.elapsed() < limit, "no steps were made:\n{}", ranks.all_said());
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_paused_rank_0_ends_no_run_for_good() {
    goes_on_after_a_pause(&[0]);
}

#[test]
fn slow_any_paused_rank_ends_no_run_for_good() {
    if is_slow_asked_for() {
        goes_on_after_a_pause(&[1, 2]);
    }
}

/// Pauses a rank for longer than the others' timeout: they exit with 75 and name it, and so does the paused one when it
/// continues. The run resumes.
fn goes_on_after_a_pause(ranks: &[usize]) {
    let made = Made::new();
    for &paused in ranks {
        let out = made.path(&format!("paused-{paused}"));
        let start = |name: &str| {
            Ranks::start(&made.path(&format!("{name}-{paused}-said")), 3, |_| {
                let mut command = made.train(&made.store(), &out);
                command.args(["--set", "train.epochs=2000", "--resume"]);
                command
            })
        };
        let mut ranks = start("paused");
        wait_for_steps(&mut ranks, &out, 7);
        ranks.signal(paused, "STOP");
        let started = Instant::now();
        let others: Vec<usize> = (0..3).filter(|rank| *rank != paused).collect();
        while others.iter().any(|rank| !ranks.said(*rank).contains(&format!("rank {paused} on "))) {
            assert!(started.elapsed() < DEADLINE, "{}", ranks.all_said());
            thread::sleep(Duration::from_millis(10));
        }
        // The others have ended before it continues.
        thread::sleep(Duration::from_secs(3));
        ranks.signal(paused, "CONT");
        assert_eq!(ranks.wait(DEADLINE), [75; 3], "{}", ranks.all_said());
        for rank in 0..3 {
            let said = ranks.said(rank);
            let sentence = said.lines().last().unwrap();
            assert!(sentence.contains(" was lost at step ") && sentence.contains(", in phase "), "{sentence}");
            assert!(!said.contains("bug"), "{said}");
        }
        let n_steps = n_recorded(&out);
        wait_for_steps(&mut start("resumed"), &out, n_steps + 3);
    }
}

/// A failed rank reports its error, and all ranks stop with its message and exit code.
#[test]
fn an_error_of_one_rank_is_everybodys() {
    let made = Made::new();
    let out = made.path("wrong");
    let mut ranks = Ranks::start(&made.path("wrong-said"), 3, |rank| {
        let store = if rank == 1 { made.path("nowhere") } else { made.store.clone() };
        made.train(&["--graph", store.to_str().unwrap()], &out)
    });
    assert_eq!(ranks.wait(DEADLINE), [1, 1, 1], "{}", ranks.all_said());
    for rank in [0, 2] {
        let said = ranks.said(rank);
        assert!(said.contains("rank 1 on ") && said.contains(" stopped: ") && said.contains("nowhere"), "{said}");
    }
}

#[test]
fn ranks_that_do_not_fit_are_told_so() {
    let made = Made::new();
    let other = made.path("other");
    let options = ["--nodes", "1009", "--degree", "6", "--classes", "4", "--dim", "16", "--seed", "8"];
    kith([&["data", "generate", "power-law", "--out", other.to_str().unwrap()], &options[..]].concat());
    // A program with an additional byte at its end runs, but counts as another program.
    let program_of_another = made.path("kith");
    fs::copy(program(), &program_of_another).unwrap();
    let trainer_of_another = made.path("kith-trainer");
    let mut bytes = fs::read(program().with_file_name("kith-trainer")).unwrap();
    bytes.push(0);
    fs::write(&trainer_of_another, bytes).unwrap();
    fs::set_permissions(&trainer_of_another, fs::Permissions::from_mode(0o755)).unwrap();
    let libraries = library_folders();

    type Of<'a> = &'a dyn Fn(usize) -> Command;
    let cases: [(&str, Of<'_>, &str); 4] = [
        (
            "graphs",
            &|rank| {
                made.train(
                    &["--graph", if rank == 1 { other.to_str() } else { made.store.to_str() }.unwrap()],
                    &made.path("g"),
                )
            },
            "differ in the graph",
        ),
        (
            "run-files",
            &|rank| {
                let mut command = made.train(&made.store(), &made.path("r"));
                command.args([
                    "--set",
                    if rank == 1 { "optimizer.learning_rate=0.5" } else { "optimizer.learning_rate=0.25" },
                ]);
                command
            },
            "learning_rate = 0.5",
        ),
        (
            "slices",
            &|_| {
                let mut command = made.train(&made.store(), &made.path("s"));
                command.args(["--set", "train.slices=1"]);
                command
            },
            "2 ranks cannot share steps with train.slices = 1: set it to 2",
        ),
        (
            "programs",
            &|rank| {
                let command = made.train(&made.store(), &made.path("p"));
                if rank == 0 {
                    return command;
                }
                let mut other = Command::new(&program_of_another);
                other.args(command.get_args()).env("LD_LIBRARY_PATH", &libraries);
                other
            },
            "program",
        ),
    ];
    for (name, command, sentence) in cases {
        let mut ranks = Ranks::start(&made.path(&format!("{name}-said")), 2, command);
        let codes = ranks.wait(LIMIT);
        assert_eq!(codes, [1, 1], "{name}:\n{}", ranks.all_said());
        for rank in 0..2 {
            assert!(ranks.said(rank).contains(sentence), "{name}:\n{}", ranks.all_said());
        }
    }
}

/// Library path of the program, for a copy of it elsewhere.
fn library_folders() -> String {
    let root = crate::kith::root();
    format!("{0}/.libtorch/lib:{0}/.libtorch/cuda", root.display())
}

#[test]
fn ranks_that_come_late_twice_or_never() {
    let made = Made::new();
    let started = Instant::now();
    let late = made.path("late");
    let mut ranks = Ranks::start(&made.path("late-said"), 3, |rank| {
        let command = made.train(&made.store(), &late);
        if rank != 0 {
            return command;
        }
        // Rank 0 starts last.
        let mut sleeping = Command::new("sh");
        sleeping.args(["-c", "sleep 3; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
        sleeping
    });
    assert_eq!(ranks.wait(LIMIT), [0, 0, 0], "{}", ranks.all_said());
    assert!(started.elapsed() > Duration::from_secs(3));
    assert_eq!(steps(&late), steps(&made.whole));

    let dir = made.path("twice-said");
    let (port, mut ranks) = (free_port(), Ranks::none());
    let command = |rank| {
        let mut command = made.train(&made.store(), &made.path("twice"));
        seat(&mut command, rank, 3, port);
        command
    };
    (0..2).for_each(|rank| ranks.add(&dir, command(rank)));
    thread::sleep(Duration::from_secs(2));
    ranks.add(&dir, command(1));
    let codes = ranks.wait(LIMIT);
    let twice = ranks.said(2);
    assert!(codes[2] == 1 && twice.contains("rank 1"), "{}", ranks.all_said());
    // Rank 2 is never started.
    assert_eq!(codes[..2], [75, 75], "{}", ranks.all_said());
    for rank in [0, 1] {
        assert!(ranks.said(rank).lines().last().unwrap().contains("rank 2"), "{}", ranks.all_said());
    }
}

#[test]
fn a_port_in_use_and_half_an_environment_are_named() {
    let made = Made::new();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    // An earlier rank 0 that has not ended yet may hold the port.
    let mut command = made.train_waiting(&made.store(), &made.path("taken"), "1");
    seat(&mut command, 0, 2, port);
    let refused = finish_within(&mut command, LIMIT);
    let sentence = refused.sentence_with(75);
    assert!(sentence.contains(&port.to_string()) && sentence.contains("in use"), "{sentence}");

    let mut command = made.train(&made.store(), &made.path("half"));
    command.env("RANK", "3").env("WORLD_SIZE", "2").env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", "1");
    let refused = finish_within(&mut command, LIMIT);
    assert!(refused.code == Some(1) && refused.sentence().contains("RANK"), "{}", refused.stderr);
}

#[test]
fn short_tokens_are_refused() {
    let made = Made::new();
    let mut command = made.train(&made.store(), &made.path("short"));
    seat(&mut command, 0, 2, free_port());
    let refused = finish_within(command.env("KITH_TOKEN", "changeme"), LIMIT);
    let sentence = refused.sentence();
    assert!(sentence.contains("KITH_TOKEN has 8 bytes") && sentence.contains("16 or more"), "{sentence}");
    assert!(!refused.stderr.contains("changeme"), "{}", refused.stderr);
}

/// A rank freezes while it waits for others, and its launcher starts it again elsewhere: no rank is refused.
#[test]
fn slow_a_rank_that_froze_while_it_waited_is_replaced() {
    if !is_slow_asked_for() {
        return;
    }
    let made = Made::new();
    let (dir, out) = (made.path("frozen-said"), made.path("frozen"));
    let (port, mut ranks) = (free_port(), Ranks::none());
    let command = |rank| {
        let mut command = made.train_waiting(&made.store(), &out, "40");
        seat(&mut command, rank, 3, port);
        command
    };
    (0..2).for_each(|rank| ranks.add(&dir, command(rank)));
    thread::sleep(Duration::from_secs(2));
    ranks.signal(1, "STOP");
    // Before the heartbeat timeout of the frozen one.
    ranks.add(&dir, command(1));
    thread::sleep(Duration::from_secs(7));
    ranks.add(&dir, command(2));
    let started = Instant::now();
    while !(out.join("report.json").exists() && ranks.n_running() == 1) {
        assert!(started.elapsed() < LIMIT, "{}", ranks.all_said());
        thread::sleep(Duration::from_millis(10));
    }
    ranks.kill(1);
    assert_eq!(ranks.wait(LIMIT), [0, -1, 0, 0], "{}", ranks.all_said());
    assert_eq!(steps(&out), steps(&made.whole));
}

/// An unreadable checkpoint is skipped with a note; the run resumes from the one before.
#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let made = Made::new();
    let newest = newest_checkpoint(&made.whole).unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&newest, bytes).unwrap();
    let (expected, before) = ((steps(&made.whole), results(&made.whole)), fs::read(&newest).unwrap());
    let out = &made.whole;
    let mut ranks = Ranks::start(&made.path("damaged-said"), 2, |_| {
        let mut command = made.train(&made.store(), out);
        command.arg("--resume");
        command
    });
    assert_eq!(ranks.wait(LIMIT), [0, 0], "{}", ranks.all_said());
    assert!(ranks.said(0).contains("passed over a checkpoint"), "{}", ranks.said(0));
    assert_eq!((steps(out), results(out)), expected);
    assert_ne!(fs::read(&newest).unwrap(), before, "it was written again, whole");
}

/// Ranks share the GPU of this machine, if there is one: they train, and stop when one is killed.
#[test]
#[allow(clippy::print_stderr)]
fn ranks_on_one_gpu() {
    if kith(["devices", "--json"]).json()["cuda"]["devices"].is_null() {
        eprintln!("skipped: there is no CUDA device");
        return;
    }
    let made = Made::new();
    let losses = |run: &Path| -> Vec<f64> { steps(run).iter().map(|step| step["loss"].as_f64().unwrap()).collect() };
    let on_gpu = |out: &Path, more: &[&str]| {
        let mut command = made.train(&made.store(), out);
        command.args(["--device", "cuda"]).args(more).env("NCCL_SOCKET_IFNAME", "lo");
        command
    };
    let mut unasked = Ranks::start(&made.path("unasked-said"), 2, |_| on_gpu(&made.path("unasked"), &[]));
    assert_eq!(unasked.wait(LIMIT), [1, 1], "{}", unasked.all_said());
    assert!(unasked.said(0).contains("ranks 0, 1 share cuda:0 (GPU-"), "{}", unasked.said(0));
    for (n_ranks, name, more) in
        [(2, "gpu-2", &[][..]), (4, "gpu-4", &[]), (2, "gpu-exact", &["--set", "train.deterministic=true"][..])]
    {
        let out = made.path(name);
        let said = made.path(&format!("{name}-said"));
        let mut ranks = Ranks::start(&said, n_ranks, |_| on_gpu(&out, &[&["--share-device"], more].concat()));
        let codes = ranks.wait(LIMIT);
        assert!(codes.iter().all(|code| *code == 0), "{name}: {codes:?}\n{}", ranks.all_said());
        for (on_gpu, on_cpu) in losses(&out).iter().zip(losses(&made.whole)) {
            assert!((on_gpu - on_cpu).abs() <= 1e-3 * on_cpu, "{name}: {on_gpu} {on_cpu}");
        }
    }
    let out = made.path("gpu-killed");
    let mut ranks = Ranks::start(&made.path("gpu-killed-said"), 3, |_| {
        on_gpu(&out, &["--share-device", "--set", "train.epochs=5000"])
    });
    wait_for_steps(&mut ranks, &out, 10);
    ranks.kill(1);
    assert_eq!(ranks.wait(DEADLINE), [75, -1, 75], "{}", ranks.all_said());
    for rank in [0, 2] {
        assert!(ranks.said(rank).contains("rank 1 on "), "{}", ranks.said(rank));
    }
}
