//! One call in the metrics and in the log of a server.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use http::HeaderMap;
use kith_log::SPAN_HEADER;
use kith_proto::Call;
use tonic::{Code, Status};
use tracing::{Span, debug, error, field::Empty, info_span, warn};

use crate::server::{
    limit::Limit,
    metrics::{Metrics, code_name},
    session::Session,
};

/// A call, from its start to its end or the moment its client goes.
pub(crate) struct Record {
    metrics: Arc<Metrics>,
    call: Call,
    address: IpAddr,
    session: Option<Session>,
    /// Sent to a collector, if there is one.
    span: Span,
    started: Instant,
    has_ended: AtomicBool,
}

impl Record {
    pub(crate) fn start(metrics: Arc<Metrics>, call: Call, address: IpAddr, headers: &HeaderMap) -> Record {
        metrics.started(call);
        let session = Session::of(headers);
        let name = session.as_ref().map(Session::as_str);
        let span = info_span!(
            "call",
            otel.name = call.name(),
            otel.kind = "server",
            otel.status_code = Empty,
            %address,
            session = name,
            code = Empty
        );
        kith_log::follow(&span, headers.get(SPAN_HEADER).and_then(|value| value.to_str().ok()));
        Record { metrics, call, address, session, span, started: Instant::now(), has_ended: AtomicBool::new(false) }
    }

    /// The client's name.
    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    pub(crate) fn sent(&self, n_bytes: usize) {
        self.metrics.sent(self.call, n_bytes);
    }

    pub(crate) fn answered(&self, n_sampled: u64, n_rows: u64) {
        self.metrics.answered(self.call, n_sampled, n_rows);
    }

    /// Counts the end of the call, and its reason: a limit that it reached, or damage that it ran into.
    pub(crate) fn end(&self, status: &Status) {
        let limit = Limit::of(status);
        if let Some(limit) = limit {
            self.metrics.reached(limit);
        }
        if status.code() == Code::DataLoss {
            self.metrics.damaged(status.message());
        }
        self.write(status, limit);
        self.end_with(status.code());
    }

    /// Writes a line about a call that did not end well, with its client.
    fn write(&self, status: &Status, limit: Option<Limit>) {
        let (call, address) = (self.call.name(), self.address);
        let session = self.session.as_ref().map(Session::as_str);
        let (problem, code) = (status.message(), code_name(status.code()));
        macro_rules! line {
            ($level:ident, $reason:expr, $text:literal) => {
                $level!(parent: &self.span, reason = $reason, call, %address, session, problem, $text)
            };
        }
        match (limit, status.code()) {
            (Some(limit), _) => line!(warn, limit.name(), "a call reached a limit"),
            (None, Code::DataLoss) => line!(error, code, "a call ran into damage"),
            (None, Code::Internal) => line!(error, code, "a call failed"),
            (None, Code::Unauthenticated | Code::PermissionDenied) => line!(warn, code, "a call was refused"),
            (None, _) => {
                let seconds = self.started.elapsed().as_secs_f64();
                debug!(parent: &self.span, code, call, %address, session, problem, seconds, "a call ended");
            }
        }
    }

    fn end_with(&self, code: Code) {
        if !self.has_ended.swap(true, Ordering::Relaxed) {
            self.metrics.ended(self.call, code, self.started.elapsed());
            self.span.record("code", code_name(code));
            if !matches!(code, Code::Ok | Code::Cancelled) {
                self.span.record("otel.status_code", "ERROR");
            }
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.end_with(Code::Cancelled);
    }
}
