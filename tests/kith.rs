//! Runs the `kith` program as a process with a time limit.

use std::{
    ffi::OsStr,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(240);

/// Output of a finished process.
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// The JSON object it printed.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {:?} {}", self.stdout, self.stderr))
    }

    /// The one sentence it failed with: exit code 1, nothing on stdout, no panic.
    #[track_caller]
    pub(crate) fn sentence(&self) -> &str {
        self.sentence_with(1)
    }

    /// The same with another exit code.
    #[track_caller]
    pub(crate) fn sentence_with(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        let errors: Vec<&str> = self.stderr.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
        assert_eq!(errors.len(), 1, "one sentence expected: {}", self.stderr);
        errors[0]
    }
}

/// Runs `kith` and expects it to succeed.
#[track_caller]
pub(crate) fn kith<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Finished {
    let finished = run_kith(args);
    assert_eq!(finished.code, Some(0), "stdout: {}\nstderr: {}", finished.stdout, finished.stderr);
    finished
}

/// Runs `kith` to its end, successful or not.
pub(crate) fn run_kith<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Finished {
    finish(Command::new(program()).args(args))
}

/// Runs a command to its end; kills it at the default time limit.
pub(crate) fn finish(command: &mut Command) -> Finished {
    finish_within(command, LIMIT)
}

/// Runs a command to its end; kills it at the time limit.
pub(crate) fn finish_within(command: &mut Command, limit: Duration) -> Finished {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let read = |mut pipe: Box<dyn Read + Send>| {
        thread::spawn(move || {
            let mut text = String::new();
            pipe.read_to_string(&mut text).map(|_| text).unwrap_or_else(|error| format!("not UTF-8: {error}"))
        })
    };
    let stdout = read(Box::new(child.stdout.take().expect("piped")));
    let stderr = read(Box::new(child.stderr.take().expect("piped")));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if started.elapsed() > limit {
            child.kill().expect("a child can be killed");
            panic!("{command:?} did not end within {limit:?}");
        }
        thread::sleep(Duration::from_millis(2));
    };
    Finished { code: status.code(), stdout: stdout.join().expect("read"), stderr: stderr.join().expect("read") }
}

/// The program of this build. Cargo does not build other packages' programs for a test, so the test builds the whole
/// workspace, with the same features; this takes a moment if nothing has changed. `KITH_PROGRAM` names a built program
/// for machines without cargo.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(program) = std::env::var_os("KITH_PROGRAM") {
            return program.into();
        }
        let test = std::env::current_exe().expect("a test is a file");
        let folder = test.ancestors().nth(2).expect("target/PROFILE/deps/e2e").to_owned();
        let profile = if folder.ends_with("debug") { "dev" } else { "release" };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--locked", "--offline", "--profile", profile]).current_dir(root());
        // A test inherits its package's variables, and build scripts that depend on them would run every time.
        for (name, _) in std::env::vars_os() {
            if ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"].iter().any(|own| name.to_string_lossy().starts_with(own)) {
                build.env_remove(name);
            }
        }
        let built = finish(&mut build);
        assert_eq!(built.code, Some(0), "{}", built.stderr);
        folder.join("kith")
    })
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the root")
}

/// True if slow tests are requested; prints a note otherwise.
#[allow(clippy::print_stderr)]
pub(crate) fn is_slow_asked_for() -> bool {
    let asked = std::env::var_os("KITH_SLOW").is_some_and(|value| value == "1");
    if !asked {
        eprintln!("skipped: a slow test (`make slow` runs it)");
    }
    asked
}

/// The newest checkpoint of a run.
pub(crate) fn newest_checkpoint(run: &Path) -> Option<PathBuf> {
    let step_of = |path: &PathBuf| -> Option<u64> {
        path.file_name()?.to_str()?.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok()
    };
    let files = std::fs::read_dir(run.join("checkpoints")).ok()?.map(|file| file.unwrap().path());
    files.filter(|path| step_of(path).is_some()).max_by_key(step_of)
}

/// The folder with the real raw files; prints a note if it is absent.
#[allow(clippy::print_stderr)]
pub(crate) fn real_files(name: &str) -> Option<PathBuf> {
    let beside = root().join("../shared/datasets");
    let folder = std::env::var_os("KITH_DATASETS").map_or(beside, PathBuf::from).join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no real files of {name} (set KITH_DATASETS to the folder that holds them)");
    None
}

/// Exit code of `deploy/pyg.sh` if pip cannot get the packages.
const UNREACHABLE: i32 = 3;

/// Fetching PyG takes a few minutes: its packages are some gigabytes. So does a build.
const FETCH_LIMIT: Duration = Duration::from_secs(2400);

/// A Python with PyG; prints a note if there is none.
pub(crate) fn python_with_pyg() -> Option<PathBuf> {
    path_from("pyg.sh", &[])
}

/// The path that a script of `deploy/` prints: of a Python, or of a wheel. Prints a note if pip cannot get its packages.
#[allow(clippy::print_stderr)]
pub(crate) fn path_from(script: &str, arguments: &[&str]) -> Option<PathBuf> {
    let made = finish_within(Command::new(root().join("deploy").join(script)).args(arguments), FETCH_LIMIT);
    match made.code {
        Some(0) => Some(made.stdout.trim().into()),
        Some(UNREACHABLE) => {
            eprintln!("skipped: pip cannot get the packages of deploy/{script} here: {}", made.stderr.trim());
            None
        }
        _ => panic!("deploy/{script} failed: {}", made.stderr),
    }
}
