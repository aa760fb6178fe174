//! Spans of a job, as an OpenTelemetry collector receives them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpListener,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::Span,
};
use tonic::{Request, Response, Status, transport::Server, transport::server::TcpIncoming};

use crate::kith::{kith, run_kith};

/// A span and the attributes of its process.
#[derive(Clone, Debug)]
struct Received {
    span: Span,
    process: BTreeMap<String, String>,
}

impl Received {
    fn service(&self) -> &str {
        &self.process["service.name"]
    }

    fn attribute(&self, key: &str) -> Option<String> {
        texts(&self.span.attributes).remove(key)
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|own| (own.key.clone(), text(&own.value))).collect()
}

/// A collector that keeps everything.
#[derive(Clone, Debug, Default)]
struct Collector(Arc<Mutex<Vec<Received>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for of_process in request.into_inner().resource_spans {
            let process = texts(&of_process.resource.unwrap_or_default().attributes);
            let spans = of_process.scope_spans.into_iter().flat_map(|scope| scope.spans);
            let received = spans.map(|span| Received { span, process: process.clone() });
            self.0.lock().unwrap().extend(received);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Serves until the runtime is dropped; its address.
    fn serve(&self, runtime: &tokio::runtime::Runtime) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let own = self.clone();
        runtime.spawn(async move {
            let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener).unwrap());
            Server::builder().add_service(TraceServiceServer::new(own)).serve_with_incoming(incoming).await.unwrap();
        });
        url
    }

    fn spans(&self) -> Vec<Received> {
        self.0.lock().unwrap().clone()
    }
}

struct Places {
    temp: tempfile::TempDir,
}

impl Places {
    fn new() -> Places {
        let places = Places { temp: tempfile::tempdir().unwrap() };
        let options = ["--nodes", "500", "--degree", "8", "--classes", "4", "--dim", "16", "--seed", "7"];
        kith([&["data", "generate", "power-law", "--out", &places.path("store")], &options[..]].concat());
        kith(["partition", &places.path("store"), "--shards", "2", "--method", "hash", "--out", &places.path("graph")]);
        places
    }

    fn path(&self, name: &str) -> String {
        self.temp.path().join(name).to_str().unwrap().to_owned()
    }

    /// Trains for two epochs with two ranks and two servers.
    fn train(&self, otlp: &str) -> crate::kith::Finished {
        let (graph, out) = (self.path("graph"), self.path("run"));
        let options = ["--ranks", "2", "--samplers", "2", "--out", &out, "--otlp", otlp];
        let set =
            ["train.mode=mini-batch", "train.epochs=2", "train.slices=2", "train.batch_size=100", "early_stop=off"];
        let set = set.iter().flat_map(|assignment| ["--set", assignment]);
        run_kith(
            ["launch", "partition-graph/supergat-mx", "--graph", &graph]
                .into_iter()
                .chain(options)
                .chain(set)
                .collect::<Vec<_>>(),
        )
    }
}

#[test]
fn a_collector_gets_steps_and_calls_with_their_servers() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (collector, places) = (Collector::default(), Places::new());
    let finished = places.train(&collector.serve(&runtime));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);

    let spans = collector.spans();
    let by_id: BTreeMap<&[u8], &Received> = spans.iter().map(|span| (&*span.span.span_id, span)).collect();
    let parent = |span: &Received| by_id.get(&*span.span.parent_span_id).copied();
    let named = |service: &str| -> BTreeSet<String> {
        spans.iter().filter(|span| span.service() == service).map(|span| span.span.name.clone()).collect()
    };
    let phases = ["step", "sample", "compute", "exchange", "update", "evaluate", "save", "batch"];
    let found = named("kith-trainer");
    assert!(phases.iter().all(|name| found.contains(*name)), "{found:?}");
    let ranks: BTreeSet<_> = spans.iter().filter_map(|span| span.process.get("kith.rank")).collect();
    assert_eq!(ranks.len(), 2, "{ranks:?}");

    // A call of a rank, in a batch, has the server's part below it, on the same trace.
    let served: Vec<&Received> = spans.iter().filter(|span| span.service() == "kith-sampler").collect();
    let sampled: Vec<_> = served.iter().filter(|span| span.span.name == "SampleHop").collect();
    assert!(!sampled.is_empty(), "{:?}", named("kith-sampler"));
    let mut n_in_batches = 0;
    for call in sampled {
        let asked = parent(call).expect("the call of a rank");
        assert_eq!((asked.service(), &*asked.span.name), ("kith-trainer", "SampleHop"));
        assert_eq!(
            (&asked.span.trace_id, asked.attribute("session")),
            (&call.span.trace_id, call.attribute("session"))
        );
        assert_eq!(call.attribute("code").as_deref(), Some("OK"));
        // Evaluations make no batches.
        if let Some(batch) = parent(asked) {
            assert_eq!(batch.span.name, "batch");
            assert!(batch.attribute("step").is_some() && batch.attribute("slice").is_some());
            n_in_batches += 1;
        }
    }
    assert!(n_in_batches > 4, "{n_in_batches}");
    // Phases are parts of their steps.
    let exchanges = spans.iter().filter(|span| span.span.name == "exchange");
    assert!(exchanges.clone().count() > 4);
    assert!(exchanges.map(|span| &*parent(span).unwrap().span.name).all(|name| name == "step"));
}

/// A run does not need its collector, and does not wait for it for long.
#[test]
fn a_missing_collector_changes_nothing() {
    let places = Places::new();
    let started = Instant::now();
    // Nobody listens on this port.
    let finished = places.train("http://127.0.0.1:1");
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());

    let refused = run_kith(["data", "list", "--otlp", "localhost:4317"]);
    assert_eq!(refused.code, Some(1));
    let expected = "error: --otlp: expected an address such as http://localhost:4317, found localhost:4317: it must begin with http://";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
}
