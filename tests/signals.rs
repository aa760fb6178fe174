//! SIGTERM and Ctrl-C with real processes: a checkpoint of the last finished step, one exit code for all ranks, and the
//! same results after resuming.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    kith::{finish, finish_within, is_slow_asked_for, kith, newest_checkpoint, program},
    launch::{signal, wait_until},
    ranks::{Made, draws, has_draft, n_recorded, results, wait_for_steps},
    whole_path::{report, steps},
    worlds::Ranks,
};

const LIMIT: Duration = Duration::from_secs(55);

/// Loop state of the newest checkpoint.
fn state(run: &Path) -> Value {
    let bytes = fs::read(newest_checkpoint(run).expect("a checkpoint was written")).unwrap();
    let n_header = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + n_header]).unwrap();
    serde_json::from_str(header["__metadata__"]["kith"].as_str().unwrap()).unwrap()
}

/// Checks that the newest checkpoint is of the last finished step; true if its evaluation is due.
#[track_caller]
fn assert_nothing_is_lost(run: &Path) -> bool {
    let state = state(run);
    let is_due = !state["due"].is_null();
    assert_eq!(state["step"].as_u64().unwrap() - u64::from(is_due), n_recorded(run) as u64, "{state}");
    is_due
}

/// Ranks of a run, which is resumed if it exists.
fn start(made: &Made, name: &str, attempt: u64, n_ranks: usize, more: &[&str]) -> Ranks {
    let out = made.path(name);
    Ranks::start(&made.path(&format!("{name}-said-{attempt}")), n_ranks, |_| {
        let mut command = made.train_patiently(&made.store(), &out);
        command.args(["--resume", "--heartbeat-timeout", "60"]).args(more);
        command
    })
}

/// Trains to the end and compares the files with those of an undisturbed run.
#[track_caller]
fn assert_goes_on(made: &Made, name: &str, n_ranks: usize) {
    let out = made.path(name);
    let mut ranks = start(made, name, 99, n_ranks, &[]);
    let codes = ranks.wait(LIMIT);
    assert!(codes.iter().all(|code| *code == 0), "{codes:?}\n{}", ranks.all_said());
    assert_eq!((steps(&out), results(&out)), (steps(&made.whole), results(&made.whole)), "{name}");
}

fn stops_all(made: &Made, name: &str, code: i32, rank: usize) {
    let (out, run) = (made.path(&format!("{name}-{rank}")), format!("{name}-{rank}"));
    let mut ranks = start(made, &run, 0, 3, &[]);
    wait_for_steps(&mut ranks, &out, 8);
    ranks.signal(rank, name);
    assert_eq!(ranks.wait(LIMIT), [code; 3], "{}", ranks.all_said());
    assert_nothing_is_lost(&out);
    assert!(n_recorded(&out) < steps(&made.whole).len(), "it was over before it was disturbed");
    let n_done = state(&out)["step"].as_u64().unwrap();
    let sentence = format!("stopped by SIG{name} after {n_done} steps");
    for rank in 0..3 {
        let said = ranks.said(rank);
        assert!(said.lines().last().unwrap().starts_with(&sentence), "{said}");
        assert!(!said.contains("error: "), "{said}");
    }
    assert!(ranks.said(0).ends_with(": go on from its checkpoint with --resume\n"), "{}", ranks.said(0));
    assert_goes_on(made, &run, 2);
}

#[test]
fn a_signal_to_one_rank_stops_all_with_a_checkpoint() {
    let made = Made::of_epochs(40);
    stops_all(&made, "TERM", 75, 1);
    stops_all(&made, "INT", 130, 0);
}

#[test]
fn slow_a_signal_to_any_rank_stops_all_with_a_checkpoint() {
    if is_slow_asked_for() {
        let made = Made::of_epochs(40);
        for rank in 0..3 {
            stops_all(&made, "TERM", 75, rank);
            stops_all(&made, "INT", 130, rank);
        }
    }
}

