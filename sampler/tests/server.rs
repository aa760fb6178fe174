//! Tests the program `kith-sampler` with a client generated from `sampler.proto`.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request};
use kith_proto::{Call, Messages, PROTOCOL, PROTOCOL_HEADER, v2, v2::sampler_client::SamplerClient};
use kith_store::Cluster;
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tower_service::Service;

use crate::process::{N_NODES, Process, frame, packed, program, run};

mod lists;
#[allow(dead_code)] // Each test uses some of it.
mod process;

/// Neighbors of the first node.
const N_HUB: usize = 3_000_000;

fn cluster(folder: &Path) -> Cluster {
    process::cluster(folder, N_HUB)
}

async fn connect(server: &Process) -> Channel {
    Endpoint::from_shared(format!("http://{}", server.address())).unwrap().connect().await.unwrap()
}

fn all_neighbors(cluster: &Cluster, shard: u32, nodes: &[u32]) -> v2::SampleHopRequest {
    v2::SampleHopRequest {
        graph: cluster.digest().to_owned(),
        parts: packed([shard, nodes.len() as u32]),
        frontier: packed(nodes.iter().copied()),
        most: Some(v2::sample_hop_request::Most::All(true)),
        ..Default::default()
    }
}

/// Sends any bytes with any headers; gives the status that comes back.
async fn send(channel: &mut Channel, call: &str, headers: &[(&'static str, String)], bytes: Vec<u8>) -> Status {
    let mut request = Request::post(call).header("content-type", "application/grpc").header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let body = tonic::body::Body::new(OneFrame(Some(bytes.into())));
    std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
    let response = channel.call(request.body(body).unwrap()).await.unwrap();
    let of = |headers: &HeaderMap| Status::from_header_map(headers);
    if let Some(status) = of(response.headers()) {
        return status;
    }
    let mut messages = Messages::new(response.into_body(), usize::MAX);
    while messages.next().await.unwrap().is_some() {}
    of(messages.trailers().unwrap()).unwrap()
}

/// A request that is one piece.
struct OneFrame(Option<Bytes>);

impl http_body::Body for OneFrame {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

#[test]
fn clients_made_from_the_contract_are_answered() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path());
    let server = Process::start(&cluster, &["--shards", "0,2", "--metrics", "127.0.0.1:0"]);
    assert!(server.line.starts_with("serving shards 0,2 of 3 on 127.0.0.1:"), "{}", server.line);
    assert!(server.line.contains(" (metrics on 127.0.0.1:"), "{}", server.line);
    run(async {
        let channel = connect(&server).await;
        let mut client = SamplerClient::new(channel.clone()).max_decoding_message_size(64 << 20);
        let request = v2::InfoRequest { with_owners: true, ..v2::InfoRequest::default() };
        let mut replies = client.info(request).await.unwrap().into_inner();
        let facts = replies.message().await.unwrap().unwrap().facts.unwrap();
        assert_eq!((facts.protocol, facts.n_nodes, facts.n_shards), (PROTOCOL, N_NODES, 3));
        assert_eq!(facts.shards.iter().map(|shard| shard.shard).collect::<Vec<_>>(), [0, 2]);
        let mut owners = Vec::new();
        while let Some(reply) = replies.message().await.unwrap() {
            owners.extend_from_slice(&reply.owners);
        }
        assert!(owners.iter().enumerate().all(|(node, owner)| node % 3 == usize::from(*owner)));
        assert_eq!(facts.owner_checksum, crc32fast::hash(&owners));
        // A long list comes in pieces.
        let mut replies = client.sample_hop(all_neighbors(&cluster, 0, &[3, 0])).await.unwrap().into_inner();
        let (mut counts, mut neighbors, mut n_replies) = (Vec::new(), Vec::new(), 0);
        while let Some(reply) = replies.message().await.unwrap() {
            counts.extend_from_slice(&reply.counts);
            neighbors.extend_from_slice(&reply.neighbors);
            n_replies += 1;
        }
        assert_eq!(counts, [1u32.to_le_bytes(), (N_HUB as u32).to_le_bytes()].concat());
        assert_eq!(neighbors.len(), 4 * (1 + N_HUB));
        assert!(n_replies > 5, "{n_replies}");
        let request = HealthCheckRequest { service: kith_proto::SERVICE.to_owned() };
        let health = HealthClient::new(channel.clone()).check(request).await.unwrap().into_inner();
        assert_eq!(health.status(), ServingStatus::Serving);
        let mut reflection =
            tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
        let request = tonic_reflection::pb::v1::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(
                tonic_reflection::pb::v1::server_reflection_request::MessageRequest::FileContainingSymbol(
                    kith_proto::SERVICE.to_owned(),
                ),
            ),
        };
        let mut replies = reflection.server_reflection_info(tokio_stream::iter([request])).await.unwrap().into_inner();
        let reply = format!("{:?}", replies.message().await.unwrap().unwrap());
        assert!(reply.contains("FileDescriptorResponse"), "{reply}");
    });
}

