//! Malicious and broken clients: a server keeps its memory, descriptors and time for the others.

use std::{
    future::poll_fn,
    io::{Read, Write},
    net::{SocketAddr, TcpStream as StdStream},
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{
    RecvStream, SendStream,
    client::{Builder, SendRequest},
};
use http::{Request, Response};
use kith_proto::{Call, v2};
use kith_store::Cluster;
use prost::Message as _;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::{net::TcpStream, time::timeout};
use tonic::{Code, Status};

use crate::process::{Process, cluster, frame, hop, lookup, program, run};

mod lists;
#[allow(dead_code)] // Each test uses some of it.
mod process;

const MIB: usize = 1 << 20;

/// Passive client: sends and reads only on request.
struct Client {
    send: SendRequest<Bytes>,
}

/// A call that began.
struct Started {
    body: SendStream<Bytes>,
    answer: h2::client::ResponseFuture,
}

impl Client {
    async fn connect(address: SocketAddr) -> Client {
        Client::with_window(address, 1 << 20).await
    }

    /// A client with a window of `window` bytes per stream.
    async fn with_window(address: SocketAddr, window: u32) -> Client {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut builder = Builder::new();
        builder.initial_window_size(window).initial_connection_window_size(1 << 30);
        let (send, connection) = builder.handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Client { send }
    }

    async fn start(&self, path: &str, headers: &[(&str, &str)]) -> Result<Started, h2::Error> {
        let mut request = Request::post(format!("http://x{path}"));
        for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")].iter().chain(headers) {
            request = request.header(*name, *value);
        }
        let mut send = self.send.clone().ready().await?;
        let (answer, body) = send.send_request(request.body(()).unwrap(), false)?;
        Ok(Started { body, answer })
    }

    /// Asks, reads to the end, and gives the status and the bytes of the answer.
    async fn ask(&self, path: &str, headers: &[(&str, &str)], bytes: Vec<u8>) -> Result<(Status, Vec<u8>), h2::Error> {
        let Started { mut body, answer } = self.start(path, headers).await?;
        let sending = send_some(&mut body, bytes.into(), true);
        let reading = async {
            let response = answer.await?;
            read_all(response).await
        };
        let (_, read) = tokio::join!(sending, reading);
        read
    }

    async fn call(&self, call: Call, request: &impl prost::Message) -> Result<(Status, Vec<u8>), h2::Error> {
        self.ask(call.path(), &[], frame(request)).await
    }
}

async fn read_all(response: Response<RecvStream>) -> Result<(Status, Vec<u8>), h2::Error> {
    let (head, mut body) = response.into_parts();
    if let Some(status) = Status::from_header_map(&head.headers) {
        return Ok((status, Vec::new()));
    }
    let mut bytes = Vec::new();
    while let Some(some) = body.data().await {
        let some = some?;
        body.flow_control().release_capacity(some.len())?;
        bytes.extend_from_slice(&some);
    }
    let trailers = body.trailers().await?.unwrap_or_default();
    Ok((Status::from_header_map(&trailers).unwrap_or_else(|| Status::unknown("no status")), bytes))
}

/// Sends bytes as the server takes them; gives those that it did not, when nothing moves for a while.
async fn send_some(body: &mut SendStream<Bytes>, mut bytes: Bytes, is_end: bool) -> usize {
    while !bytes.is_empty() {
        body.reserve_capacity(bytes.len());
        match timeout(Duration::from_millis(150), poll_fn(|context| body.poll_capacity(context))).await {
            Ok(Some(Ok(n_bytes))) => {
                let some = bytes.split_to(n_bytes.min(bytes.len()));
                if body.send_data(some, false).is_err() {
                    break;
                }
            }
            _ => break,
        }
    }
    if is_end && bytes.is_empty() {
        let _ = body.send_data(Bytes::new(), true);
    }
    bytes.len()
}

/// Duration of a small call of a well-behaved client, with its connection.
async fn small_call(address: SocketAddr, cluster: &Cluster) -> Duration {
    let started = Instant::now();
    let client = Client::connect(address).await;
    let (status, bytes) = client.call(Call::SampleHop, &hop(cluster, 5, [3])).await.unwrap();
    assert_eq!((status.code(), bytes.is_empty()), (Code::Ok, false), "{status}");
    started.elapsed()
}