/// Sends signals at random moments until the run is done; returns the number of due evaluations.
fn stop_and_resume(made: &Made, name: &str, n_attempts: u64, mut draw: impl FnMut(u64) -> u64) -> u64 {
    let out = made.path(name);
    let mut n_due = 0;
    for attempt in 0..n_attempts {
        let n_ranks = 1 + draw(3) as usize;
        let victim = draw(n_ranks as u64) as usize;
        let (signal, code) = if draw(3) == 0 { ("INT", 130) } else { ("TERM", 75) };
        let mut ranks = start(made, name, attempt, n_ranks, &[]);
        let n_steps = n_recorded(&out) + 3 + draw(20) as usize;
        let (waits_for_draft, moment) = (draw(3) == 0, Duration::from_micros(draw(4000)));
        let started = Instant::now();
        while started.elapsed() < LIMIT && n_recorded(&out) < n_steps && !ranks.have_ended() {
            if waits_for_draft && n_recorded(&out) + 15 > n_steps && has_draft(&out) {
                break;
            }
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(moment); // During a step, an evaluation or a checkpoint.
        let has_ended = ranks.have_ended();
        if !has_ended {
            ranks.signal(victim, signal);
            // Job managers signal every process, and sometimes twice.
            for rank in 0..n_ranks * usize::from(signal == "TERM" && draw(2) == 0) {
                ranks.signal(rank, "TERM");
            }
        }
        let codes = ranks.wait(LIMIT);
        if codes.iter().all(|code| *code == 0) {
            break;
        }
        assert!(codes.iter().all(|found| *found == code), "{codes:?} after {signal} to {victim}\n{}", ranks.all_said());
        n_due += u64::from(assert_nothing_is_lost(&out));
    }
    assert_goes_on(made, name, 3);
    n_due
}

#[test]
fn runs_that_are_stopped_at_any_moment_go_on_without_a_trace() {
    stop_and_resume(&Made::of_epochs(30), "stopped", 4, draws(11));
}

#[test]
fn slow_runs_that_are_stopped_often_go_on_without_a_trace() {
    if !is_slow_asked_for() {
        return;
    }
    let made = Made::of_epochs(60);
    let n_due: u64 = (1..6).map(|key| stop_and_resume(&made, &format!("stopped-{key}"), 12, draws(key))).sum();
    assert!(n_due > 0, "no signal came before or in an evaluation");
}

/// A frozen rank keeps a step from ending within the grace period: exit code 75, and the last checkpoint.
#[test]
fn a_step_longer_than_the_grace_leaves_the_last_checkpoint() {
    let made = Made::of_epochs(40);
    let out = made.path("long");
    let mut ranks = start(&made, "long", 0, 3, &["--grace", "1"]);
    wait_for_steps(&mut ranks, &out, 8);
    wait_until(LIMIT, || newest_checkpoint(&out).is_some());
    ranks.signal(2, "STOP");
    thread::sleep(Duration::from_millis(100));
    ranks.signal(0, "TERM");
    let said = "stopped after --grace, in the middle of a step: the last checkpoint stays";
    wait_until(LIMIT, || ranks.said(0).contains(said));
    ranks.signal(2, "CONT");
    assert_eq!(ranks.wait(LIMIT), [75; 3], "{}", ranks.all_said());
    assert!(ranks.said(0).contains(said), "{}", ranks.said(0));
    assert!(state(&out)["step"].as_u64().unwrap() <= n_recorded(&out) as u64);
    assert_goes_on(&made, "long", 2);
}

/// A second SIGTERM is ignored; a second Ctrl-C ends a rank at once, before the grace period ends.
#[test]
fn a_second_ctrl_c_ends_a_rank_at_once() {
    let made = Made::of_epochs(40);
    let out = made.path("twice");
    let mut ranks = start(&made, "twice", 0, 3, &["--grace", "500"]);
    wait_for_steps(&mut ranks, &out, 8);
    ranks.signal(2, "STOP");
    thread::sleep(Duration::from_millis(100));
    for again in ["INT", "TERM"] {
        ranks.signal(0, again);
        wait_until(LIMIT, || ranks.said(0).contains("SIGINT: ending the step, for a checkpoint within 500 s"));
        thread::sleep(Duration::from_millis(100));
        assert!(!ranks.said(0).contains("at once"), "{}", ranks.said(0));
    }
    ranks.signal(0, "INT");
    wait_until(LIMIT, || ranks.said(0).contains("stopped at once: the last checkpoint stays"));
    ranks.signal(2, "CONT");
    assert_eq!(ranks.wait(LIMIT), [130, 75, 75], "{}", ranks.all_said());
    assert_goes_on(&made, "twice", 2);
}

/// A process that waits for others, or opens its graph, has nothing to save.
#[test]
fn before_the_first_step_a_signal_ends_a_rank_at_once() {
    let made = Made::of_epochs(2);
    let mut ranks = Ranks::none();
    let mut command = made.train_patiently(&made.store(), &made.path("early"));
    crate::worlds::seat(&mut command, 0, 2, crate::worlds::free_port());
    ranks.add(&made.path("early-said"), command);
    wait_until(LIMIT, || ranks.said(0).contains("waiting for 2 ranks"));
    ranks.signal(0, "TERM");
    assert_eq!(ranks.wait(Duration::from_secs(20)), [75]);
    assert!(ranks.said(0).ends_with("stopped by SIGTERM\n"), "{}", ranks.said(0));
}

/// A store for runs of one process that take seconds.
fn store(dir: &Path) -> String {
    let store = dir.join("store").to_str().unwrap().to_owned();
    let options = ["--nodes", "1009", "--degree", "6", "--classes", "4", "--dim", "16", "--seed", "7"];
    kith([&["data", "generate", "power-law", "--out", &store], &options[..]].concat());
    store
}

fn train(store: &str, out: &str, n_epochs: u32) -> Command {
    let mut command = Command::new(program());
    command.args(["train", "partition-graph/supergat-mx", "--graph", store, "--out", out, "--resume"]);
    let epochs = format!("train.epochs={n_epochs}");
    let set = ["train.mode=mini-batch", "train.slices=2", "train.batch_size=20", "early_stop=off", &epochs];
    command.args(set.iter().flat_map(|assignment| ["--set", assignment])).env("RAYON_NUM_THREADS", "1");
    command
}

fn spawn(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[track_caller]
fn code_of(mut child: Child) -> Option<i32> {
    wait_until(LIMIT, || child.try_wait().unwrap().is_some());
    let code = child.try_wait().unwrap().map(|status| status.code().unwrap_or(-1));
    let _ = child.kill();
    let _ = child.wait();
    code
}

/// Presets save a checkpoint every 50 epochs: a signal saves the epochs since.
#[test]
fn a_run_with_a_presets_defaults_loses_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    let store = store(temp.path());
    let whole = finish(&mut train(&store, path("whole").to_str().unwrap(), 6));
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    let out = path("stopped");
    let child = spawn(train(&store, out.to_str().unwrap(), 6));
    wait_until(LIMIT, || n_recorded(&out) >= 5);
    signal("TERM", child.id());
    assert_eq!(code_of(child), Some(75));
    assert_nothing_is_lost(&out);
    assert!(n_recorded(&out) < n_recorded(&path("whole")), "it was over before");
    let resumed = finish(&mut train(&store, out.to_str().unwrap(), 6));
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    assert_eq!((steps(&out), report(&out)), (steps(&path("whole")), report(&path("whole"))));
}

/// Runs of several seeds: the current one is saved, earlier ones are done, later ones start after resuming.
#[test]
fn runs_of_several_keys_go_on() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    let store = store(temp.path());
    let train = |out: &str| {
        let mut command = train(&store, path(out).to_str().unwrap(), 3);
        command.args(["--seeds", "42..45"]);
        command
    };
    assert_eq!(finish(&mut train("whole")).code, Some(0));
    let child = spawn(train("stopped"));
    wait_until(LIMIT, || n_recorded(&path("stopped/run-43")) >= 3);
    signal("TERM", child.id());
    assert_eq!(code_of(child), Some(75));
    assert!(path("stopped/run-42/report.json").exists() && !path("stopped/run-44").exists());
    assert_nothing_is_lost(&path("stopped/run-43"));
    let resumed = finish(&mut train("stopped"));
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    for run in ["run-42", "run-43", "run-44"] {
        let (found, expected) = (path("stopped").join(run), path("whole").join(run));
        assert_eq!((steps(&found), report(&found)), (steps(&expected), report(&expected)), "{run}");
    }
}

