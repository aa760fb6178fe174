//! The Slurm script, with a fake `srun` and `scontrol` that start its steps on this host: a real run of two servers and
//! two ranks, its restart after a loss, and complete cleanup.

use std::{
    fs::{self, File},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    kith::{is_slow_asked_for, kith, program, root},
    whole_path::{report, steps},
    worlds::free_port,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Fake `srun`: starts tasks here with Slurm's environment, passes on SIGTERM, and exits with the highest code. Unknown
/// options are errors: a new one is looked up in srun's manual first.
const SRUN: &str = r#"#!/usr/bin/env bash
while [[ ${1:-} == -* ]]; do
    case $1 in
    --label | --overlap | --kill-on-bad-exit=0) shift ;;
    --nodelist) hosts=$2 && shift 2 ;;
    --ntasks) tasks=$2 && shift 2 ;;
    --nodes | --job-name | --wait) shift 2 ;;
    *) echo "srun: unrecognized option $1" >&2 && exit 1 ;;
    esac
done
export SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$tasks SLURM_STEP_NODELIST=$hosts
pids=()
trap 'kill -TERM "${pids[@]}" 2>/dev/null' TERM
for ((task = 0; task < tasks; task++)); do
    SLURM_PROCID=$task SLURM_LOCALID=0 "$@" &
    pids+=($!)
    echo "$!" >"$STEPS/${1##*/}-${hosts##*.}-$task"
done
worst=0
for pid in "${pids[@]}"; do
    while :; do
        wait "$pid"
        code=$?
        kill -0 "$pid" 2>/dev/null || break # A signal for us ended the wait, not the task.
    done
    ((code <= worst)) || worst=$code
done
exit $worst
"#;

const SCONTROL: &str = r#"#!/usr/bin/env bash
case $* in
"show hostnames 127.0.0.[1-4]") printf '127.0.0.%s\n' 1 2 3 4 ;;
"requeue 4711") touch "$STEPS/requeued" ;;
*) echo "scontrol: unexpected: $*" >&2 && exit 1 ;;
esac
"#;

/// A store, a partitioned graph of three shards, and a run on the store.
struct Made {
    temp: tempfile::TempDir,
}