/// Half-sent requests of every kind, within every limit of a request, on several connections.
#[test]
fn half_sent_requests_stay_within_the_budget() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 1000);
    let memory = (32 * MIB).to_string();
    let server = Process::start(
        &cluster,
        &["--threads", "1", "--request-memory", &memory, "--max-message", "16777216", "--metrics", "127.0.0.1:0"],
    );
    let before = server.own_mib();
    run(async {
        let mut held = Vec::new();
        for number in 0..6 {
            let client = Client::connect(server.address()).await;
            let (call, bytes) = match number % 2 {
                0 => (Call::HasEdges, frame(&lookup(&cluster, 3_000_000))),
                _ => (Call::SampleHop, frame(&hop(&cluster, 1, (0..3_000_000).map(|_| 3)))),
            };
            let bytes = Bytes::from(bytes).slice(..8 * MIB);
            for _ in 0..6 {
                let Ok(mut started) = client.start(call.path(), &[]).await else { break };
                send_some(&mut started.body, bytes.clone(), false).await;
                held.push(started);
            }
            let took = small_call(server.address(), &cluster).await;
            assert!(took < Duration::from_secs(10), "a neighbor waits for {took:?}");
            let grown = server.own_mib().saturating_sub(before);
            assert!(grown <= 32 + 48, "{grown} MiB are held by requests of 32 MiB");
            assert!(server.metric("kith_sampler_call_bytes") <= 40.0 * MIB as f64);
        }
        assert_eq!(held.len(), held.len().max(6), "some were let in");
    });
    // All of it comes back.
    let started = Instant::now();
    while server.metric("kith_sampler_call_bytes") > 0.0 {
        assert!(started.elapsed() < Duration::from_secs(20), "{}", server.metric("kith_sampler_call_bytes"));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sockets that say nothing, half a preface, or a preface and no more.
#[test]
fn silent_connections_make_room_and_go() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 128; exec \"$@\"", "sh"]).arg(program().get_program());
    command.env_remove("KITH_SAMPLER_TOKEN");
    let server = Process::start_with(
        &mut command,
        &cluster,
        &["--threads", "1", "--max-handshake", "2", "--metrics", "127.0.0.1:0"],
    );
    let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let connect = |number: usize| {
        let mut stream = StdStream::connect(server.address()).unwrap();
        stream.write_all(&preface[..[0, 10, preface.len()][number % 3]]).unwrap();
        stream
    };
    let mut silent: Vec<StdStream> = (0..200).map(connect).collect();
    let (started, cpu) = (Instant::now(), server.cpu_seconds());
    let address = server.address().to_string();
    let health = program().args(["health", &address, "--timeout", "10"]).output().unwrap();
    assert!(health.status.success(), "{}", String::from_utf8_lossy(&health.stderr));
    run(small_call(server.address(), &cluster));
    assert!(server.n_descriptors() < 128, "{}", server.n_descriptors());
    assert_eq!(server.page("/health").0, "HTTP/1.1 200 OK");
    for (number, stream) in silent.iter_mut().enumerate() {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut said = [0; 4096];
        // Until it is closed: the server may have said something before, unless the client said nothing.
        while let Ok(1..) = stream.read(&mut said) {
            assert_ne!(number % 3, 0, "a server says nothing to who says nothing");
        }
        assert!(started.elapsed() < Duration::from_secs(20), "a silent connection stays open");
    }
    let (used, took) = (server.cpu_seconds() - cpu, started.elapsed().as_secs_f64());
    assert!(used < 0.5 + took / 4.0, "{used} s of CPU in {took} s");
    let started = Instant::now();
    while server.metric("kith_sampler_connections") > 0.0 {
        assert!(started.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Accepting rests while no descriptor is left, and goes on when there is one again.
#[test]
fn accepting_rests_without_descriptors() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    let server = Process::start(&cluster, &["--threads", "1", "--max-handshake", "60"]);
    let most = |n: u64| {
        let pid = Pid::from_child(&server.child);
        prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(n), maximum: Some(4096) }).unwrap();
    };
    most(server.n_descriptors() as u64 + 3);
    let silent: Vec<StdStream> = (0..20).map(|_| StdStream::connect(server.address()).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(500));
    let cpu = server.cpu_seconds();
    std::thread::sleep(Duration::from_secs(2));
    let used = server.cpu_seconds() - cpu;
    assert!(used < 0.5, "{used} s of CPU in 2 s: accepting spins");
    most(1024);
    run(small_call(server.address(), &cluster));
    drop(silent);
}