fn n_entries(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, |entries| entries.count())
}

/// A run at a URL: its last checkpoint is there, and its private temporary folder is removed in any case.
#[test]
fn a_run_at_a_url_is_kept_and_leaves_no_folder() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    let (store, tmp) = (store(temp.path()), path("tmp"));
    fs::create_dir(&tmp).unwrap();
    fs::create_dir(path("bucket")).unwrap();
    let url = |name: &str| format!("file://{}", path("bucket").join(name).display());
    let train = |out: &str, n_epochs: u32| {
        let mut command = train(&store, out, n_epochs);
        command.env("TMPDIR", &tmp).env("XDG_CACHE_HOME", path("cache"));
        command
    };
    assert_eq!(finish(&mut train(path("whole").to_str().unwrap(), 6)).code, Some(0));
    let child = spawn(train(&url("run"), 6));
    let folder = || fs::read_dir(&tmp).unwrap().next().map(|entry| entry.unwrap().path());
    wait_until(LIMIT, || folder().is_some_and(|folder| n_recorded(&folder.join("run")) >= 5));
    assert_eq!(fs::metadata(folder().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    signal("TERM", child.id());
    assert_eq!(code_of(child), Some(75));
    assert_eq!(n_entries(&tmp), 0, "after SIGTERM");
    kith(["data", "pull", &url("run"), path("pulled").to_str().unwrap()]);
    assert_nothing_is_lost(&path("pulled"));
    let resumed = finish(&mut train(&url("run"), 6));
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    kith(["data", "pull", &url("run"), path("done").to_str().unwrap()]);
    assert_eq!((steps(&path("done")), report(&path("done"))), (steps(&path("whole")), report(&path("whole"))));
    assert_eq!(n_entries(&tmp), 0, "after the end");

    // An error, and two Ctrl-C.
    let mut wrong = train(&url("wrong"), 6);
    wrong.args(["--set", "optimizer.learning_rate=1e30"]);
    let finished = finish(&mut wrong);
    assert!(finished.sentence().contains("the loss is not finite"), "{}", finished.stderr);
    assert_eq!(n_entries(&tmp), 0, "after an error");
    let mut command = train(&url("twice"), 4000);
    command.args(["--grace", "0"]);
    let child = spawn(command);
    wait_until(LIMIT, || folder().is_some_and(|folder| n_recorded(&folder.join("run")) >= 2));
    signal("INT", child.id());
    assert_eq!(code_of(child), Some(130));
    assert_eq!(n_entries(&tmp), 0, "after Ctrl-C without a grace");
}

/// Stopped commands leave no incomplete output.
#[test]
fn stopped_commands_leave_nothing_behind() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    let store = path("store");
    let generate = |nodes: &str, out: &str| {
        let mut command = Command::new(program());
        command.args([
            "data",
            "generate",
            "power-law",
            "--degree",
            "10",
            "--dim",
            "64",
            "--nodes",
            nodes,
            "--out",
            out,
        ]);
        command
    };
    assert_eq!(finish(&mut generate("20000", &store)).code, Some(0));
    let names = || {
        let mut names: Vec<_> = fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["store"]);
    for (name, code) in [("TERM", 75), ("INT", 130)] {
        let child = spawn(generate("3000000", &path("large")));
        wait_until(LIMIT, || temp.path().join("large.draft").exists());
        thread::sleep(Duration::from_millis(50));
        signal(name, child.id());
        assert_eq!(code_of(child), Some(code), "{name}");
        assert_eq!(names(), ["store"], "{name}");
    }
    // A hyperparameter search keeps complete trials only.
    let mut tune = Command::new(program());
    tune.args(["tune", "partition-graph/gcn", "--graph", &store, "--out", &path("tuned"), "--trials", "1000"]);
    let child = spawn(tune);
    wait_until(LIMIT, || n_entries(&temp.path().join("tuned")) > 0);
    thread::sleep(Duration::from_millis(200));
    signal("INT", child.id());
    assert_eq!(code_of(child), Some(130));
    let tuned = temp.path().join("tuned");
    let drafts = fs::read_dir(&tuned)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".draft"));
    assert_eq!(drafts.count(), 0);
}

