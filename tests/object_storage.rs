//! Folders and runs in object storage, with an S3 server as a separate process.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    kith::{Finished, finish, finish_within, kith, program, root},
    launch::{signal, wait_until},
    servers::{Proxy, Way},
    whole_path::{report, steps},
};

/// Exit code of `deploy/s3.sh` if pip cannot get the packages.
const NOT_HERE: i32 = 3;
const LIMIT: Duration = Duration::from_secs(60);
const BUCKET: &str = "kith";

/// An S3 server with one bucket, which ends with the test.
struct Storage {
    child: Child,
    address: SocketAddr,
}

impl Storage {
    /// `None`, with a message, if there is no such server.
    #[allow(clippy::print_stderr)]
    fn start() -> Option<Storage> {
        let made = finish_within(&mut Command::new(root().join("deploy/s3.sh")), LIMIT);
        let python = match made.code {
            Some(0) => made.stdout.trim().to_owned(),
            Some(NOT_HERE) => {
                eprintln!("skipped: no server of S3 can be had here: {}", made.stderr);
                return None;
            }
            _ => panic!("deploy/s3.sh failed: {}", made.stderr),
        };
        let mut command = Command::new(python);
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]).env("PYTHONUNBUFFERED", "1");
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            line.split_once("Running on http://").and_then(|(_, address)| address.trim().parse().ok())
        });
        // A reader that stops reading would block the server.
        thread::spawn(move || lines.for_each(drop));
        let storage = Storage { child, address: address.expect("it says where it listens") };
        assert!(storage.ask("PUT", BUCKET, b"").starts_with("HTTP/1.1 200"));
        Some(storage)
    }

    /// Sends a request without Kith, and returns the whole response.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let head = format!(
            "{method} /{path} HTTP/1.1\r\nHost: {}\r\nAuthorization: AWS key:any\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A program configured for this server, directly or at another address.
    fn command(&self, name: &str, at: SocketAddr, cache: &Path) -> Command {
        let mut command = Command::new(program().with_file_name(name));
        command.env("AWS_ENDPOINT_URL", format!("http://{at}")).env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret").env("XDG_CACHE_HOME", cache);
        command
    }

    #[track_caller]
    fn kith(&self, cache: &Path, args: &[&str]) -> Finished {
        let finished = finish_within(self.command("kith", self.address, cache).args(args), LIMIT);
        assert_eq!(finished.code, Some(0), "{args:?}: {}", finished.stderr);
        finished
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn generate(dir: &Path, nodes: &str, dim: &str) -> PathBuf {
    let store = dir.join("store");
    let options = ["--nodes", nodes, "--degree", "6", "--classes", "4", "--dim", dim, "--seed", "7"];
    kith([&["data", "generate", "power-law", "--out", store.to_str().unwrap()], &options[..]].concat());
    store
}

#[test]
fn a_cluster_goes_through_a_bucket() {
    let Some(storage) = Storage::start() else { return };
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    // Features of 36 MB: shards of several parts each.
    generate(temp.path(), "70001", "128");
    kith(["partition", &path("store"), "--shards", "2", "--method", "hash", "--out", &path("cluster")]);
    let url = "s3://kith/graphs/made.shards";
    let pushed = storage.kith(temp.path(), &["data", "push", &path("cluster"), url, "--json"]).json();
    let n_bytes = pushed["bytes"].as_u64().unwrap();
    assert_eq!(pushed["sent_bytes"].as_u64(), Some(n_bytes));
    assert_eq!(storage.kith(temp.path(), &["data", "push", &path("cluster"), url, "--json"]).json()["sent_bytes"], 0);

    // A killed pull resumes.
    let proxy = Proxy::start(storage.address);
    proxy.set(Way::Slow(40 << 20));
    let mut pull = storage.command("kith", proxy.address, temp.path());
    let mut child = pull.args(["data", "pull", url, &path("back")]).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    let is_half = || {
        let rows = ["shard-0", "shard-1"].map(|shard| temp.path().join("back").join(shard).join("features.f32.part"));
        rows.iter().any(|part| fs::metadata(part).is_ok_and(|file| on_disk(&file) > 9 << 20))
    };
    while !is_half() {
        assert!(started.elapsed() < LIMIT && child.try_wait().unwrap().is_none(), "it ended too soon, or never began");
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!temp.path().join("back/manifest.json").exists());
    let pulled = storage.kith(temp.path(), &["data", "pull", url, &path("back"), "--json"]).json();
    let received = pulled["received_bytes"].as_u64().unwrap();
    assert!(pulled["bytes"] == n_bytes && received > 0 && received <= n_bytes - (8 << 20), "{pulled}");
    kith(["partition", "verify", &path("back")]);

    // A server pulls only its own shard.
    let mut pull = storage.command("kith-sampler", storage.address, temp.path());
    let finished = finish(pull.args(["pull", url, &path("one"), "--index", "3"]));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(temp.path().join("one/shard-1").exists() && !temp.path().join("one/shard-0").exists());

    // If storage does not answer, a retry may help.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(); // Nobody listens there any more.
    let mut pull = storage.command("kith-sampler", nobody, temp.path());
    let finished = finish(pull.args(["pull", &format!("http://{nobody}/made"), &path("nowhere")]));
    assert_eq!(finished.code, Some(75), "{}", finished.stderr);

    // A damaged object is detected.
    let whole = fs::read(temp.path().join("cluster/shard-0/labels.u32")).unwrap();
    storage.ask("PUT", &format!("{BUCKET}/graphs/made.shards/shard-0/labels.u32"), &vec![1; whole.len()]);
    let mut pull = storage.command("kith", storage.address, temp.path());
    let sentence = finish(pull.args(["data", "pull", url, &path("damaged")]));
    let sentence = sentence.sentence();
    assert!(
        sentence.contains("/shard-0/labels.u32: bytes 0 to") && sentence.contains("are not what was pushed"),
        "{sentence}"
    );
    assert!(!temp.path().join("damaged/manifest.json").exists());

    // A missing bucket is named.
    let mut pull = storage.command("kith", storage.address, temp.path());
    let nothing = finish(pull.args(["data", "pull", "s3://nobody/x", &path("nothing")]));
    assert!(nothing.sentence().starts_with("s3://nobody/x: there is no kith-files.json"), "{}", nothing.stderr);
}

/// Allocated bytes of a file, without holes.
fn on_disk(file: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(file) * 512
}

#[test]
fn a_run_is_kept_in_a_bucket() {
    let Some(storage) = Storage::start() else { return };
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    let store = generate(temp.path(), "1009", "16");
    storage.kith(temp.path(), &["data", "push", store.to_str().unwrap(), "s3://kith/stores/made"]);
    let settings = ["train.mode=mini-batch", "train.fanouts=[5, 5]", "train.batch_size=101", "train.epochs=12"];
    let more = ["train.checkpoint_every_steps=3", "train.evaluate_every=10", "early_stop=off"];
    let sets: Vec<&str> = settings.iter().chain(&more).flat_map(|key| ["--set", key]).collect();
    let train = |store: &str, out: &str| {
        let mut command = storage.command("kith", storage.address, temp.path());
        command.args(["train", "partition-graph/supergat-mx", "--graph", store, "--out", out]).args(&sets);
        command
    };
    let alone = finish(&mut train(store.to_str().unwrap(), &path("alone")));
    assert_eq!(alone.code, Some(0), "{}", alone.stderr);

    // Killed after the first checkpoint in the bucket, and resumed from the bucket alone.
    let out = "s3://kith/runs/made";
    let mut child = train("s3://kith/stores/made", out).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while !storage.ask("GET", &format!("{BUCKET}/runs/made/kith-files.json"), b"").contains("checkpoints/step-") {
        assert!(started.elapsed() < LIMIT && child.try_wait().unwrap().is_none(), "no checkpoint came");
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let refused = finish(&mut train("s3://kith/stores/made", out));
    assert!(refused.sentence().contains("holds a run already: resume it with --resume"), "{}", refused.stderr);
    let mut resume = storage.command("kith", storage.address, &temp.path().join("cache"));
    let resumed = finish(resume.args(["train", "--resume", "--graph", "s3://kith/stores/made", "--out", out]));
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);

    // The bucket holds the same files as a folder would.
    storage.kith(temp.path(), &["data", "pull", out, &path("kept")]);
    let (alone, kept) = (temp.path().join("alone"), temp.path().join("kept"));
    assert_eq!(steps(&kept), steps(&alone));
    assert_eq!(report(&kept), report(&alone));
    let names = |run: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(run.join("checkpoints")).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&kept), names(&alone));
    // Other commands use the run by its URL.
    storage.kith(temp.path(), &["predict", out, "--graph", "s3://kith/stores/made", "--out", &path("classes.csv")]);
    kith(["predict", &path("alone"), "--graph", store.to_str().unwrap(), "--out", &path("alone.csv")]);
    assert_eq!(fs::read_to_string(path("classes.csv")).unwrap(), fs::read_to_string(path("alone.csv")).unwrap());
    storage.kith(temp.path(), &["report", out, "--out", &path("page.html")]);
    assert!(fs::read_to_string(path("page.html")).unwrap().contains("<html"));
}

