//! Servers of the same shards replace each other.

mod graphs;
mod served;

use std::{
    net::{SocketAddr, TcpListener},
    time::{Duration, Instant},
};

use graphs::{Edges, open};
use kith_client::{Sharded, Shards, Whereabouts, remote::RemoteConfig};
use kith_sampler::{
    Drawn, EdgeData, Fanout, Hop, Sampling,
    server::{Server, ServerConfig, ShardChoice},
};
use kith_store::Cluster;
use served::{config, cut, patience, run, scrape};

const N_NODES: u64 = 120;

fn serve(cluster: &Cluster, shards: &[u32]) -> Server {
    Server::start(&ServerConfig { shards: ShardChoice::These(shards.to_vec()), ..config(cluster) }).unwrap()
}

fn find(samplers: &[SocketAddr], rank: usize, remote: RemoteConfig) -> kith_client::Result<Sharded> {
    let samplers = samplers.iter().map(|address| address.to_string()).collect();
    Sharded::find(Whereabouts { samplers, rank, remote, ..Whereabouts::default() })
}

/// Draws of all nodes.
fn drawn(shards: &Sharded) -> kith_client::Result<Drawn> {
    let hop = Hop {
        run_key: 7,
        step: 3,
        hop: 0,
        fanout: Fanout::at_most(3).unwrap(),
        sampling: Sampling::Uniform,
        edge_data: EdgeData::NONE,
    };
    let mut drawn = Drawn::default();
    shards.sample_hop(&hop, &(0..N_NODES).collect::<Vec<_>>(), &mut drawn)?;
    Ok(drawn)
}

fn cluster(folder: &tempfile::TempDir) -> Cluster {
    cut(folder.path(), &open(folder.path(), &Edges::random(N_NODES, 700, 5)))
}

/// Number of hops that a server answered.
fn n_hops(server: &Server) -> u64 {
    let page = run(scrape(server.metrics_address().unwrap()));
    page["kith_sampler_request_seconds_count{call=\"SampleHop\"}"] as u64
}

#[test]
fn when_a_server_goes_others_answer_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(&temp);
    // Shard 1 owns nothing; shard 3 is at one place only.
    let [all, some, rest] = [serve(&cluster, &[0, 1, 2, 3]), serve(&cluster, &[0, 1]), serve(&cluster, &[2])];
    let addresses = [all.address(), some.address(), rest.address()];
    let remote = RemoteConfig { max_call: Duration::from_secs(3), ..patience() };
    let shards = find(&addresses, 1, remote).unwrap();
    assert!(shards.silent().is_empty());
    let expected = drawn(&shards).unwrap();
    assert_eq!([&some, &rest].map(n_hops), [1, 1], "the second of two is the first for rank 1");
    assert_eq!(n_hops(&all), 1, "nobody else has shard 3");
    some.stop().unwrap();
    assert_eq!(drawn(&shards).unwrap(), expected);
    assert_eq!(n_hops(&all), 3);
    // It is stayed with, also when the other is back.
    let again = Server::start(&ServerConfig {
        shards: ShardChoice::These(vec![0, 1]),
        listen: addresses[1],
        ..config(&cluster)
    });
    let again = again.unwrap();
    assert_eq!(drawn(&shards).unwrap(), expected);
    assert_eq!((n_hops(&all), n_hops(&again), n_hops(&rest)), (5, 0, 3));
    all.stop().unwrap();
    let error = drawn(&shards).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("shard 3 at {}: SampleHop: no answer", addresses[0])), "{text}");
    assert!(error.may_be_tried_again());
    again.stop().unwrap();
    rest.stop().unwrap();
}

#[test]
fn when_all_servers_of_a_shard_go_all_are_named() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(&temp);
    let servers = [serve(&cluster, &[0, 1, 2, 3]), serve(&cluster, &[0, 1, 2, 3])];
    let addresses = servers.each_ref().map(Server::address);
    let hasty = RemoteConfig { max_call: Duration::from_millis(500), ..patience() };
    let shards = find(&addresses, 0, hasty).unwrap();
    drawn(&shards).unwrap();
    servers.into_iter().for_each(|server| server.stop().unwrap());
    let text = drawn(&shards).unwrap_err().to_string();
    assert!(text.contains(&format!(" at {} or {}: SampleHop: no answer", addresses[0], addresses[1])), "{text}");
}

/// A silent address: nobody accepts what connects to it.
#[test]
fn absent_replicas_are_skipped() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(&temp);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = nobody.local_addr().unwrap();
    let servers = [serve(&cluster, &[0, 1]), serve(&cluster, &[2, 3])];
    let remote = RemoteConfig { max_silence: Duration::from_secs(1), ..patience() };
    let started = Instant::now();
    let shards = find(&[silent, servers[0].address(), servers[1].address()], 0, remote.clone()).unwrap();
    assert!(started.elapsed() < remote.max_call / 2, "{:?}", started.elapsed());
    assert_eq!(shards.silent(), [silent.to_string()]);
    drawn(&shards).unwrap();
    // Without it a shard is missing: then it is waited for, and named.
    let hasty = RemoteConfig { max_call: Duration::from_secs(2), ..remote };
    let error = find(&[servers[0].address(), silent], 0, hasty).unwrap_err();
    assert!(error.to_string().contains(&silent.to_string()), "{error}");
    assert!(error.may_be_tried_again());
    servers.into_iter().for_each(|server| server.stop().unwrap());
}