#[test]
fn what_is_not_in_the_contract_is_refused_with_its_status() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path());
    let server = Process::start(&cluster, &["--max-message", "5000", "--max-frontier", "1000", "--max-fanout", "30"]);
    let good = || all_neighbors(&cluster, 1, &[1, 4]);
    let hop = Call::SampleHop.path();
    run(async {
        let mut channel = connect(&server).await;
        let cases: Vec<(&str, Vec<u8>, Code, &str)> = vec![
            (hop, frame(&good()), Code::Ok, ""),
            ("/kith.v2.Sampler/Other", frame(&good()), Code::Unimplemented, "no such call"),
            (
                "/kith.v1.Sampler/Info",
                frame(&good()),
                Code::FailedPrecondition,
                "use the same version of Kith on both ends",
            ),
            (hop, vec![0, 0, 0, 0, 3, 0xff, 0xff, 0xff], Code::InvalidArgument, "cannot be read"),
            (hop, vec![0, 0, 0], Code::InvalidArgument, "ended inside a message"),
            (hop, vec![0, 0, 0, 0, 9, 1], Code::InvalidArgument, "ended inside a message"),
            (hop, vec![1, 0, 0, 0, 0], Code::Unimplemented, "compressed"),
            (hop, Vec::new(), Code::InvalidArgument, "no request"),
            (
                hop,
                frame(&v2::SampleHopRequest { frontier: vec![1; 6000].into(), ..good() }),
                Code::ResourceExhausted,
                "over the limit of 5000",
            ),
            (
                hop,
                frame(&v2::SampleHopRequest { frontier: vec![1; 4004].into(), ..good() }),
                Code::ResourceExhausted,
                "1001 frontier are over",
            ),
            (
                hop,
                frame(&v2::SampleHopRequest { frontier: vec![1; 7].into(), ..good() }),
                Code::InvalidArgument,
                "frontier: expected a multiple of 4 bytes, found 7",
            ),
            (hop, frame(&v2::SampleHopRequest { most: None, ..good() }), Code::InvalidArgument, "needs a fanout"),
            (
                hop,
                frame(&v2::SampleHopRequest { most: Some(v2::sample_hop_request::Most::Fanout(0)), ..good() }),
                Code::InvalidArgument,
                "fanout of 0",
            ),
            (
                hop,
                frame(&v2::SampleHopRequest { most: Some(v2::sample_hop_request::Most::Fanout(31)), ..good() }),
                Code::ResourceExhausted,
                "raise --max-fanout",
            ),
            (hop, frame(&v2::SampleHopRequest { graph: "x".into(), ..good() }), Code::FailedPrecondition, "not x"),
            (
                hop,
                frame(&v2::SampleHopRequest { parts: packed([9, 2]), ..good() }),
                Code::NotFound,
                "shard 9 is not served here",
            ),
            (
                hop,
                frame(&v2::SampleHopRequest { parts: packed([1, 3]), ..good() }),
                Code::InvalidArgument,
                "parts: the shards have 3 nodes, and the request has 2",
            ),
            (
                Call::FetchFeatures.path(),
                frame(&v2::FetchFeaturesRequest {
                    graph: cluster.digest().into(),
                    parts: packed([1, 1]),
                    nodes: packed([1]),
                }),
                Code::FailedPrecondition,
                "no features",
            ),
            (
                Call::Seeds.path(),
                frame(&v2::SeedsRequest { graph: cluster.digest().into(), shard: 1, part: 7, ..Default::default() }),
                Code::InvalidArgument,
                "no part 7",
            ),
            (
                Call::Seeds.path(),
                frame(&v2::SeedsRequest { graph: cluster.digest().into(), shard: 1, ..Default::default() }),
                Code::FailedPrecondition,
                "no split",
            ),
            (
                Call::HasEdges.path(),
                frame(&v2::HasEdgesRequest { graph: cluster.digest().into(), direction: 2, ..Default::default() }),
                Code::InvalidArgument,
                "no direction 2",
            ),
            (
                Call::HasEdges.path(),
                frame(&v2::HasEdgesRequest {
                    graph: cluster.digest().into(),
                    counts: vec![1, 0, 0, 0].into(),
                    ..Default::default()
                }),
                Code::InvalidArgument,
                "0 destinations have 1 counts",
            ),
        ];
        for (call, bytes, code, says) in cases {
            let status = send(&mut channel, call, &[], bytes).await;
            assert_eq!(status.code(), code, "{says}: {status}");
            assert!(status.message().contains(says), "{says}: {status}");
        }
        let version = |version: &str| [(PROTOCOL_HEADER, version.to_owned())];
        assert_eq!(send(&mut channel, hop, &version("2"), frame(&good())).await.code(), Code::Ok);
        for other in ["1", "x", ""] {
            let status = send(&mut channel, hop, &version(other), frame(&good())).await;
            assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
            assert!(status.message().contains("speaks version 2 of the protocol"), "{status}");
        }
    });
}

