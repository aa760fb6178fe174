//! Log of a server, and metrics of what its lines are about: refused connections, limits, damage, and the name of the client.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use kith_proto::{SESSION_HEADER, v2, v2::sampler_client::SamplerClient};
use kith_store::Cluster;
use tonic::{Code, Request, transport::Endpoint};

use crate::process::{Process, cluster, hop, program, run};

mod lists;
#[allow(dead_code)] // Each test uses some of it.
mod process;

/// A server whose lines on stderr are read.
struct Logged {
    server: Process,
    lines: JoinHandle<Vec<String>>,
}

impl Logged {
    fn start(command: &mut Command, cluster: &Cluster, more: &[&str]) -> Logged {
        command.env_remove("KITH_LOG_FORMAT").stderr(Stdio::piped());
        let mut server = Process::start_with(command, cluster, &[&["--metrics", "127.0.0.1:0"][..], more].concat());
        let stderr = BufReader::new(server.child.stderr.take().unwrap());
        Logged { server, lines: thread::spawn(move || stderr.lines().map(Result::unwrap).collect()) }
    }

    /// Waits until a metric has a value: connections are counted when they are closed already.
    fn wait_for(&self, metric: &str, value: f64) {
        let started = Instant::now();
        while self.server.metric(metric) != value {
            assert!(started.elapsed() < Duration::from_secs(20), "{metric} is {}", self.server.metric(metric));
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// All lines, once the server has ended.
    fn end(mut self) -> Vec<String> {
        self.server.signal("TERM");
        assert_eq!(self.server.wait(Duration::from_secs(20)), Some(0));
        self.lines.join().unwrap()
    }
}

/// Asks for a hop as a client of this name; its status.
fn ask(address: SocketAddr, session: &str, request: v2::SampleHopRequest) -> Code {
    run(async {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let mut request = Request::new(request);
        request.metadata_mut().insert(SESSION_HEADER, session.parse().unwrap());
        let mut replies = match SamplerClient::new(channel).sample_hop(request).await {
            Ok(replies) => replies.into_inner(),
            Err(status) => return status.code(),
        };
        loop {
            match replies.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    })
}

/// Sends what is no HTTP/2, and waits until the server closes the connection.
fn send_garbage(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let _ = stream.read_to_end(&mut Vec::new()); // A reset is an end too.
}

/// Lines with all of these parts.
fn with<'l>(lines: &'l [String], parts: &[&str]) -> Vec<&'l String> {
    lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).collect()
}

#[test]
fn lines_name_the_limit_and_the_client() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    let server =
        Logged::start(program().env_remove("KITH_LOG"), &cluster, &["--max-fanout", "4", "--max-frontier", "9"]);
    let address = server.server.address();
    assert_eq!(ask(address, "trainer-7", hop(&cluster, 4, [0])), Code::Ok);
    assert_eq!(ask(address, "trainer-7", hop(&cluster, 5, [0])), Code::ResourceExhausted);
    assert_eq!(ask(address, "not a name", hop(&cluster, 4, [0; 10])), Code::ResourceExhausted);
    send_garbage(address);
    let metric = |name: &str| server.server.metric(name);
    server.wait_for("kith_sampler_refused_connections_total", 1.0);
    assert_eq!(metric("kith_sampler_limits_reached_total{limit=\"max-fanout\"}"), 1.0);
    assert_eq!(metric("kith_sampler_limits_reached_total{limit=\"max-frontier\"}"), 1.0);
    assert_eq!(metric("kith_sampler_limits_reached_total"), 2.0);
    assert_eq!(metric("kith_sampler_refused_connections_total{reason=\"http2\"}"), 1.0);
    assert_eq!(metric("kith_sampler_refused_connections_total"), 1.0);
    assert!(metric("kith_sampler_queue_seconds_count") >= 1.0);
    assert!(metric("process_open_fds") > 3.0 && metric("kith_build_info") == 1.0);
    let lines = server.end();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    let fanout =
        ["WARN", "a call reached a limit", "reason=\"max-fanout\"", "call=\"SampleHop\"", "session=\"trainer-7\""];
    assert_eq!(with(&lines, &fanout).len(), 1, "{lines:#?}");
    let frontier = with(&lines, &["reason=\"max-frontier\"", "address=127.0.0.1", "over the limit of 9"]);
    assert!(frontier.len() == 1 && !frontier[0].contains("session"), "{lines:#?}");
    let refused = ["WARN", "a connection was refused", "reason=\"http2\"", "address=127.0.0.1:"];
    assert_eq!(with(&lines, &refused).len(), 1, "{lines:#?}");
}