/// Calls whose client does not read hold two chunks each, and end when their time is over.
#[test]
fn slow_readers_hold_little_and_are_ended() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    let more = ["--threads", "1", "--max-call", "3", "--metrics", "127.0.0.1:0"];
    let server = Process::start(&cluster, &more);
    let before = server.own_mib();
    run(async {
        let client = Client::with_window(server.address(), 0).await;
        let bytes = Bytes::from(frame(&hop(&cluster, 1, (0..2_000_000).map(|_| 3))));
        let mut calls = Vec::new();
        for _ in 0..12 {
            let mut started = client.start(Call::SampleHop.path(), &[]).await.unwrap();
            // Not all of it is taken: the server reads on when its answer is read.
            let left = send_some(&mut started.body, bytes.slice(..3 * MIB / 2), false);
            if let Ok(left) = timeout(Duration::from_millis(100), left).await {
                assert!(left > 0, "the server takes a request whose answer nobody reads");
            }
            calls.push(started);
        }
        let grown = server.own_mib().saturating_sub(before);
        // For each: two chunks of 256 KiB, a window of 512 KiB of its request, and ids of 256 KiB.
        assert!(grown <= 12 * 2 + 24, "12 calls hold {grown} MiB");
        for Started { answer, .. } in calls {
            let ended = timeout(Duration::from_secs(30), async { read_all(answer.await?).await }).await;
            match ended.expect("a call ends at its deadline") {
                Ok((status, _)) => assert_eq!(status.code(), Code::DeadlineExceeded, "{status}"),
                Err(error) => assert_eq!(error.reason(), Some(h2::Reason::CANCEL), "{error}"),
            }
        }
        assert_eq!(server.metric("kith_sampler_requests_in_flight"), 0.0);
        small_call(server.address(), &cluster).await;
    });
}

/// Many long lookups of one client, and a neighbor with a short question.
#[test]
fn lookups_of_one_client_do_not_starve_another() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 100_000);
    let server = Process::start(&cluster, &["--threads", "1"]);
    run(async {
        let greedy = Client::connect(server.address()).await;
        let request = frame(&lookup(&cluster, 1_000_000));
        let started = Instant::now();
        let (status, one) = greedy.ask(Call::HasEdges.path(), &[], request.clone()).await.unwrap();
        assert_eq!(status.code(), Code::Ok, "{status}");
        let one_took = started.elapsed();
        let started = Instant::now();
        let attack = async {
            let asked = (0..24).map(|_| greedy.ask(Call::HasEdges.path(), &[], request.clone()));
            let mut asked: Vec<_> = asked.map(Box::pin).collect();
            // Side by side, in one task.
            let mut answers = Vec::new();
            poll_fn(|context| {
                asked.retain_mut(|call| match call.as_mut().poll(context) {
                    std::task::Poll::Ready(answer) => {
                        answers.push(answer.unwrap());
                        false
                    }
                    std::task::Poll::Pending => true,
                });
                if asked.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            (answers, started.elapsed())
        };
        let neighbor = async {
            let mut took = Vec::new();
            tokio::time::sleep(one_took).await;
            for _ in 0..10 {
                took.push(small_call(server.address(), &cluster).await);
            }
            took.sort();
            took
        };
        let ((answers, attack_took), took) = tokio::join!(attack, neighbor);
        assert_eq!(answers.len(), 24);
        assert!(answers.iter().all(|(status, bytes)| status.code() == Code::Ok && *bytes == one), "same bits");
        assert!(took[5] < attack_took / 10, "a neighbor's call takes {took:?}, 24 lookups take {attack_took:?}");
    });
}

/// Long texts come back neither in messages nor in memory.
#[test]
fn long_texts_are_refused_in_few_words() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    let server = Process::start(&cluster, &["--threads", "1"]);
    let before = server.own_mib();
    run(async {
        let client = Client::connect(server.address()).await;
        let long = "é".repeat(MIB);
        let info = v2::InfoRequest { graph: long.clone(), ..Default::default() };
        let seeds = v2::SeedsRequest { graph: cluster.digest().into(), split: "s".repeat(129), ..Default::default() };
        let sample = v2::SampleHopRequest { graph: long, ..hop(&cluster, 5, [3]) };
        let cases = [
            (Call::Info, frame(&info), Code::ResourceExhausted, "over the limit of 4096"),
            (Call::Seeds, frame(&seeds), Code::InvalidArgument, "split: a text of 129 bytes is over the limit of 128"),
            (Call::SampleHop, frame(&sample), Code::InvalidArgument, "graph: a text of 2097152 bytes"),
        ];
        for (call, bytes, code, says) in cases {
            let (status, _) = client.ask(call.path(), &[], bytes).await.unwrap();
            assert!(status.code() == code && status.message().contains(says), "{status}");
        }
        let version = "9".repeat(8 << 10);
        let headers = [("kith-protocol", version.as_str())];
        let (status, _) = client.ask(Call::Info.path(), &headers, frame(&v2::InfoRequest::default())).await.unwrap();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().len() < 600, "{} bytes come back", status.message().len());
    });
    let grown = server.own_mib().saturating_sub(before);
    assert!(grown < 40, "{grown} MiB");
}

