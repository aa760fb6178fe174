//! Runs `kith-sampler` as a process, with a graph to serve, and measures its memory, CPU time and descriptors.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use kith_proto::v2;
use kith_store::{Cluster, Cut, Provenance, write_cluster};

use crate::lists;

/// Nodes of the graph; the first has `n_hub` neighbors, each other node one.
pub(crate) const N_NODES: u64 = 1000;

pub(crate) fn cluster(folder: &Path, n_hub: usize) -> Cluster {
    let mut all: Vec<Vec<u64>> = (0..N_NODES).map(|node| vec![(node + 1) % N_NODES]).collect();
    let mut hub: Vec<u64> = (0..n_hub as u64).map(|k| 1 + k % (N_NODES - 1)).collect();
    hub.sort_unstable();
    all[0] = hub;
    let graph = lists::store(folder, &all, false);
    let owner: Vec<u16> = (0..N_NODES).map(|node| (node % 3) as u16).collect();
    let cut = Cut {
        owner: &owner,
        n_shards: 3,
        inclusion: None,
        method: "by hand".into(),
        provenance: Provenance::default(),
    };
    let out = folder.join("cluster");
    write_cluster(&graph, &cut, &out, &|_| ()).unwrap();
    Cluster::open(&out).unwrap()
}

/// A server as a process. It goes when this does.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) line: String,
}

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kith-sampler"));
    command.env_remove("KITH_SAMPLER_TOKEN");
    command
}

impl Process {
    pub(crate) fn start(cluster: &Cluster, more: &[&str]) -> Process {
        Process::start_with(&mut program(), cluster, more)
    }

    /// Starts a server by a command to which its options are added.
    pub(crate) fn start_with(command: &mut Command, cluster: &Cluster, more: &[&str]) -> Process {
        command.arg("--graph").arg(cluster.dir());
        if !more.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let mut child = command.args(more).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Process { child, line: line.trim().to_owned() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.after(" on ")
    }

    pub(crate) fn metrics_address(&self) -> SocketAddr {
        self.after("(metrics on ")
    }

    fn after(&self, words: &str) -> SocketAddr {
        let (_, rest) = self.line.split_once(words).unwrap_or_else(|| panic!("{:?} is not in {:?}", words, self.line));
        rest.split([' ', ')']).next().unwrap().parse().unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// The exit code, within a limit.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<i32> {
        let started = Instant::now();
        while started.elapsed() < limit {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("still there after {limit:?}");
    }

    /// Memory that is its own and not of a file, in MiB.
    pub(crate) fn own_mib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().split(' ').next().unwrap().parse::<u64>().unwrap() >> 10
    }

    /// Seconds of CPU that it used.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
    }

    pub(crate) fn n_descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// A page of its other port: the status line and the body.
    pub(crate) fn page(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.metrics_address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    /// The sum of all samples of a metric.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let is_meant = |line: &&str| line.starts_with(&format!("{name} ")) || line.starts_with(&format!("{name}{{"));
        let (_, page) = self.page("/metrics");
        page.lines().filter(is_meant).map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a client, for no longer than tests may take.
pub(crate) fn run<T>(client: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(50), client).await.expect("never a hang") })
}

pub(crate) fn packed(nodes: impl IntoIterator<Item = u32>) -> bytes::Bytes {
    nodes.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>().into()
}

/// A hop of nodes of shard 0.
pub(crate) fn hop(cluster: &Cluster, fanout: u32, nodes: impl IntoIterator<Item = u32>) -> v2::SampleHopRequest {
    let frontier = packed(nodes);
    v2::SampleHopRequest {
        graph: cluster.digest().to_owned(),
        parts: packed([0, frontier.len() as u32 / 4]),
        frontier,
        most: Some(v2::sample_hop_request::Most::Fanout(fanout)),
        ..Default::default()
    }
}

/// A lookup of `n` candidates of the first node.
pub(crate) fn lookup(cluster: &Cluster, n: u32) -> v2::HasEdgesRequest {
    v2::HasEdgesRequest {
        graph: cluster.digest().to_owned(),
        direction: 1,
        parts: packed([0, 1]),
        destinations: packed([0]),
        counts: packed([n]),
        sources: packed((0..n).map(|k| k.wrapping_mul(2_654_435_761) % N_NODES as u32)),
    }
}

pub(crate) fn frame(message: &impl prost::Message) -> Vec<u8> {
    kith_proto::frame_message(message).to_vec()
}