#[test]
fn a_flood_is_a_few_lines_and_a_number() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    let server = Logged::start(program().env_remove("KITH_LOG"), &cluster, &["--max-fanout", "4"]);
    let address = server.server.address();
    (0..40).for_each(|_| send_garbage(address));
    assert_eq!(ask(address, "trainer-7", hop(&cluster, 5, [0])), Code::ResourceExhausted);
    server.wait_for("kith_sampler_refused_connections_total", 40.0);
    let lines = server.end();
    // More than one window if the machine was very slow.
    let refused = with(&lines, &["kith_sampler", "a connection was refused", "address="]).len();
    assert!((5..30).contains(&refused), "{lines:#?}");
    let counted =
        with(&lines, &["… and ", " more in the last ", "line=\"a connection was refused\"", "reason=\"http2\""]);
    let number =
        |line: &String| -> usize { line.split_once("… and ").unwrap().1.split(' ').next().unwrap().parse().unwrap() };
    assert_eq!(counted.iter().map(|line| number(line)).sum::<usize>() + refused, 40, "{lines:#?}");
    assert_eq!(with(&lines, &["max-fanout"]).len(), 1, "other lines are not withheld: {lines:#?}");
}

#[test]
fn damage_is_an_error_with_the_file() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    // A node's neighbors are other numbers now.
    let shard = cluster.shard_dir(0);
    let names: Vec<String> =
        fs::read_dir(&shard).unwrap().map(|file| file.unwrap().file_name().to_string_lossy().into_owned()).collect();
    let column = names.iter().find(|name| name.starts_with("indices")).unwrap_or_else(|| panic!("{names:?}"));
    let mut bytes = fs::read(shard.join(column)).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 0x40;
    fs::write(shard.join(column), bytes).unwrap();
    let server = Logged::start(program().env_remove("KITH_LOG"), &cluster, &[]);
    let address = server.server.address();
    for _ in 0..3 {
        assert_eq!(ask(address, "trainer-7", hop(&cluster, 4, [0, 3])), Code::DataLoss);
    }
    assert_eq!(server.server.metric("kith_sampler_damaged_blocks"), 1.0);
    let lines = server.end();
    let damage =
        ["ERROR", "a call ran into damage", "session=\"trainer-7\"", "does not match its checksum", column.as_str()];
    assert_eq!(with(&lines, &damage).len(), 3, "{lines:#?}");
}

#[test]
fn lines_are_json_objects_if_asked_for() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    let mut command = program();
    command.env("KITH_LOG", "warn,kith_sampler=debug");
    let server = Logged::start(&mut command, &cluster, &["--max-fanout", "4", "--log-format", "json"]);
    let address = server.server.address();
    assert_eq!(ask(address, "trainer-7", hop(&cluster, 4, [0])), Code::Ok);
    assert_eq!(ask(address, "trainer-7", hop(&cluster, 5, [0])), Code::ResourceExhausted);
    let lines = server.end();
    for message in ["serving", "a call ended", "a call reached a limit", "stopping"] {
        let found = with(&lines, &[&format!("\"message\":\"{message}\"")]);
        assert_eq!(found.len(), 1, "{message}: {lines:#?}");
        let is_of_call = message.starts_with("a call");
        // The span has the client; the line does not repeat it.
        assert_eq!(found[0].matches("\"session\":\"trainer-7\"").count(), usize::from(is_of_call), "{}", found[0]);
    }
    assert!(lines.iter().all(|line| line.starts_with('{') && line.ends_with('}')), "{lines:#?}");
}

#[test]
fn levels_that_there_are_not_are_refused() {
    let output = program().args(["health", "127.0.0.1:1"]).env("KITH_LOG", "kith_sampler=loud").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("error: KITH_LOG: expected levels") && text.contains("loud"), "{text}");
    let output = program().args(["health", "127.0.0.1:1", "--log-format", "xml"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && text.contains("expected text or json"), "{text}");
}
