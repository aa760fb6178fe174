//! A partitioned graph and a server of it in this process, for tests.
#![allow(dead_code)] // Every test uses another part.

use std::{
    collections::BTreeMap,
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use kith_client::remote::{RemoteConfig, RemoteSampler};
use kith_sampler::server::{Checksums, Limits, Server, ServerConfig};
use kith_store::{Cluster, Cut, Graph, Provenance, write_cluster};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Cuts a store into three shards that own something and one that does not.
pub(crate) fn cut(folder: &Path, graph: &Graph) -> Cluster {
    let owner: Vec<u16> = (0..graph.n_nodes()).map(|node| [0, 2, 3][(node % 7 % 3) as usize]).collect();
    let (method, provenance) = ("by hand".to_owned(), Provenance::default());
    let out = folder.join("cluster");
    let cut = Cut { owner: &owner, n_shards: 4, inclusion: None, method, provenance };
    write_cluster(graph, &cut, &out, &|_| ()).unwrap();
    Cluster::open(&out).unwrap()
}

pub(crate) fn config(cluster: &Cluster) -> ServerConfig {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    ServerConfig {
        metrics: Some(any_port),
        limits: Limits { max_drain: Duration::from_secs(2), ..Limits::default() },
        n_threads: 2,
        // Connections of tests stay on the host.
        checksums: Checksums::On,
        ..ServerConfig::new(cluster.dir().to_owned(), any_port)
    }
}

/// Short waits: tests do not wait for what will not come.
pub(crate) fn patience() -> RemoteConfig {
    RemoteConfig { max_silence: Duration::from_secs(5), max_call: Duration::from_secs(10), ..RemoteConfig::default() }
}

pub(crate) async fn connect(server: &Server) -> RemoteSampler {
    RemoteSampler::connect(&server.address().to_string(), None, patience()).await.unwrap()
}

/// Runs a client, for no longer than tests may take.
pub(crate) fn run<T>(client: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(25), client).await.expect("never a hang") };
    runtime.block_on(limited)
}

/// Scrapes the metrics page: sample → value.
pub(crate) async fn scrape(address: SocketAddr) -> BTreeMap<String, f64> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    let sample = |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
    body.lines().filter(|line| !line.starts_with('#')).map(|line| sample(line).unwrap()).collect()
}
