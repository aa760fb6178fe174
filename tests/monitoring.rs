//! Metrics, log and `kith top` of a running job, and what documents, alert rules and the dashboard say of them.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    kith::{kith, program, root, run_kith},
    tidy::{files, quoted},
};

const LIMIT: Duration = Duration::from_secs(60);

/// A process that ends with the test, and its lines.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(mut command: Command, reads_stdout: bool) -> Running {
        for name in ["KITH_LOG", "KITH_LOG_FORMAT"] {
            command.env_remove(name);
        }
        let (out, err) =
            if reads_stdout { (Stdio::piped(), Stdio::inherit()) } else { (Stdio::null(), Stdio::piped()) };
        let mut child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap();
        let read: Box<dyn Read + Send> =
            if reads_stdout { Box::new(child.stdout.take().unwrap()) } else { Box::new(child.stderr.take().unwrap()) };
        let (sender, lines) = channel();
        thread::spawn(move || {
            BufReader::new(read).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok());
        });
        Running { child, lines }
    }

    /// The rest of the next line that has `words`, up to the end of the word behind them.
    fn after(&self, words: &str) -> String {
        let begun = Instant::now();
        loop {
            let line = self.lines.recv_timeout(LIMIT.saturating_sub(begun.elapsed())).expect("it says so in time");
            if let Some((_, rest)) = line.split_once(words) {
                return rest.split([' ', ')']).next().unwrap().to_owned();
            }
        }
    }

    fn terminate(&mut self) -> Option<i32> {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < LIMIT, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended.
        let _ = self.child.wait();
    }
}

/// A server, and two ranks that train from it.
struct Job {
    temp: tempfile::TempDir,
    server: Running,
    launched: Running,
    /// Metrics addresses: of the ranks, and of the server.
    places: Vec<String>,
    /// That of the launcher.
    launcher: String,
}

impl Job {
    fn start() -> Job {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
        let (store, cluster, out) = (path("store"), path("cluster"), path("run"));
        let options = ["--nodes", "2000", "--degree", "8", "--classes", "4", "--dim", "16", "--seed", "7"];
        kith([&["data", "generate", "power-law", "--out", &store], &options[..]].concat());
        kith(["partition", &store, "--shards", "2", "--method", "hash", "--out", &cluster]);
        let mut command = Command::new(program().with_file_name("kith-sampler"));
        command.args(["--graph", &cluster, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        let server = Running::start(command, true);
        let line = server.lines.recv_timeout(LIMIT).expect("the server is ready in time");
        let (_, rest) = line.split_once(" on ").unwrap();
        let (address, metrics) = rest.trim_end_matches(')').split_once(" (metrics on ").unwrap();
        let mut command = Command::new(program());
        command.args(["launch", "partition-graph/supergat-mx", "--graph", &format!("grpc://{address}")]);
        command.args(["--ranks", "2", "--metrics", "127.0.0.1:0", "--out", &out]);
        command.args(["--launcher-metrics", "127.0.0.1:0"]);
        let set = ["train.mode=mini-batch", "train.fanouts=[5, 5]", "train.batch_size=100", "train.edge_seeds=50"];
        let more = ["train.epochs=100000", "train.evaluate_every=1", "train.slices=2", "early_stop=off"];
        command.args(set.iter().chain(&more).flat_map(|assignment| ["--set", assignment]));
        command.env("RAYON_NUM_THREADS", "1");
        let launched = Running::start(command, false);
        let launcher = launched.after("launcher metrics on ");
        let ranks = [(); 2].map(|()| launched.after("metrics on "));
        let places = ranks.into_iter().chain([metrics.to_owned()]).collect();
        let job = Job { temp, server, launched, places, launcher };
        let begun = Instant::now();
        // Checkpoints are handed over at the end of an epoch, and written beside the next.
        while !job.pages()[..2].iter().all(|page| page.contains("kith_metric{")) {
            assert!(begun.elapsed() < LIMIT, "no epoch ends");
            thread::sleep(Duration::from_millis(20));
        }
        job
    }

    /// The pages of ranks, then that of the server, then that of the launcher.
    fn pages(&self) -> Vec<String> {
        self.places.iter().chain([&self.launcher]).map(|place| page(place)).collect()
    }

    /// Ends the ranks and the server.
    fn end(mut self) -> tempfile::TempDir {
        assert_eq!(self.launched.terminate(), Some(75));
        assert_eq!(self.server.terminate(), Some(0));
        self.temp
    }
}

fn page(place: &str) -> String {
    let mut stream = TcpStream::connect(place).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("application/openmetrics-text"), "{head}");
    body.to_owned()
}

/// Names of all samples.
fn samples(pages: &[String]) -> BTreeSet<String> {
    let lines = pages.iter().flat_map(|page| page.lines()).filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect()
}

/// Names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter| !is_letter(letter));
    let is_name = |word: &&str| {
        word.starts_with("process_") && word.matches('_').count() >= 2
            || word.starts_with("kith_") && !["kith_client", "kith_sampler", "kith_log", "kith_trainer"].contains(word)
    };
    words.filter(is_name).map(str::to_owned).collect()
}

