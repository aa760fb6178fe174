//! Counters of a server, and their Prometheus text.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use kith_proto::Call;
use tonic::Code;

use crate::{prometheus::Page, server::connections::Connections};

/// Number of gRPC status codes.
const N_CODES: usize = 17;

/// Upper bounds of the latency histogram.
const BUCKETS_MICROS: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000];

/// All counters of a server. A call is counted before its end is sent, so a client that has its answer finds the call
/// counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    calls: [CallMetrics; Call::ALL.len()],
    refused_connections: AtomicU64,
}

#[derive(Debug, Default)]
struct CallMetrics {
    by_code: [AtomicU64; N_CODES],
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    sampled_nodes: AtomicU64,
    sent_rows: AtomicU64,
    in_flight: AtomicI64,
    /// The last is for what is longer than all bounds.
    by_bucket: [AtomicU64; BUCKETS_MICROS.len() + 1],
    total_micros: AtomicU64,
}

impl Metrics {
    pub(crate) fn started(&self, call: Call) {
        self.of(call).in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, call: Call, n_bytes: usize) {
        self.of(call).received_bytes.fetch_add(n_bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, call: Call, n_bytes: usize) {
        self.of(call).sent_bytes.fetch_add(n_bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn answered(&self, call: Call, n_sampled: u64, n_rows: u64) {
        self.of(call).sampled_nodes.fetch_add(n_sampled, Ordering::Relaxed);
        self.of(call).sent_rows.fetch_add(n_rows, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self, call: Call, code: Code, took: Duration) {
        let of = self.of(call);
        let micros = took.as_micros() as u64;
        let bucket = BUCKETS_MICROS.partition_point(|bound| *bound < micros);
        of.in_flight.fetch_sub(1, Ordering::Relaxed);
        of.by_bucket[bucket].fetch_add(1, Ordering::Relaxed);
        of.total_micros.fetch_add(micros, Ordering::Relaxed);
        of.by_code[code as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A connection for which there was no room, or that did not begin as it should.
    pub(crate) fn refused_connection(&self) {
        self.refused_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls that have not ended.
    pub(crate) fn n_in_flight(&self) -> i64 {
        self.calls.iter().map(|of| of.in_flight.load(Ordering::Relaxed)).sum()
    }

    fn of(&self, call: Call) -> &CallMetrics {
        &self.calls[call as usize]
    }

    /// Everything in Prometheus's text format.
    pub(crate) fn page(&self, connections: &Connections) -> String {
        let mut page = Page::default();
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let of_server = [
            ("kith_sampler_connections", "gauge", "Open connections.", connections.n_open() as f64),
            ("kith_sampler_call_bytes", "gauge", "Memory of requests and answers.", connections.n_bytes() as f64),
            (
                "kith_sampler_refused_connections_total",
                "counter",
                "Connections for which there was no room, or whose handshake failed.",
                number(&self.refused_connections),
            ),
        ];
        for (name, kind, help, value) in of_server {
            page.family(name, kind, help);
            page.sample(name, &[], value);
        }
        page.family("kith_sampler_requests_total", "counter", "Calls that ended, by gRPC status.");
        for call in Call::ALL {
            for (code, n) in self.of(call).by_code.iter().enumerate().filter(|(_, n)| number(n) > 0.0) {
                let labels = [("call", call.name()), ("code", code_name(Code::from_i32(code as i32)))];
                page.sample("kith_sampler_requests_total", &labels, number(n));
            }
        }
        type Value = fn(&CallMetrics) -> f64;
        let families: [(&str, &str, &str, Value); 5] = [
            ("kith_sampler_received_bytes_total", "counter", "Bytes of requests.", |of| {
                of.received_bytes.load(Ordering::Relaxed) as f64
            }),
            ("kith_sampler_sent_bytes_total", "counter", "Bytes of answers.", |of| {
                of.sent_bytes.load(Ordering::Relaxed) as f64
            }),
            ("kith_sampler_sampled_nodes_total", "counter", "Nodes whose neighbors were drawn.", |of| {
                of.sampled_nodes.load(Ordering::Relaxed) as f64
            }),
            ("kith_sampler_sent_rows_total", "counter", "Features sent.", |of| {
                of.sent_rows.load(Ordering::Relaxed) as f64
            }),
            ("kith_sampler_requests_in_flight", "gauge", "Calls that have not ended.", |of| {
                of.in_flight.load(Ordering::Relaxed) as f64
            }),
        ];
        for (name, kind, help, value) in families {
            page.family(name, kind, help);
            for call in Call::ALL {
                page.sample(name, &[("call", call.name())], value(self.of(call)));
            }
        }
        let name = "kith_sampler_request_seconds";
        page.family(name, "histogram", "How long calls took, to the end of their answer.");
        for call in Call::ALL {
            let of = self.of(call);
            let mut n_below = 0.0;
            let bounds = BUCKETS_MICROS.iter().map(|micros| (*micros as f64 / 1e6).to_string());
            for (bound, n) in bounds.chain(["+Inf".to_owned()]).zip(&of.by_bucket) {
                n_below += number(n);
                page.sample(&format!("{name}_bucket"), &[("call", call.name()), ("le", &bound)], n_below);
            }
            page.sample(&format!("{name}_sum"), &[("call", call.name())], number(&of.total_micros) / 1e6);
            page.sample(&format!("{name}_count"), &[("call", call.name())], n_below);
        }
        page.finish()
    }
}

/// One call in the metrics, from its start to its end or the moment its client goes.
pub(crate) struct Record {
    metrics: Arc<Metrics>,
    call: Call,
    started: Instant,
    has_ended: AtomicBool,
}

impl Record {
    pub(crate) fn start(metrics: Arc<Metrics>, call: Call) -> Record {
        metrics.started(call);
        Record { metrics, call, started: Instant::now(), has_ended: AtomicBool::new(false) }
    }

    pub(crate) fn sent(&self, n_bytes: usize) {
        self.metrics.sent(self.call, n_bytes);
    }

    pub(crate) fn answered(&self, n_sampled: u64, n_rows: u64) {
        self.metrics.answered(self.call, n_sampled, n_rows);
    }

    pub(crate) fn end(&self, code: Code) {
        if !self.has_ended.swap(true, Ordering::Relaxed) {
            self.metrics.ended(self.call, code, self.started.elapsed());
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
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
    use super::*;

    #[test]
    fn what_was_counted_is_on_the_page() {
        let metrics = Metrics::default();
        metrics.started(Call::FetchFeatures);
        metrics.started(Call::FetchFeatures);
        metrics.received(Call::FetchFeatures, 40);
        metrics.ended(Call::FetchFeatures, Code::Unauthenticated, Duration::from_micros(300));
        metrics.answered(Call::SampleHop, 7, 0);
        let page = metrics.page(&Connections::new(9, 9, 9));
        for line in [
            "kith_sampler_requests_total{call=\"FetchFeatures\",code=\"UNAUTHENTICATED\"} 1",
            "kith_sampler_connections 0",
            "kith_sampler_received_bytes_total{call=\"FetchFeatures\"} 40",
            "kith_sampler_requests_in_flight{call=\"FetchFeatures\"} 1",
            "kith_sampler_sampled_nodes_total{call=\"SampleHop\"} 7",
            "kith_sampler_request_seconds_bucket{call=\"FetchFeatures\",le=\"0.00025\"} 0",
            "kith_sampler_request_seconds_bucket{call=\"FetchFeatures\",le=\"0.0005\"} 1",
            "kith_sampler_request_seconds_bucket{call=\"FetchFeatures\",le=\"+Inf\"} 1",
            "kith_sampler_request_seconds_count{call=\"FetchFeatures\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
    }
}