/// A checkpoint with a changed loop state is refused before training.
#[test]
fn a_changed_loop_state_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let store = store(temp.path());
    let out = temp.path().join("run");
    let mut once = train(&store, out.to_str().unwrap(), 1);
    assert_eq!(finish(once.args(["--set", "train.checkpoints_kept=1"])).code, Some(0));
    let path = newest_checkpoint(&out).unwrap();
    let whole = fs::read(&path).unwrap();
    let step = state(&out)["step"].as_u64().unwrap();
    for (from, to) in [
        (format!("\\\"step\\\":{step}"), format!("\\\"step\\\":{}", step - 1)),
        ("\\\"epoch\\\":1".to_owned(), "\\\"epoch\\\":0".to_owned()),
        ("learning_rate = 0.0".to_owned(), "learning_rate = 0.9".to_owned()),
        ("\\\"best\\\":[0".to_owned(), "\\\"best\\\":[1".to_owned()),
    ] {
        let place = whole.windows(from.len()).position(|window| window == from.as_bytes()).expect(&from);
        assert_eq!(from.len(), to.len(), "the number has as many digits");
        let mut edited = whole.clone();
        edited[place..place + to.len()].copy_from_slice(to.as_bytes());
        fs::write(&path, edited).unwrap();
        let finished = finish_within(&mut train(&store, out.to_str().unwrap(), 2), LIMIT);
        assert!(finished.sentence().ends_with("damaged: the file does not have its checksum"), "{}", finished.stderr);
    }
    fs::write(&path, whole).unwrap();
    assert_eq!(finish(&mut train(&store, out.to_str().unwrap(), 2)).code, Some(0));
}