/// A frontier read on demand gives the same answer as one read at once, independent of the position of its field.
#[test]
fn long_frontiers_are_answered_as_short_ones() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    let server = Process::start(&cluster, &["--threads", "1"]);
    let nodes: Vec<u32> = (0..300_000).map(|k| k % 333 * 3).collect();
    run(async {
        let client = Client::connect(server.address()).await;
        let whole = hop(&cluster, 3, nodes.iter().copied());
        let mut expected = (Vec::new(), Vec::new());
        for nodes in nodes.chunks(20_000) {
            let (status, bytes) = client.call(Call::SampleHop, &hop(&cluster, 3, nodes.iter().copied())).await.unwrap();
            assert_eq!(status.code(), Code::Ok, "{status}");
            append(&mut expected, &bytes);
        }
        assert_eq!(expected.0.len(), 4 * nodes.len());
        // The field of the ids first, and then the others.
        let turned = [
            v2::SampleHopRequest { frontier: whole.frontier.clone(), ..Default::default() }.encode_to_vec(),
            v2::SampleHopRequest { frontier: Bytes::new(), ..whole.clone() }.encode_to_vec(),
        ];
        let turned = turned.concat();
        let mut turned_frame = vec![0];
        turned_frame.extend_from_slice(&(turned.len() as u32).to_be_bytes());
        turned_frame.extend_from_slice(&turned);
        for bytes in [frame(&whole), turned_frame] {
            let (status, bytes) = client.ask(Call::SampleHop.path(), &[], bytes).await.unwrap();
            assert_eq!(status.code(), Code::Ok, "{status}");
            let mut found = (Vec::new(), Vec::new());
            append(&mut found, &bytes);
            assert!(found == expected);
        }
        // A node that is not the shard's, far behind.
        let mut foreign = nodes.clone();
        foreign[290_000] = 1;
        let (status, _) = client.call(Call::SampleHop, &hop(&cluster, 3, foreign)).await.unwrap();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        // A frontier that ends too early.
        let mut cut = frame(&whole);
        cut.truncate(MIB);
        let (status, _) = client.ask(Call::SampleHop.path(), &[], cut).await.unwrap();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    });
}

/// Counts and neighbors of all messages of an answer.
fn append((counts, neighbors): &mut (Vec<u8>, Vec<u8>), mut bytes: &[u8]) {
    while let [_, a, b, c, d, rest @ ..] = bytes {
        let (message, rest) = rest.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
        let reply = v2::SampleHopReply::decode(message).unwrap();
        counts.extend_from_slice(&reply.counts);
        neighbors.extend_from_slice(&reply.neighbors);
        bytes = rest;
    }
}

/// Floods of frames end their connection, or nothing; others are answered.
#[test]
fn floods_of_frames_cost_little() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path(), 10);
    let server = Process::start(&cluster, &["--threads", "1"]);
    let before = server.own_mib();
    let raw = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags]);
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        frame
    };
    // Fields that are in no table: HPACK's plainest form.
    let literal = |name: &str, value: &str| {
        [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
    };
    let path = Call::Info.path();
    let fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("te", "trailers")];
    let head: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
    type Frames<'a> = Box<dyn Fn(u32) -> Vec<u8> + 'a>;
    let kinds: Vec<(&str, Frames<'_>)> = vec![
        ("resets", Box::new(|n| [raw(1, 4, 2 * n + 1, &head), raw(3, 0, 2 * n + 1, &8u32.to_be_bytes())].concat())),
        ("made resets", Box::new(|n| [raw(1, 5, 2 * n + 1, &head), raw(8, 0, 2 * n + 1, &[0; 4])].concat())),
        ("pings", Box::new(|_| raw(6, 0, 0, &[7; 8]))),
        ("settings", Box::new(|_| raw(4, 0, 0, &[0, 3, 0, 0, 0, 100]))),
        ("headers", Box::new(|n| raw(if n == 0 { 1 } else { 9 }, 0, 1, &literal("x", &"y".repeat(120)).repeat(100)))),
        ("empty data", Box::new(|n| if n == 0 { raw(1, 4, 1, &head) } else { raw(0, 0, 1, &[]) })),
    ];
    for (kind, make) in kinds {
        let mut stream = StdStream::connect(server.address()).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        stream.write_all(&raw(4, 0, 0, &[])).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let reading = std::thread::spawn(move || {
            let mut said = [0; 65536];
            while let Ok(1..) = reader.read(&mut said) {}
        });
        for n in 0..20_000 {
            if stream.write_all(&make(n)).is_err() {
                break; // The server has enough of it.
            }
        }
        let took = run(small_call(server.address(), &cluster));
        assert!(took < Duration::from_secs(5), "{kind}: a neighbor waits for {took:?}");
        let _ = stream.shutdown(std::net::Shutdown::Both);
        reading.join().unwrap();
        let grown = server.own_mib().saturating_sub(before);
        assert!(grown < 64, "{kind}: {grown} MiB");
    }
    assert!(server.n_descriptors() < 64);
}
