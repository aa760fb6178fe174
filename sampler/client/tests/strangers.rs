//! Servers that require a token, and servers that send unrequested data.

mod graphs;

use std::{
    collections::VecDeque,
    convert::Infallible,
    fs,
    future::Future,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::{BufMut, Bytes, BytesMut};
use graphs::{Edges, open};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use kith_client::{
    ClientError, FetchedRows,
    remote::{RemoteConfig, RemoteProblem, RemoteSampler, TokenSource},
};
use kith_proto::{Call, Messages, SERVICE, frame_message, v2};
use kith_sampler::{Drawn, EdgeData, Fanout, Hop, Sampling, server::Unplugged};
use kith_store::{Cut, Provenance, write_cluster};
use prost::Message as _;
use tonic::{Status, body::Body, server::NamedService, transport::server::TcpIncoming};
use tower_service::Service;

/// Answers of a stranger: frames to a request, or a status.
type Answers = dyn Fn(Call, &HeaderMap, Bytes) -> Result<Vec<Bytes>, Status> + Send + Sync;

/// A server that answers as it likes.
#[derive(Clone)]
struct Stranger(Arc<Answers>);

impl NamedService for Stranger {
    const NAME: &'static str = SERVICE;
}

impl Service<Request<Body>> for Stranger {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answers = Arc::clone(&self.0);
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let call = Call::of_path(head.uri.path()).unwrap();
            let message = Messages::new(body, 1 << 30).next().await.unwrap().unwrap();
            // As a frame again.
            let request = message.pieces().collect::<Vec<_>>().concat();
            let mut frame = BytesMut::new();
            frame.put_u8(0);
            frame.put_u32(request.len() as u32);
            frame.put_slice(&request);
            Ok(match answers(call, &head.headers, frame.freeze()) {
                Err(status) => status.into_http(),
                Ok(frames) => {
                    let mut response = Response::new(Body::new(Frames(Some(frames.into()))));
                    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
                    response
                }
            })
        })
    }
}

struct Frames(Option<VecDeque<Bytes>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(frames) = &mut self.0 else { return Poll::Ready(None) };
        if let Some(frame) = frames.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        self.0 = None;
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

/// A cluster of one shard, served in this process.
fn honest(folder: &Path) -> Arc<Unplugged> {
    let edges = Edges::random(300, 2000, 5).train(&[3, 8, 9]);
    let (method, provenance) = ("by hand".to_owned(), Provenance::default());
    let cut = Cut { owner: &[0; 300], n_shards: 1, inclusion: None, method, provenance };
    write_cluster(&open(folder, &edges), &cut, &folder.join("cluster"), &|_| ()).unwrap();
    Arc::new(Unplugged::open(&folder.join("cluster"), &[]).unwrap())
}

fn frames(server: &Unplugged, call: Call, request: Bytes) -> Result<Vec<Bytes>, Status> {
    let frame = |message: kith_proto::Message| {
        let bytes = message.pieces().collect::<Vec<_>>().concat();
        let mut frame = BytesMut::with_capacity(bytes.len() + 5);
        frame.put_u8(0);
        frame.put_u32(bytes.len() as u32);
        frame.put_slice(&bytes);
        frame.freeze()
    };
    Ok(server.answer(call, request)?.into_iter().map(frame).collect())
}

/// Runs a client against a stranger, for no longer than tests may take.
fn with_stranger<T>(answers: Arc<Answers>, client: impl AsyncFnOnce(SocketAddr) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = tonic::transport::Server::builder().add_service(Stranger(answers));
        let serving = tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener)));
        let found = tokio::time::timeout(Duration::from_secs(20), client(address)).await.expect("never a hang");
        serving.abort();
        found
    })
}

fn config(token: Option<TokenSource>) -> RemoteConfig {
    RemoteConfig { max_call: Duration::from_secs(3), token, ..RemoteConfig::default() }
}

async fn connect(address: impl ToString, token: Option<TokenSource>) -> Result<RemoteSampler, ClientError> {
    RemoteSampler::connect(&address.to_string(), None, config(token)).await
}

