//! Metrics of a server.

use std::{
    collections::HashSet,
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use kith_proto::Call;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tonic::Code;

use crate::{
    prometheus::{Shown, describe_process},
    server::{
        connections::Connections,
        limit::{Limit, LimitCounts},
        refused::Refused,
    },
};

/// Codes that are counted from the start: the first failure of a kind raises an alert, because its counter was 0 before.
const FROM_THE_START: [Code; 4] = [Code::Ok, Code::DataLoss, Code::Internal, Code::FailedPrecondition];

/// Number of gRPC status codes.
const N_CODES: usize = 17;

/// Upper bounds of histograms, in seconds.
const BUCKETS: [f64; 12] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0];

/// Damaged blocks that are told apart. A disk with more of them is broken.
const MAX_DAMAGED: usize = 1024;

/// A set of labels and their values.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// All metrics of a server. A call is counted before its end is sent, so a client that has its answer finds the call
/// counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    calls: [CallMetrics; Call::ALL.len()],
    ended: Family<Labels<2>, Counter>,
    refused: [Counter; Refused::ALL.len()],
    limits: LimitCounts,
    /// Waits of pieces of work for a thread.
    queue: Histogram,
    damaged: Mutex<HashSet<String>>,
    n_damaged: Gauge,
    n_connections: Gauge,
    n_bytes: Gauge,
}

#[derive(Debug)]
struct CallMetrics {
    /// Made when a call first ends with the code, or at the start.
    by_code: [OnceLock<Counter>; N_CODES],
    received_bytes: Counter,
    sent_bytes: Counter,
    sampled_nodes: Counter,
    sent_rows: Counter,
    in_flight: Gauge,
    seconds: Histogram,
}

fn labels_of(call: Call, code: Code) -> Labels<2> {
    [("call", call.name()), ("code", code_name(code))]
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::default();
        describe_process(&mut registry, "kith-sampler");
        let (n_connections, n_bytes, n_damaged) = (Gauge::default(), Gauge::default(), Gauge::default());
        registry.register("kith_sampler_connections", "Open connections", n_connections.clone());
        registry.register("kith_sampler_call_bytes", "Memory of requests and answers", n_bytes.clone());
        let help = "Damaged blocks and values of files that calls ran into";
        registry.register("kith_sampler_damaged_blocks", help, n_damaged.clone());
        let refused = Family::<Labels<1>, Counter>::default();
        let help = "Connections for which there was no room, or whose handshake failed, by reason";
        registry.register("kith_sampler_refused_connections", help, refused.clone());
        let limits = Family::<Labels<1>, Counter>::default();
        let help = "Times that a limit was reached, by the option that sets it";
        registry.register("kith_sampler_limits_reached", help, limits.clone());
        let queue = histogram();
        let help = "Waits of pieces of work for a thread that computes";
        registry.register("kith_sampler_queue_seconds", help, queue.clone());
        let ended = Family::<Labels<2>, Counter>::default();
        registry.register("kith_sampler_requests", "Calls that ended, by gRPC status", ended.clone());
        let counters = [
            ("kith_sampler_received_bytes", "Bytes of requests"),
            ("kith_sampler_sent_bytes", "Bytes of answers"),
            ("kith_sampler_sampled_nodes", "Nodes whose neighbors were drawn"),
            ("kith_sampler_sent_rows", "Feature vectors sent"),
        ];
        let [received_bytes, sent_bytes, sampled_nodes, sent_rows] = counters.map(|(name, help)| {
            let family = Family::<Labels<1>, Counter>::default();
            registry.register(name, help, family.clone());
            family
        });
        let in_flight = Family::<Labels<1>, Gauge>::default();
        registry.register("kith_sampler_requests_in_flight", "Calls that have not ended", in_flight.clone());
        let seconds = Family::<Labels<1>, Histogram>::new_with_constructor(histogram);
        let help = "Duration of calls, to the end of their answer";
        registry.register("kith_sampler_request_seconds", help, seconds.clone());
        let count = |call: Call, code: Code| ended.get_or_create_owned(&labels_of(call, code));
        Metrics {
            registry,
            calls: Call::ALL.map(|call| {
                let labels = [("call", call.name())];
                let by_code = [const { OnceLock::new() }; N_CODES];
                for code in FROM_THE_START {
                    by_code[code as usize].get_or_init(|| count(call, code));
                }
                CallMetrics {
                    by_code,
                    received_bytes: received_bytes.get_or_create_owned(&labels),
                    sent_bytes: sent_bytes.get_or_create_owned(&labels),
                    sampled_nodes: sampled_nodes.get_or_create_owned(&labels),
                    sent_rows: sent_rows.get_or_create_owned(&labels),
                    in_flight: in_flight.get_or_create_owned(&labels),
                    seconds: seconds.get_or_create_owned(&labels),
                }
            }),
            ended,
            refused: Refused::ALL.map(|reason| refused.get_or_create_owned(&[("reason", reason.name())])),
            limits: LimitCounts::new(&limits),
            queue,
            damaged: Mutex::default(),
            n_damaged,
            n_connections,
            n_bytes,
        }
    }

    pub(crate) fn started(&self, call: Call) {
        self.of(call).in_flight.inc();
    }

    pub(crate) fn received(&self, call: Call, n_bytes: usize) {
        self.of(call).received_bytes.inc_by(n_bytes as u64);
    }

    pub(crate) fn sent(&self, call: Call, n_bytes: usize) {
        self.of(call).sent_bytes.inc_by(n_bytes as u64);
    }

    pub(crate) fn answered(&self, call: Call, n_sampled: u64, n_rows: u64) {
        self.of(call).sampled_nodes.inc_by(n_sampled);
        self.of(call).sent_rows.inc_by(n_rows);
    }

    pub(crate) fn ended(&self, call: Call, code: Code, took: Duration) {
        let of = self.of(call);
        of.in_flight.dec();
        of.seconds.observe(took.as_secs_f64());
        of.by_code[code as usize].get_or_init(|| self.ended.get_or_create_owned(&labels_of(call, code))).inc();
    }

    /// A connection for which there was no room, or that did not begin as it should.
    pub(crate) fn refused_connection(&self, reason: Refused) {
        self.refused[reason as usize].inc();
    }

    /// A limit that a call reached.
    pub(crate) fn reached(&self, limit: Limit) {
        self.limits.reached(limit);
    }

    /// Counters of limits, for the places that reach them.
    pub(crate) fn limits(&self) -> &LimitCounts {
        &self.limits
    }

    /// Waits of work for a thread.
    pub(crate) fn queue(&self) -> &Histogram {
        &self.queue
    }

    /// Damage of a file, as a status describes it: each is counted once.
    pub(crate) fn damaged(&self, problem: &str) {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        if damaged.len() < MAX_DAMAGED && !damaged.contains(problem) {
            damaged.insert(problem.to_owned());
            self.n_damaged.set(damaged.len() as i64);
        }
    }

    /// Calls that have not ended.
    pub(crate) fn n_in_flight(&self) -> i64 {
        self.calls.iter().map(|of| of.in_flight.get()).sum()
    }

    fn of(&self, call: Call) -> &CallMetrics {
        &self.calls[call as usize]
    }

    /// All values.
    pub(crate) fn page(&self, connections: &Connections) -> Shown {
        self.n_connections.set(connections.n_open() as i64);
        self.n_bytes.set(connections.n_bytes() as i64);
        Shown::metrics(&self.registry)
    }
}