/// Selectors with labels, as in `name{label="value"}`, whose labels no sample has. Prometheus adds `job` and `instance`.
fn strange_labels(text: &str, pages: &[String]) -> Vec<String> {
    let mut strange = Vec::new();
    for (place, _) in text.match_indices('{') {
        let name =
            text[..place].rsplit(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next().unwrap();
        if !names(name).contains(name) {
            continue;
        }
        let inside = text[place + 1..].split('}').next().unwrap();
        for part in inside.split(',').filter(|part| part.contains('=')) {
            let label = part.split(['=', '!']).next().unwrap().trim();
            let has_it = |line: &str| line.starts_with(&format!("{name}{{")) && line.contains(&format!("{label}=\""));
            if label != "job" && !pages.iter().any(|page| page.lines().any(has_it)) {
                strange.push(format!("{name}{{{label}}}"));
            }
        }
    }
    strange
}

#[test]
fn a_running_job_is_watched() {
    let job = Job::start();
    let pages = job.pages();
    let served = samples(&pages);

    // Every metric that is named exists, and every metric is explained.
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (alerts, dashboard, guide) = (
        read("deploy/prometheus/alerts.yaml"),
        read("deploy/grafana/dashboard.json"),
        read("docs/trust/monitoring.md"),
    );
    for (path, text) in [("alerts", &alerts), ("dashboard", &dashboard), ("guide", &guide)] {
        let base = |name: &String| served.contains(name) || served.contains(&format!("{name}_count"));
        let missing: Vec<String> = names(text).into_iter().filter(|name| !base(name)).collect();
        assert_eq!(missing, Vec::<String>::new(), "{path} names metrics that nobody serves; served are {served:?}");
        let text = text.replace("\\\"", "\"");
        assert_eq!(strange_labels(&text, &pages), Vec::<String>::new(), "{path}");
    }
    let explained = names(&guide);
    let is_explained = |name: &&String| {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        explained.contains(family)
    };
    let silent: Vec<&String> = served.iter().filter(|name| !is_explained(name)).collect();
    assert!(silent.is_empty(), "docs/trust/monitoring.md does not explain {silent:?}");

    // `kith top` shows all of them.
    let places: Vec<&str> = job.places.iter().chain([&job.launcher]).map(String::as_str).collect();
    let shown = kith([&["top"], &places[..], &["--once"]].concat()).stdout;
    for part in ["rank", "seeds/s", "exchange", "server", "calls/s", "launcher", "restarts"].iter().chain(&places) {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let glance = kith([&["top", "--once", "--json"], &places[..]].concat()).json();
    let ranks = glance["ranks"].as_array().unwrap();
    assert_eq!(ranks.iter().map(|rank| rank["rank"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1]);
    assert!(ranks.iter().all(|rank| rank["step"].as_u64().unwrap() > 0), "{glance}");
    assert!(ranks.iter().all(|rank| rank["seeds_per_second"].as_f64().unwrap() > 0.0), "{glance}");
    assert!(ranks[0]["heartbeat_seconds"].as_f64().unwrap() < 30.0, "{glance}");
    assert!(
        ranks[0]["checkpoint_seconds"].as_f64().unwrap() < 60.0 && ranks[1]["checkpoint_seconds"].is_null(),
        "{glance}"
    );
    assert!(glance["servers"][0]["calls_per_second"].as_f64().unwrap() > 0.0, "{glance}");
    assert_eq!(glance["launchers"][0]["ranks"], 2, "{glance}");
    // A place without metrics is named, beside the others; alone, it is an error.
    let finished = run_kith(["top", places[0], "127.0.0.1:1", "--once"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(
        finished.stdout.contains(places[0]) && finished.stdout.contains("\n127.0.0.1:1: no metrics: connection ref")
    );
    let finished = run_kith(["top", "127.0.0.1:1", "--once"]);
    assert_eq!((finished.code, &*finished.stdout), (Some(1), ""), "{}", finished.stderr);
    assert!(finished.stderr.contains("127.0.0.1:1: no metrics: connection refused"), "{}", finished.stderr);

    job.end();
}

/// The report of a run, and lines of servers about its calls, have the same names.
#[test]
fn the_report_names_its_ranks_at_servers() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    let (store, cluster, out) = (path("store"), path("cluster"), path("run"));
    let options = ["--nodes", "500", "--degree", "8", "--classes", "4", "--dim", "16", "--seed", "7"];
    kith([&["data", "generate", "power-law", "--out", &store], &options[..]].concat());
    kith(["partition", &store, "--shards", "2", "--method", "hash", "--out", &cluster]);
    let train = |graph: &str, more: &[&str]| {
        let first = [more, &["partition-graph/gat", "--graph", graph, "--out", &out]].concat();
        kith(
            [&first[..], &["--set", "train.mode=mini-batch", "--set", "train.epochs=1", "--batch-size", "100"]]
                .concat(),
        );
        let report: Value = serde_json::from_slice(&fs::read(Path::new(&out).join("report.json")).unwrap()).unwrap();
        fs::remove_dir_all(&out).unwrap();
        report
    };
    assert!(train(&cluster, &["train"]).get("sessions").is_none(), "nobody asks a server");
    let mut command = Command::new(program().with_file_name("kith-sampler"));
    command.args(["--graph", &cluster, "--listen", "127.0.0.1:0", "--log-format", "json"]);
    let mut lines = command.env("KITH_LOG", "kith_sampler=debug").env_remove("KITH_LOG_FORMAT");
    lines = lines.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = lines.spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let log = thread::spawn(move || log.lines().map(Result::unwrap).collect::<Vec<_>>());
    let mut server = Running { child, lines: channel().1 };
    let graph = format!("grpc://{}", first.rsplit_once(" on ").unwrap().1.trim());
    let report = train(&graph, &["launch", "--ranks", "2", "--set", "train.slices=2"]);
    assert_eq!(server.terminate(), Some(0));
    let named: BTreeSet<&str> =
        report["sessions"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(named.len(), 2, "{named:?}");
    let log: Vec<Value> = log.join().unwrap().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_calls = log.iter().filter(|line| line["message"] == "a call ended");
    let seen: BTreeSet<&str> = of_calls.map(|line| line["session"].as_str().unwrap()).collect();
    assert_eq!(seen, named);
}

#[test]
fn a_metric_that_nobody_serves_is_found() {
    let text =
        "rate(kith_seeds_total{job=~\"$job\",phase=\"x\"}[1m]) / process_open_fds - `KITH_LOG=warn,kith_client=debug`";
    assert_eq!(names(text), ["kith_seeds_total", "process_open_fds"].map(str::to_owned).into());
    let pages = ["# HELP kith_steps x\nkith_seeds_total{rank=\"0\"} 4\nh_bucket{le=\"1\"} 2\n".to_owned()];
    assert_eq!(samples(&pages), ["h_bucket", "kith_seeds_total"].map(str::to_owned).into());
    assert_eq!(strange_labels(text, &pages), ["kith_seeds_total{phase}"]);
    assert_eq!(strange_labels("kith_seeds_total{rank=\"1\"}", &pages), [""; 0]);
}

/// Lines of the log that people see without asking for more.
#[test]
fn the_guide_explains_every_line_of_the_log() {
    let guide = fs::read_to_string(root().join("docs/trust/failures.md")).unwrap();
    let mut found = BTreeSet::new();
    for (path, text) in files(&["rs"]) {
        if !path.starts_with("tests/") && !path.contains("/tests/") && !path.starts_with("proto/log/") {
            let code = text.split("\nmod tests {").next().unwrap();
            found.extend(lines_of_the_log(code).into_iter().map(|line| (line, path.clone())));
        }
    }
    assert!(found.len() >= 8, "{found:?}");
    let missing: Vec<_> = found.iter().filter(|(line, _)| !guide.contains(&format!("`{line}`"))).collect();
    assert!(missing.is_empty(), "docs/trust/failures.md should say what to do about {missing:?}");
}

/// The texts of lines of the levels warn and error: the last literal of each call.
fn lines_of_the_log(code: &str) -> Vec<String> {
    let calls = ["warn!(", "error!(", "line!(warn", "line!(error"].iter().flat_map(|name| code.match_indices(name));
    let is_whole = |place: usize| !code[..place].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    let text = |(place, name): (usize, &str)| {
        let arguments = arguments(&code[place + name.len()..]);
        let mut literals = arguments.match_indices('"').filter_map(|(place, _)| quoted(&arguments[place..]));
        // Every quote may begin one, also those that end another: the last whole literal ends the arguments.
        literals.rfind(|literal| arguments.trim_end_matches([',', ' ', '\n']).ends_with(&format!("\"{literal}\"")))
    };
    calls.filter(|(place, _)| is_whole(*place)).filter_map(text).collect()
}

/// The arguments of a macro, up to its closing parenthesis.
fn arguments(code: &str) -> &str {
    let (mut depth, mut is_quoted) = (1, false);
    for (place, letter) in code.char_indices() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '(' if !is_quoted => depth += 1,
            ')' if !is_quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &code[..place];
        }
    }
    code
}

#[test]
fn lines_of_the_log_are_found_in_code() {
    let code = "fn f() {\n    warn!(reason = kind(\"x\"), %problem, \"a call failed\");\n    line!(error, code, \"it broke (badly)\");\n\
                    info!(\"not this\");\n    my_warn!(\"nor this\");\n}\n";
    assert_eq!(lines_of_the_log(code), ["a call failed", "it broke (badly)"]);
}