fn problem(result: Result<impl Sized, ClientError>) -> RemoteProblem {
    match result {
        Err(ClientError::Remote(error)) => error.problem,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

fn file(path: &Path) -> Option<TokenSource> {
    Some(TokenSource::File(path.to_owned()))
}

#[test]
fn tokens_are_shown_on_every_call_and_read_again() {
    let temp = tempfile::tempdir().unwrap();
    let server = honest(temp.path());
    let expected = Arc::new(Mutex::new("Bearer first-token-of-many"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (expects, sees) = (Arc::clone(&expected), Arc::clone(&seen));
    let answers = move |call: Call, headers: &HeaderMap, request: Bytes| {
        let shown = headers.get("authorization").map(|header| header.to_str().unwrap().to_owned());
        if shown.as_deref() != Some(*expects.lock().unwrap()) {
            return Err(Status::unauthenticated("this server asks for a token"));
        }
        sees.lock().unwrap().push(call);
        frames(&server, call, request)
    };
    let path: PathBuf = temp.path().join("token");
    fs::write(&path, "first-token-of-many\n").unwrap();
    with_stranger(Arc::new(answers), async |address| {
        // None, and another one: at once, with a sentence that says what to do and not what was shown.
        let text = TokenSource::Text { origin: "KITH_SAMPLER_TOKEN", token: "not-a-token-of-it".into() };
        for token in [None, Some(text)] {
            let started = Instant::now();
            let error = connect(address, token).await.unwrap_err();
            assert!(!error.may_be_tried_again(), "{error}");
            let text = error.to_string();
            assert!(text.contains("--token-file FILE or KITH_SAMPLER_TOKEN"), "{text}");
            assert!(!format!("{text} {error:?}").contains("not-a-token"), "{error:?}");
            assert!(started.elapsed() < Duration::from_secs(2));
        }
        let remote = connect(address, file(&path)).await.unwrap();
        assert!(!format!("{remote:?}").contains("first-token"), "{remote:?}");
        let mut rows = FetchedRows::default();
        remote.fetch_features(0, &[1, 2, 3], &mut rows).await.unwrap();
        assert_eq!(*seen.lock().unwrap(), [Call::Info, Call::FetchFeatures]);
        // The server changes to another token first, then the client's file.
        *expected.lock().unwrap() = "Bearer second-token-of-many";
        let refused = problem(remote.fetch_features(0, &[1], &mut rows).await);
        assert!(matches!(refused, RemoteProblem::Unauthenticated(_)), "{refused}");
        fs::write(&path, "second-token-of-many\n").unwrap();
        remote.fetch_features(0, &[1, 2, 3], &mut rows).await.unwrap();
        assert_eq!(rows.values, [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]);
    });
}

#[test]
fn who_is_not_admitted_is_told_so() {
    let answers = |_: Call, _: &HeaderMap, _: Bytes| {
        Err::<Vec<Bytes>, Status>(Status::permission_denied("\u{1b}[31mno client-7 here"))
    };
    with_stranger(Arc::new(answers), async |address| {
        let error = connect(address, None).await.unwrap_err();
        assert!(!error.may_be_tried_again());
        let text = error.to_string();
        assert!(text.contains("not admitted: the server must be told to admit this certificate or token"), "{text}");
        assert!(text.contains("no client-7 here") && !text.contains('\u{1b}'), "{text:?}");
    });
}

#[test]
fn no_token_travels_in_the_clear() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let token = || Some(TokenSource::Text { origin: "KITH_SAMPLER_TOKEN", token: "a-token-like-any-other".into() });
    for address in ["10.0.0.1:7000", "sampler:7000", "[2001:db8::1]:7000"] {
        let refused = problem(runtime.block_on(connect(address, token())));
        assert!(matches!(refused, RemoteProblem::TokenUnencrypted), "{refused}");
        assert!(refused.to_string().contains("give --tls-ca FILE"), "{refused}");
    }
    let absent = problem(runtime.block_on(connect("127.0.0.1:1", file(Path::new("/nowhere/token")))));
    assert!(absent.to_string().starts_with("/nowhere/token: "), "{absent}");
}

/// Facts as an honest server tells them, changed.
fn lying(server: &Unplugged, request: Bytes, lie: impl Fn(&mut v2::Facts)) -> Vec<Bytes> {
    let message = server.answer(Call::Info, request).unwrap().remove(0);
    let mut reply = v2::InfoReply::decode(message).unwrap();
    lie(reply.facts.as_mut().unwrap());
    vec![frame_message(&reply)]
}

type Lie = fn(&mut v2::Facts);

/// Counts that contradict each other are refused before anything is made of them.
#[test]
fn facts_that_cannot_be_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let server = honest(temp.path());
    let lies: [(Lie, &str); 12] = [
        (|facts| facts.n_shards = 0, "or none"),
        (|facts| facts.n_shards = u32::MAX, "more shards than owners can name"),
        (|facts| facts.owner_bytes = 2, "more shards than owners can name"),
        (|facts| facts.shards[0].n_nodes = 301, "more nodes or edges than the graph"),
        (|facts| facts.shards[0].n_edges = u64::MAX, "more nodes or edges than the graph"),
        (|facts| facts.shards.push(facts.shards[0]), "or served twice"),
        (|facts| facts.n_nodes = 1 << 33, "more nodes than ids"),
        (|facts| facts.features.as_mut().unwrap().dim = 1 << 21, "not known here"),
        (|facts| facts.labels.as_mut().unwrap().n_classes = u64::MAX, "too many classes"),
        (|facts| facts.graph = "x".repeat(200), "too long"),
        (|facts| facts.splits = vec![String::new(); 5000], "too long"),
        (|facts| facts.source = "x".repeat(5 << 20), "the most that was asked for"),
    ];
    for (lie, says) in lies {
        let server = Arc::clone(&server);
        let answers = move |_: Call, _: &HeaderMap, request: Bytes| Ok(lying(&server, request, lie));
        let refused = with_stranger(Arc::new(answers), async |address| problem(connect(address, None).await));
        assert!(matches!(refused, RemoteProblem::Nonsense(_)), "{says}: {refused}");
        assert!(refused.to_string().contains(says), "{says}: {refused}");
    }
}

/// Frames that never end, and one that is longer than all that was asked for.
#[test]
fn answers_are_bounded_by_the_question() {
    let temp = tempfile::tempdir().unwrap();
    let server = honest(temp.path());
    let field = |number: u8, n_bytes: usize| {
        let mut frame = BytesMut::new();
        let message = v2::FetchFeaturesReply { values: vec![0; n_bytes].into(), ..Default::default() }.encode_to_vec();
        frame.put_u8(0);
        frame.put_u32(message.len() as u32);
        frame.put_slice(&message);
        if n_bytes > 0 {
            frame[5] = number << 3 | 2; // Another field.
        }
        frame.freeze()
    };
    // A part of a row, and half a KiB of a field that nobody knows.
    let padded = {
        let mut frame = BytesMut::from(&field(1, 4)[..]);
        frame.unsplit(BytesMut::from(&field(7, 512)[5..]));
        let n_bytes = frame.len() as u32 - 5;
        frame[1..5].copy_from_slice(&n_bytes.to_be_bytes());
        frame.freeze()
    };
    let cases: [(Vec<Bytes>, &str); 6] = [
        (vec![padded; 4], "the most that was asked for"),
        (vec![field(1, 8); 100], "expected 16 bytes of rows, got"),
        (vec![field(1, 0); 10_000], "the answer makes no sense"),
        (vec![field(7, 1 << 20)], "the most that was asked for"),
        (vec![field(7, 100); 100_000], "the answer makes no sense"),
        (vec![Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]), Bytes::from(vec![0; 1 << 20])], "that was asked for"),
    ];
    for (sent, says) in cases {
        let server = Arc::clone(&server);
        let answers = move |call: Call, _: &HeaderMap, request: Bytes| match call {
            Call::Info => frames(&server, call, request),
            _ => Ok(sent.clone()),
        };
        with_stranger(Arc::new(answers), async |address| {
            let remote = connect(address, None).await.unwrap();
            let mut rows = FetchedRows::default();
            let refused = problem(remote.fetch_features(0, &[1, 2], &mut rows).await);
            assert!(matches!(refused, RemoteProblem::Nonsense(_)), "{refused}");
            assert!(refused.to_string().contains(says), "{says}: {refused}");
            let hop = Hop {
                run_key: 7,
                step: 3,
                hop: 1,
                fanout: Fanout::at_most(2).unwrap(),
                sampling: Sampling::Uniform,
                edge_data: EdgeData::NONE,
            };
            problem(remote.sample_hop(0, &hop, &[1, 2], &mut Drawn::default()).await);
            problem(remote.has_edges(0, &[(1, 2)], kith_sampler::Direction::Forward, &mut [false]).await);
            problem(remote.seeds(0, None, kith_store::SplitPart::Train).await);
            assert!(remote.counts(Call::FetchFeatures).received_bytes < 4 << 20);
        });
    }
}