#[test]
fn calls_in_flight_end_before_the_server_does() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path());
    for signal in ["TERM", "INT"] {
        let mut server = Process::start(&cluster, &["--max-drain", "8"]);
        run(async {
            let mut client = SamplerClient::new(connect(&server).await).max_decoding_message_size(64 << 20);
            // Far more than windows and buffers hold: it is in flight until it is read.
            let mut replies = client.sample_hop(all_neighbors(&cluster, 0, &[0; 5])).await.unwrap().into_inner();
            let mut n_bytes = replies.message().await.unwrap().unwrap().neighbors.len();
            server.signal(signal);
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(server.child.try_wait().unwrap().is_none(), "it waits for the call");
            let refused = Endpoint::from_shared(format!("http://{}", server.address())).unwrap().connect().await;
            assert!(refused.is_err(), "nobody else is let in");
            while let Some(reply) = replies.message().await.unwrap() {
                n_bytes += reply.neighbors.len();
            }
            assert_eq!(n_bytes, 5 * 4 * N_HUB);
        });
        assert_eq!(server.wait(Duration::from_secs(5)), Some(0));
    }
}

/// A health watch receives the shutdown, and does not delay it.
#[test]
fn watchers_hear_that_the_server_goes() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path());
    let mut server = Process::start(&cluster, &["--max-drain", "20"]);
    run(async {
        let mut client = HealthClient::new(connect(&server).await);
        let request = HealthCheckRequest { service: kith_proto::SERVICE.to_owned() };
        let mut health = client.watch(request).await.unwrap().into_inner();
        assert_eq!(health.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
        server.signal("TERM");
        assert_eq!(health.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
        let ended = tokio::task::spawn_blocking(move || server.wait(Duration::from_secs(5))).await.unwrap();
        assert_eq!(ended, Some(0));
    });
}

/// Somebody who never reads cannot keep a server from ending.
#[test]
fn draining_has_a_limit() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path());
    let mut server = Process::start(&cluster, &["--max-drain", "1"]);
    run(async {
        let mut client = SamplerClient::new(connect(&server).await).max_decoding_message_size(64 << 20);
        let replies = client.sample_hop(all_neighbors(&cluster, 0, &[0; 5])).await.unwrap();
        server.signal("TERM");
        let ended = tokio::task::spawn_blocking(move || server.wait(Duration::from_secs(5))).await.unwrap();
        assert_eq!(ended, Some(0));
        drop(replies);
    });
}

#[test]
fn what_cannot_be_served_gets_a_sentence() {
    let temp = tempfile::tempdir().unwrap();
    let cluster = cluster(temp.path());
    let dir = cluster.dir().to_str().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (args, says) in [
        (vec!["--graph", "/no/such/place", "--listen", "127.0.0.1:0"], "/no/such/place"),
        (vec!["--cluster", dir, "--listen", &address], "note: --cluster is now called --graph"),
        (vec!["--graph", dir, "--listen", "127.0.0.1:0", "--shards", "7"], "7"),
        (vec!["--graph", dir, "--listen", &address], "cannot listen on"),
        (vec!["--graph", dir, "--listen", "nowhere"], "no HOST:PORT"),
        (
            vec!["--graph", dir, "--listen", "127.0.0.1:0", "--shards", "1,x"],
            "expected shard numbers and ranges, as in 0,2-3, found x",
        ),
    ] {
        let output = program().args(&args).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(says) && !text.contains("panicked"), "{args:?}: {text}");
    }
}
