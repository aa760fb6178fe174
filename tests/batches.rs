//! Mini-batch training through the real program: killed, on other numbers of threads, out of disk, and with invalid
//! requests.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    kith::{Finished, finish, is_slow_asked_for, kith, newest_checkpoint, program, real_files, run_kith},
    memory::needed_mib,
    whole_path::{report, steps},
};

const LIMIT: Duration = Duration::from_secs(60);

/// A store of 600 nodes, 60 of them for training.
fn make_store(dir: &Path) -> String {
    let store = dir.join("graph").to_str().unwrap().to_owned();
    let options = ["--nodes-per-class", "200", "--classes", "3", "--homophily", "0.8", "--seed", "7"];
    kith([&["data", "generate", "partition-graph", "--out", &store], &options[..]].concat());
    store
}

/// `kith train` with small mini-batches.
fn train(store: &str, out: &Path, epochs: u64, more: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(["train", "partition-graph/supergat-mx", "--graph", store]).arg("--out").arg(out);
    let set = ["train.mode=mini-batch", "train.fanouts=[5, 4]", "train.batch_size=25", "train.edge_seeds=40"];
    let set = set.into_iter().chain(["train.slices=2", "train.checkpoint_every=2", "early_stop=off"]);
    command.args(set.flat_map(|set| ["--set", set]));
    command.args(["--set", &format!("train.epochs={epochs}")]).args(more);
    command
}

#[track_caller]
fn succeed(command: &mut Command) -> Finished {
    let finished = finish(command);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    finished
}