impl Made {
    fn new() -> Made {
        let made = Made { temp: tempfile::tempdir().unwrap() };
        let path = |name: &str| made.path(name).to_str().unwrap().to_owned();
        let options = ["--nodes", "2000", "--degree", "8", "--classes", "4", "--dim", "16", "--seed", "7"];
        kith([&["data", "generate", "power-law", "--out", &path("store")], &options[..]].concat());
        kith(["partition", &path("store"), "--shards", "3", "--method", "hash", "--out", &path("cluster")]);
        let alone = ["--graph", &path("store"), "--out", &path("alone")].map(String::from);
        kith(["train"].into_iter().chain(RUN).map(String::from).chain(alone));
        for (name, text) in [("bin/srun", SRUN), ("bin/scontrol", SCONTROL)] {
            let file = made.path(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for name in ["kith", "kith-sampler"] {
            std::os::unix::fs::symlink(program().with_file_name(name), made.path("bin").join(name)).unwrap();
        }
        fs::create_dir(made.path("submitted")).unwrap();
        made
    }

    /// Folders with certificates and tokens.
    fn secrets(&self) -> Vec<PathBuf> {
        fs::read_dir(self.path("submitted")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Submits the job: four hosts, two of which serve.
    fn submit(&self, run: &[&str], n_requeues: u32) -> Job {
        let notes = self.path("steps");
        let _ = fs::remove_dir_all(&notes); // From the previous job.
        fs::create_dir(&notes).unwrap();
        let said = self.path("said");
        let file = File::create(&said).unwrap();
        let mut command = Command::new("bash");
        command.arg(root().join("deploy/slurm.sh")).args(run);
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        command.env("PATH", path).env("STEPS", &notes).env("RAYON_NUM_THREADS", "1");
        command.env("KITH_CLUSTER", self.path("cluster")).env("KITH_OUT", self.path("run")).env("KITH_SAMPLERS", "2");
        command.env("KITH_PORT", three_free_ports().to_string());
        let job = [("ID", "4711"), ("NODELIST", "127.0.0.[1-4]"), ("NUM_NODES", "4")];
        command.envs(job.map(|(name, value)| (format!("SLURM_JOB_{name}"), value)));
        command.env("SLURM_SUBMIT_DIR", self.path("submitted"));
        command.env("SLURM_NTASKS_PER_NODE", "1").env("KITH_REQUEUES", n_requeues.to_string());
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).process_group(0);
        Job { child: command.spawn().expect("bash starts"), notes, said }
    }

    fn n_steps(&self) -> usize {
        fs::read_to_string(self.path("run/steps.jsonl")).map_or(0, |text| text.lines().count())
    }

    #[track_caller]
    fn assert_same(&self) {
        assert_eq!(steps(&self.path("run")), steps(&self.path("alone")));
        let results = |name: &str| report(&self.path(name))["results"].clone();
        assert_eq!(results("run"), results("alone"));
    }
}

const RUN: [&str; 17] = [
    "partition-graph/supergat-mx",
    "--set",
    "train.mode=mini-batch",
    "--set",
    "train.fanouts=[5, 5]",
    "--set",
    "train.batch_size=100",
    "--set",
    "train.epochs=6",
    "--set",
    "train.evaluate_every=3",
    "--set",
    "train.checkpoint_every=1",
    "--set",
    "train.slices=2",
    "--set",
    "early_stop=off",
];

/// The first of three consecutive free ports.
fn three_free_ports() -> u16 {
    let is_free = |port| std::net::TcpListener::bind(("0.0.0.0", port)).is_ok();
    for _ in 0..100 {
        let port = free_port();
        if port < u16::MAX - 2 && (port..port + 3).all(is_free) {
            return port;
        }
    }
    panic!("no three ports in a row are free");
}

/// The script and all its processes, which end with the test.
struct Job {
    child: Child,
    notes: PathBuf,
    said: PathBuf,
}

impl Job {
    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Its exit code; all of its processes must have ended, too.
    #[track_caller]
    fn wait(&mut self) -> i32 {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < LIMIT, "the job did not end:\n{}", self.said());
            thread::sleep(Duration::from_millis(5));
        };
        let left: Vec<PathBuf> =
            self.tasks().into_iter().filter(|(_, task)| is_running(*task)).map(|(file, _)| file).collect();
        assert!(left.is_empty(), "{left:?} are left behind:\n{}", self.said());
        status.code().unwrap_or(-1)
    }

    /// Every started task: its note file and its process.
    fn tasks(&self) -> Vec<(PathBuf, u32)> {
        let files = fs::read_dir(&self.notes).unwrap().map(|file| file.unwrap().path());
        files.filter_map(|file| Some((file.clone(), fs::read_to_string(file).ok()?.trim().parse().ok()?))).collect()
    }

    #[track_caller]
    fn wait_for_steps(&mut self, made: &Made, n_steps: usize) {
        let started = Instant::now();
        while made.n_steps() < n_steps {
            assert!(started.elapsed() < LIMIT && self.child.try_wait().unwrap().is_none(), "{}", self.said());
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn was_requeued(&self) -> bool {
        self.notes.join("requeued").exists()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The group is the script's own; an empty group cannot be signaled.
        signal("KILL", &format!("-{}", self.child.id()));
        let _ = self.child.wait();
    }
}

fn signal(name: &str, whom: &str) {
    let _ = Command::new("kill").args([&format!("-{name}"), "--", whom]).stderr(Stdio::null()).status();
}

fn is_running(process: u32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_job_of_slurm_is_the_run_of_one_process() {
    let made = Made::new();
    let mut job = made.submit(&RUN, 5);
    job.wait_for_steps(&made, 1);
    // Other users of the cluster cannot use its servers.
    let secrets = made.secrets();
    assert_eq!(secrets.len(), 1, "{}", job.said());
    assert_eq!(fs::metadata(&secrets[0]).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(job.wait(), 0, "{}", job.said());
    assert_eq!(made.secrets(), Vec::<PathBuf>::new(), "nothing is left behind");
    assert!(!job.was_requeued());
    made.assert_same();
    let names: Vec<String> =
        job.tasks().iter().map(|(file, _)| file.file_name().unwrap().to_string_lossy().into_owned()).collect();
    for name in ["kith-sampler-1-0", "kith-sampler-2-0", "kith-4-0", "kith-4-1"] {
        assert!(names.iter().any(|own| own == name), "no {name}: {names:?}");
    }
    let said = job.said();
    assert!(said.contains("2 servers on 127.0.0.1,127.0.0.2, 2 ranks on 127.0.0.3,127.0.0.4"), "{said}");
    assert!(said.contains("serving shards 0,2 of 3") && said.contains("serving shards 1 of 3"), "{said}");

    // A run that cannot succeed is not retried.
    let mut job = made.submit(&["partition-graph/no-such-model"], 5);
    assert_eq!(job.wait(), 1, "{}", job.said());
    assert!(!job.was_requeued() && job.said().contains("no-such-model"), "{}", job.said());
    assert_eq!(made.secrets(), Vec::<PathBuf>::new());
}

#[test]
fn slow_a_job_of_slurm_that_lost_a_rank_or_its_time_goes_on_in_the_next() {
    if !is_slow_asked_for() {
        return;
    }
    let made = Made::new();
    let n_steps = steps(&made.path("alone")).len();
    let mut job = made.submit(&RUN, 5);
    job.wait_for_steps(&made, n_steps / 4);
    signal("KILL", fs::read_to_string(job.notes.join("kith-4-1")).unwrap().trim());
    assert_eq!(job.wait(), 75, "{}", job.said());
    assert!(job.was_requeued(), "{}", job.said());
    assert_eq!(made.secrets(), Vec::<PathBuf>::new());
    assert!(job.said().contains("rank 1"), "{}", job.said());

    let n_made = made.n_steps();
    assert!(n_made < n_steps, "it was over before");
    let mut job = made.submit(&RUN, 0);
    job.wait_for_steps(&made, n_made + 1);
    signal("TERM", &job.child.id().to_string());
    assert_eq!(job.wait(), 75, "{}", job.said());
    assert!(job.said().contains("told to stop"), "{}", job.said());
    assert_eq!(made.secrets(), Vec::<PathBuf>::new());
    assert!(!job.was_requeued(), "it may not go back: {}", job.said());
    assert!(job.said().contains("stopped by SIGTERM after "), "ranks save a checkpoint: {}", job.said());

    assert!(made.n_steps() < n_steps, "it was over before");
    let mut job = made.submit(&RUN, 5);
    assert_eq!(job.wait(), 0, "{}", job.said());
    made.assert_same();
}