/// A crash of the host after a reported checkpoint must not lose its folder: `strace` shows the order of syncs.
#[test]
#[allow(clippy::print_stderr)]
fn a_runs_folder_is_synced_after_checkpoints_is_made() {
    if Command::new("strace").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no strace");
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let (store, out, log) = (store(temp.path()), temp.path().join("run"), temp.path().join("log"));
    let train = train(&store, out.to_str().unwrap(), 1);
    let mut traced = Command::new("strace");
    traced.args(["-f", "-y", "-e", "trace=mkdir,mkdirat,fsync,rename,renameat,renameat2", "-o"]).arg(&log);
    traced.arg(train.get_program()).args(train.get_args()).env("RAYON_NUM_THREADS", "1");
    let finished = finish_within(&mut traced, LIMIT);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let log = fs::read_to_string(&log).unwrap();
    let place = |of: &dyn Fn(&str) -> bool, from: usize| log.lines().skip(from).position(of).map(|place| place + from);
    let (run, made) = (out.display().to_string(), out.join("checkpoints").display().to_string());
    let made = place(&|line| line.contains("mkdir") && line.contains(&format!("{made}\"")), 0).expect("it is made");
    let synced =
        place(&|line| line.contains("fsync(") && line.contains(&format!("<{run}>")), made).expect("it is synced");
    let published =
        place(&|line| line.contains("rename") && line.contains(".safetensors"), made).expect("a checkpoint");
    assert!(synced < published, "{log}");
    let parent = format!("<{}>", temp.path().display());
    let of_run = place(&|line| line.contains("mkdir") && line.contains(&format!("{run}\"")), 0).expect("it is made");
    assert!(place(&|line| line.contains("fsync(") && line.contains(&parent), of_run).is_some(), "{log}");
}
