//! A sampling server in a glance.

use kith_run::memory_plan::bytes;
use serde::Serialize;

use super::shown::{rate, shown_seconds};
use crate::{progress::grouped, scrape::Scraped};

/// State of a server.
#[derive(Debug, Serialize)]
pub(super) struct ServerRow {
    pub(super) place: String,
    pub(super) calls_per_second: f64,
    pub(super) sent_bytes_per_second: f64,
    pub(super) in_flight: u64,
    connections: u64,
    /// Memory of requests and answers.
    call_bytes: u64,
    /// Bounds of 99 % of the waits for a thread, and of the durations of calls, between two readings.
    pub(super) queue_p99: Option<f64>,
    call_p99: Option<f64>,
    pub(super) refused: u64,
    limits: u64,
    pub(super) damaged: u64,
    pub(super) open_files: Option<u64>,
}

impl ServerRow {
    pub(super) fn new(place: &str, before: Option<&Scraped>, now: &Scraped) -> ServerRow {
        let whole = |name: &str| now.sum(name, &[]).unwrap_or(0.0).max(0.0) as u64;
        // JSON has no infinite number: such a call took longer than all bounds.
        let p99 = |name| now.quantile(before, name, 0.99).map(|bound: f64| bound.min(f64::MAX));
        ServerRow {
            place: place.to_owned(),
            calls_per_second: rate(before, now, "kith_sampler_requests_total"),
            sent_bytes_per_second: rate(before, now, "kith_sampler_sent_bytes_total"),
            in_flight: whole("kith_sampler_requests_in_flight"),
            connections: whole("kith_sampler_connections"),
            call_bytes: whole("kith_sampler_call_bytes"),
            queue_p99: p99("kith_sampler_queue_seconds"),
            call_p99: p99("kith_sampler_request_seconds"),
            refused: whole("kith_sampler_refused_connections_total"),
            limits: whole("kith_sampler_limits_reached_total"),
            damaged: whole("kith_sampler_damaged_blocks"),
            open_files: now.sum("process_open_fds", &[]).map(|n| n as u64),
        }
    }

    pub(super) fn heading() -> Vec<String> {
        let names = [
            "server",
            "calls/s",
            "sent/s",
            "in flight",
            "connections",
            "memory",
            "queue p99",
            "call p99",
            "refused",
            "limits",
            "damaged",
            "files",
        ];
        names.map(str::to_owned).to_vec()
    }

    pub(super) fn cells(&self) -> Vec<String> {
        vec![
            self.place.clone(),
            grouped(self.calls_per_second.round() as u64),
            bytes(self.sent_bytes_per_second as u64),
            grouped(self.in_flight),
            grouped(self.connections),
            bytes(self.call_bytes),
            shown_seconds(self.queue_p99.map(finite)),
            shown_seconds(self.call_p99.map(finite)),
            grouped(self.refused),
            grouped(self.limits),
            grouped(self.damaged),
            self.open_files.map_or_else(|| "-".to_owned(), grouped),
        ]
    }
}

/// The greatest number stands for all that is longer than the bounds of a histogram.
pub(super) fn finite(seconds: f64) -> f64 {
    if seconds == f64::MAX { f64::INFINITY } else { seconds }
}
