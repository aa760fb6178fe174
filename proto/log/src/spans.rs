//! Spans for an OpenTelemetry collector, over OTLP/gRPC, and the header that joins those of a call on both of its ends.

use std::{
    collections::HashMap,
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use opentelemetry::{
    KeyValue,
    propagation::TextMapPropagator,
    trace::{TraceContextExt, TracerProvider},
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{SdkTracer, SdkTracerProvider},
};
use tokio::runtime::{Builder, Runtime};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::error::LogError;

/// The environment variable that names the collector where no option does: programs inherit it from the one that started them.
pub const OTLP_VARIABLE: &str = "KITH_OTLP";

/// Name of the header that carries a span to the server of a call, as of W3C Trace Context.
pub const SPAN_HEADER: &str = "traceparent";

/// Time limit of one export, and of the last one before the process ends.
const MAX_EXPORT: Duration = Duration::from_secs(3);

/// Export of this process, once it was started.
static EXPORT: OnceLock<Export> = OnceLock::new();

#[derive(Debug)]
struct Export {
    url: String,
    provider: SdkTracerProvider,
    /// Sends the spans.
    runtime: Mutex<Option<Runtime>>,
}

/// Starts to export the spans of a program to an address, which an option or a variable gave; only the first call counts.
pub(crate) fn start(program: &'static str, given_by: &'static str, url: &str) -> Result<SdkTracer, LogError> {
    let wrong = |problem: String| LogError::Collector { given_by, found: url.to_owned(), problem };
    if !url.starts_with("http://") {
        return Err(wrong("it must begin with http://".to_owned()));
    }
    let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("kith-otlp").enable_all().build();
    let runtime = runtime.map_err(|error| wrong(error.to_string()))?;
    let exporter = {
        let _within = runtime.enter();
        SpanExporter::builder().with_tonic().with_endpoint(url).with_timeout(MAX_EXPORT).build()
    };
    let exporter = exporter.map_err(|error| wrong(error.to_string()))?;
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let own = KeyValue::new("process.pid", i64::from(std::process::id()));
    let rank = std::env::var("RANK").ok().map(|rank| KeyValue::new("kith.rank", rank));
    let attributes = [version, own].into_iter().chain(rank);
    let resource = Resource::builder().with_service_name(program).with_attributes(attributes).build();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let tracer = provider.tracer("kith");
    let _ = EXPORT.set(Export { url: url.to_owned(), provider, runtime: Mutex::new(Some(runtime)) });
    Ok(tracer)
}

/// Sends the spans that have ended so far: to be called before the process ends.
pub(crate) fn finish() {
    let Some(export) = EXPORT.get() else { return };
    // The collector may be away. The process ends all the same.
    let _ = export.provider.shutdown_with_timeout(MAX_EXPORT);
    if let Some(runtime) = export.runtime.lock().unwrap_or_else(PoisonError::into_inner).take() {
        runtime.shutdown_background();
    }
}

/// The collector that gets spans of this process, if there is one.
pub fn collector() -> Option<&'static str> {
    EXPORT.get().map(|export| &*export.url)
}

/// Value of [`SPAN_HEADER`] for a call within a span; none if spans are not exported.
pub fn span_header(span: &Span) -> Option<String> {
    EXPORT.get()?;
    let context = span.context();
    if !context.span().span_context().is_valid() {
        return None;
    }
    let mut headers = HashMap::new();
    TraceContextPropagator::new().inject_context(&context, &mut headers);
    headers.remove(SPAN_HEADER)
}

/// Makes a span that has just begun a child of the one that a caller's header names, if spans are exported and there is such a header.
pub fn follow(span: &Span, header: Option<&str>) {
    if let (Some(_), Some(header)) = (EXPORT.get(), header) {
        let headers = HashMap::from([(SPAN_HEADER.to_owned(), header.to_owned())]);
        // An invalid header is ignored.
        let _ = span.set_parent(TraceContextPropagator::new().extract(&headers));
    }
}