/// Rank 0, believed dead, returns while another process continues its run: it stops and damages nothing.
#[test]
fn of_two_that_keep_a_run_one_stops() {
    let Some(storage) = Storage::start() else { return };
    let temp = tempfile::tempdir().unwrap();
    let store = generate(temp.path(), "1009", "16");
    let store = store.to_str().unwrap();
    let out = "s3://kith/runs/contested";
    let sets = ["train.mode=mini-batch", "train.fanouts=[5, 5]", "train.batch_size=101", "train.epochs=12"];
    let more = ["train.checkpoint_every_steps=3", "train.evaluate_every=10", "early_stop=off"];
    let mut train = storage.command("kith", storage.address, temp.path());
    train.args(["train", "partition-graph/supergat-mx", "--graph", store, "--out", out]);
    train.args(sets.iter().chain(&more).flat_map(|key| ["--set", key]));
    let listing = || storage.ask("GET", &format!("{BUCKET}/runs/contested/kith-files.json"), b"");
    let mut first = train.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while !listing().contains("checkpoints/step-") {
        assert!(started.elapsed() < LIMIT, "no checkpoint came");
        thread::sleep(Duration::from_millis(5));
    }
    signal("STOP", first.id());
    let mut resume = storage.command("kith", storage.address, &temp.path().join("cache"));
    let resumed = finish(resume.args(["train", "--resume", "--graph", store, "--out", out]));
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    let kept = listing();
    signal("CONT", first.id());
    wait_until(LIMIT, || first.try_wait().unwrap().is_some());
    first.kill().unwrap(); // If it is still running, the exit code below differs.
    let stopped = first.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&stopped.stderr);
    assert_eq!(stopped.status.code(), Some(1), "{said}");
    assert!(said.contains("s3://kith/runs/contested: another process writes there: this one stops"), "{said}");
    let body = |answer: &str| answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    assert_eq!(body(&listing()), body(&kept));
    let back = temp.path().join("back");
    storage.kith(temp.path(), &["data", "pull", out, back.to_str().unwrap()]);
    assert_eq!(steps(&back).last().unwrap()["epoch"], 11);
}