/// Waits for a condition while a child lives, up to a time limit.
#[track_caller]
fn wait_until(child: &mut Child, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(child.try_wait().unwrap().is_none(), "the run ended too early");
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("waited longer than {LIMIT:?}");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn killed_batches_go_on_unseen_on_any_number_of_threads() {
    let temp = tempfile::tempdir().unwrap();
    let store = make_store(temp.path());
    let (whole, killed) = (temp.path().join("whole"), temp.path().join("killed"));
    succeed(train(&store, &whole, 40, &[]).env("RAYON_NUM_THREADS", "1"));
    assert_eq!(steps(&whole).len(), 40 * 3);

    let mut command = train(&store, &killed, 40, &[]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until(&mut child, || newest_checkpoint(&killed).is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    let other = finish(&mut train(&store, &killed, 40, &["--resume", "--set", "train.slices=3"]));
    assert!(other.sentence().ends_with("it says `slices = 2` where this one says `slices = 3`"), "{}", other.stderr);
    succeed(train(&store, &killed, 40, &["--resume"]).env("RAYON_NUM_THREADS", "3"));
    assert_eq!((steps(&killed), report(&killed)), (steps(&whole), report(&whole)));
}

/// Activations between layers are kept in a file, and the disk is full.
#[test]
fn a_full_disk_stops_the_run_and_loses_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let store = temp.path().join("graph").to_str().unwrap().to_owned();
    let args = "data generate power-law --nodes 60000 --edges 240000 --dim 8 --classes 3 --homophily 0.8 \
                --split 0.001/0.5/0.499 --out";
    kith(args.split_whitespace().chain([&*store]));
    let (whole, full) = (temp.path().join("whole"), temp.path().join("full"));
    succeed(&mut train(&store, &whole, 8, &[]));
    let refused = finish(&mut train(&store, &full, 4, &["--memory", "1MiB"]));
    let least = format!("{}MiB", needed_mib(refused.sentence()));
    succeed(&mut train(&store, &full, 4, &["--memory", &least]));
    let names = || {
        let mut names: Vec<_> = fs::read_dir(&full).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let left = names();
    assert_eq!(left, ["checkpoints", "report.json", "run.toml", "steps.jsonl"]);
    assert_eq!(steps(&full), steps(&whole)[..12], "a file changes no bit");

    // Files are limited to 128 blocks (64 KiB or 128 KiB): 60,000 nodes × 64 floats are larger.
    let checkpoint = fs::read(newest_checkpoint(&full).unwrap()).unwrap();
    assert!(checkpoint.len() < 60 << 10 && fs::metadata(full.join("steps.jsonl")).unwrap().len() < 30 << 10);
    let resume = train(&store, &full, 8, &["--memory", &least, "--resume"]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 128; exec \"$@\"", "sh"]).arg(resume.get_program());
    let stopped = finish(limited.args(resume.get_args()));
    assert!(stopped.sentence().contains("File too large"), "{}", stopped.stderr);
    assert_eq!(fs::read(newest_checkpoint(&full).unwrap()).unwrap(), checkpoint);
    assert_eq!(names(), left, "nothing is left of the scratch file");

    succeed(&mut train(&store, &full, 8, &["--resume"]));
    assert_eq!((steps(&full), report(&full)), (steps(&whole), report(&whole)));
}

#[test]
fn batches_that_cannot_be_meant() {
    let temp = tempfile::tempdir().unwrap();
    let store = make_store(temp.path());
    let stats = kith(["data", "stats", &store, "--json"]).json();
    let n_seeds = stats["splits"]["fixed"]["train"].as_u64().unwrap();
    let refused = |set: &str| {
        let args = ["train", "partition-graph/supergat-mx", "--graph", &store, "--set", "train.mode=mini-batch"];
        run_kith([&args[..], &["--set", set]].concat()).sentence().to_owned()
    };
    assert!(refused("train.fanouts=[0]").contains("`train.fanouts` must be"), "{}", refused("train.fanouts=[0]"));
    let sentence = refused("train.fanouts=[5, 5, 5]");
    assert!(sentence.contains("`train.fanouts`") && sentence.contains('3') && sentence.contains('2'), "{sentence}");
    let sentence = refused(&format!("train.batch_size={}", n_seeds + 1));
    assert!(sentence.contains(&format!("more than the {n_seeds} seed nodes")), "{sentence}");
    let sentence = refused("train.edge_seeds=601");
    assert_eq!(sentence, "edge_seeds = 601 is more than the graph's 600 nodes: use at most that");
    assert!(refused("train.slices=0").contains("`train.slices` must be"));

    // A damaged split column: with an unknown part, without training nodes, and shorter than the graph.
    let column = Path::new(&store).join("split.fixed.u8");
    let good = fs::read(&column).unwrap();
    let mut bytes = good.clone();
    bytes[17] = 9;
    fs::write(&column, &bytes).unwrap();
    let sentence = refused("train.slices=1");
    assert!(sentence.contains("split.fixed.u8: block 0 of column split.fixed (bytes 0 to 600)"), "{sentence}");
    // Without checksums, impossible values are found when they are used.
    let unchecked = || {
        let args = ["train", "partition-graph/supergat-mx", "--graph", &store, "--set", "train.mode=mini-batch"];
        run_kith([&args[..], &["--verify", "off"]].concat()).sentence().to_owned()
    };
    let sentence = unchecked();
    assert!(sentence.starts_with("store damaged at split.fixed, row 17: "), "{sentence}");
    fs::write(&column, good.iter().map(|part| if *part == 1 { 0 } else { *part }).collect::<Vec<u8>>()).unwrap();
    assert_eq!(unchecked(), "the split \"fixed\" has no train nodes");
    fs::write(&column, [&good[..], &[1; 8]].concat()).unwrap();
    assert!(refused("train.slices=1").contains("split.fixed"), "{}", refused("train.slices=1"));
}

#[test]
fn replays_that_cannot_be() {
    let temp = tempfile::tempdir().unwrap();
    let store = make_store(temp.path());
    let (run, full) = (temp.path().join("run"), temp.path().join("full"));
    succeed(&mut train(&store, &run, 2, &[]));
    let replay =
        |run: &Path, more: &[&str]| run_kith([&["replay", run.to_str().unwrap(), "--graph", &store], more].concat());
    let sentence = |run: &Path, more: &[&str]| replay(run, more).sentence().to_owned();
    assert!(sentence(&run, &["--step", "6"]).ends_with("steps.jsonl: step 6 was not recorded, the last one is 5"));
    let expected = "there is no slice 2: steps of this run have slices 0 to 1";
    assert_eq!(sentence(&run, &["--step", "5", "--slice", "2"]), expected);
    assert!(sentence(&run, &["--step", "5", "--seed", "1"]).ends_with("a checkpoint of seed 42, not 1"));

    // Without a checkpoint, the run file and the options describe the run.
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    assert!(sentence(&run, &["--step", "5"]).ends_with("no checkpoint yet: give its --seed"));
    assert!(replay(&run, &["--step", "5", "--seed", "42"]).stdout.ends_with("of seed 42: as recorded\n"));
    let other = sentence(&run, &["--step", "5", "--seed", "43"]);
    assert!(other.starts_with("step 5, slice 0 is not as recorded: its digest is "), "{other}");

    let args = ["train", "partition-graph/gat", "--graph", &store, "--out", full.to_str().unwrap()];
    kith([&args[..], &["--set", "train.epochs=1"]].concat());
    assert!(sentence(&full, &["--step", "0"]).ends_with("there is no batch to replay"));
    assert!(sentence(temp.path(), &["--step", "0"]).contains("run.toml: No such file"));
}

/// Resident memory of a process in KiB.
fn resident(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a live process has memory");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Resident memory after 100 epochs and after 490 of 500.
fn stays_flat(command: &mut Command, out: &Path, steps_per_epoch: usize) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let n_epochs = || {
        let text = fs::read(out.join("steps.jsonl")).unwrap_or_default();
        text.iter().filter(|byte| **byte == b'\n').count() / steps_per_epoch
    };
    wait_until(&mut child, || n_epochs() >= 100);
    let early = resident(&child);
    wait_until(&mut child, || n_epochs() >= 470);
    let late = resident(&child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(late < early + (4 << 10), "{early} KiB after 100 epochs, {late} KiB after 470");
}

#[test]
fn memory_stays_flat_over_500_epochs() {
    let temp = tempfile::tempdir().unwrap();
    let store = make_store(temp.path());
    let out = temp.path().join("run");
    stays_flat(&mut train(&store, &out, 500, &["--set", "train.checkpoint_every=500"]), &out, 3);
}

fn import_cora(dir: &Path) -> Option<PathBuf> {
    let raw = real_files("cora")?;
    let store = dir.join("cora");
    kith(["data", "import", "cora", "--from", raw.to_str().unwrap(), "--out", store.to_str().unwrap()]);
    Some(store)
}

#[test]
fn slow_memory_stays_flat_over_500_epochs_of_cora() {
    if !is_slow_asked_for() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let Some(store) = import_cora(temp.path()) else { return };
    let out = temp.path().join("run");
    let mut command = Command::new(program());
    command.args(["train", "cora/supergat-mx", "--set", "train.mode=mini-batch", "--set", "train.epochs=500"]);
    command.args(["--set", "train.checkpoint_every=500", "--set", "early_stop=off"]);
    stays_flat(command.arg("--graph").arg(&store).arg("--out").arg(&out), &out, 1);
}

/// With all neighbors of all nodes, mini-batches equal the full batch, including dropout and negatives.
#[test]
fn full_fanout_is_full_batch_on_cora() {
    let temp = tempfile::tempdir().unwrap();
    let Some(store) = import_cora(temp.path()) else { return };
    for model in ["supergat-mx", "supergat-sd", "gat", "gcn", "sage", "mlp"] {
        let losses = |name: &str, more: &[&str]| {
            let out = temp.path().join(format!("{model}-{name}"));
            let mut command = Command::new(program());
            command.args(["train", &format!("cora/{model}"), "--set", "train.epochs=3"]).args(more);
            succeed(command.arg("--graph").arg(&store).arg("--out").arg(&out));
            steps(&out).into_iter().map(|step| (step["loss"].clone(), step["valid_loss"].clone())).collect::<Vec<_>>()
        };
        let full = losses("full", &[]);
        let set = ["train.mode=mini-batch", "train.fanouts=all", "train.edge_seeds=2708"];
        let batches = losses("batches", &set.map(|set| ["--set", set]).concat());
        assert_eq!((full.len(), batches.len()), (3, 3));
        let number = |value: &Value| value.as_f64().unwrap();
        for ((loss, valid), (expected, expected_valid)) in batches.iter().zip(&full) {
            for (found, expected) in [(loss, expected), (valid, expected_valid)].map(|(a, b)| (number(a), number(b))) {
                assert!((found - expected).abs() <= 1e-6 * expected, "{model}: {found} {expected}");
            }
        }
    }
}