/// A code as the specification writes it.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn page(metrics: &Metrics) -> String {
        let mut page = String::new();
        encode(&mut page, &metrics.registry).unwrap();
        page
    }

    #[track_caller]
    fn assert_has(page: &str, lines: &[&str]) {
        for line in lines {
            assert!(page.lines().any(|found| found == *line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn what_was_counted_is_on_the_page() {
        let metrics = Metrics::new();
        metrics.started(Call::FetchFeatures);
        metrics.started(Call::FetchFeatures);
        metrics.received(Call::FetchFeatures, 40);
        metrics.ended(Call::FetchFeatures, Code::Unauthenticated, Duration::from_micros(300));
        metrics.answered(Call::SampleHop, 7, 0);
        metrics.refused_connection(Refused::Tls);
        metrics.reached(Limit::MaxFanout);
        metrics.queue().observe(0.002);
        let page = page(&metrics);
        assert_has(
            &page,
            &[
                "kith_sampler_requests_total{call=\"FetchFeatures\",code=\"UNAUTHENTICATED\"} 1",
                "kith_sampler_requests_total{call=\"FetchFeatures\",code=\"DATA_LOSS\"} 0",
                "kith_sampler_connections 0",
                "kith_sampler_received_bytes_total{call=\"FetchFeatures\"} 40",
                "kith_sampler_requests_in_flight{call=\"FetchFeatures\"} 1",
                "kith_sampler_sampled_nodes_total{call=\"SampleHop\"} 7",
                "kith_sampler_request_seconds_bucket{le=\"0.00025\",call=\"FetchFeatures\"} 0",
                "kith_sampler_request_seconds_bucket{le=\"0.0005\",call=\"FetchFeatures\"} 1",
                "kith_sampler_request_seconds_bucket{le=\"+Inf\",call=\"FetchFeatures\"} 1",
                "kith_sampler_request_seconds_count{call=\"FetchFeatures\"} 1",
                "kith_sampler_refused_connections_total{reason=\"tls\"} 1",
                "kith_sampler_refused_connections_total{reason=\"silent\"} 0",
                "kith_sampler_limits_reached_total{limit=\"max-fanout\"} 1",
                "kith_sampler_limits_reached_total{limit=\"max-call\"} 0",
                "kith_sampler_queue_seconds_bucket{le=\"0.0025\"} 1",
                "kith_sampler_queue_seconds_bucket{le=\"0.001\"} 0",
                "kith_sampler_damaged_blocks 0",
            ],
        );
        assert!(page.contains("\nkith_build_info{program=\"kith-sampler\",") && page.ends_with("# EOF\n"), "{page}");
    }

    #[test]
    fn damage_is_counted_once_per_block() {
        let metrics = Metrics::new();
        ["block 1", "block 2", "block 1"].iter().for_each(|problem| metrics.damaged(problem));
        assert_has(&page(&metrics), &["kith_sampler_damaged_blocks 2"]);
        (0..2 * MAX_DAMAGED).for_each(|n| metrics.damaged(&format!("row {n}")));
        assert_has(&page(&metrics), &[&format!("kith_sampler_damaged_blocks {MAX_DAMAGED}")]);
    }
}
