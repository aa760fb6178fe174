//! Start of the log, and sentences.

use std::{
    env,
    io::{self, Write},
    sync::OnceLock,
};

use opentelemetry_sdk::trace::SdkTracer;
use serde_json::json;
use tracing::{Level, Subscriber, subscriber::set_global_default};
use tracing_subscriber::{
    Layer, Registry,
    filter::{FilterExt, LevelFilter, Targets, filter_fn},
    fmt::{self, MakeWriter, format::Writer, time::FormatTime},
    layer::SubscriberExt,
};

use crate::{
    error::LogError,
    format::{FORMAT_VARIABLE, Format},
    limited::{Limited, TARGET},
    spans::{self, OTLP_VARIABLE},
};

/// The environment variable that selects lines of the log.
pub const VARIABLE: &str = "KITH_LOG";

/// The levels of lines that are written if nothing else is asked for.
const LEVEL: LevelFilter = LevelFilter::WARN;

/// The log of this process, once it was started.
static LOG: OnceLock<(Format, Limited)> = OnceLock::new();

/// Options of the log, as typed.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Format of lines.
    pub format: Option<Format>,
    /// URL of a collector of spans.
    pub otlp: Option<String>,
}

/// Starts the log of this process; only the first call counts. `program` is its name in spans. The environment decides about options
/// that were not typed.
pub fn start(program: &'static str, options: LogOptions) -> Result<(), LogError> {
    let format = match (options.format, variable(FORMAT_VARIABLE)) {
        (Some(format), _) => format,
        (None, Some(name)) => name.parse().map_err(|_| LogError::Format { found: name })?,
        (None, None) => Format::default(),
    };
    let targets = targets(variable(VARIABLE).as_deref())?;
    let limited = Limited::new();
    if LOG.set((format, limited.clone())).is_ok() {
        let typed = options.otlp.map(|url| ("--otlp", url));
        let collector = typed.or_else(|| variable(OTLP_VARIABLE).map(|url| (OTLP_VARIABLE, url)));
        let tracer = collector.map(|(given_by, url)| spans::start(program, given_by, &url)).transpose()?;
        // Another library of this process may have a log of its own: then lines go there.
        let _ = set_global_default(subscriber(format, targets, limited, io::stderr, tracer));
    }
    Ok(())
}

/// Reports lines that were withheld, and sends the last spans: to be called before the process ends.
pub fn finish() {
    if let Some((_, limited)) = LOG.get() {
        limited.finish();
    }
    spans::finish();
}

/// Format of the lines of this process.
pub fn format() -> Format {
    LOG.get().map_or_else(Format::default, |(format, _)| *format)
}

/// Writes a sentence for people on stderr, whatever levels are written; ignores a closed stderr. As JSON, it has the level of
/// its beginning: `error:`, `warning:`, or else info.
pub fn say(line: &str) {
    let _ = match format() {
        Format::Text => writeln!(io::stderr(), "{line}"),
        Format::Json => writeln!(io::stderr(), "{}", json_of(line)),
    };
}

fn json_of(line: &str) -> serde_json::Value {
    let levels = [("error: ", Level::ERROR), ("warning: ", Level::WARN), ("note: ", Level::INFO)];
    let begun = levels.iter().find_map(|(beginning, level)| Some((*level, line.strip_prefix(beginning)?)));
    let (level, message) = begun.unwrap_or((Level::INFO, line));
    let mut timestamp = String::new();
    // A clock before 1970 leaves the time out.
    let _ = fmt::time::SystemTime.format_time(&mut Writer::new(&mut timestamp));
    json!({ "timestamp": timestamp, "level": level.as_str(), "message": message, "target": "kith" })
}

/// The value of an environment variable, if it is set and not empty.
fn variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

fn targets(levels: Option<&str>) -> Result<Targets, LogError> {
    let targets = match levels {
        None => Targets::new().with_default(LEVEL),
        Some(levels) => levels
            .parse::<Targets>()
            .map_err(|error| LogError::Levels { found: levels.to_owned(), problem: error.to_string() })?,
    };
    // Who reads a line wants to know that others were withheld.
    Ok(targets.with_target(TARGET, Level::INFO))
}

/// Writes lines, without their spans, and sends spans if there is a tracer.
fn subscriber<W>(
    format: Format,
    targets: Targets,
    limited: Limited,
    writer: W,
    tracer: Option<SdkTracer>,
) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = targets.and(filter_fn(|metadata| metadata.is_event())).and(limited);
    let own_spans = Targets::new().with_target("kith", Level::INFO);
    let spans = tracer
        .map(|tracer| tracing_opentelemetry::layer().with_tracer(tracer).with_threads(false).with_filter(own_spans));
    let layer = fmt::layer().with_writer(writer);
    match format {
        Format::Text => Box::new(Registry::default().with(spans).with(layer.with_ansi(false).with_filter(filter))),
        Format::Json => {
            let layer = layer.json().flatten_event(true).with_span_list(false).with_current_span(false);
            Box::new(Registry::default().with(spans).with(layer.with_filter(filter)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn lines(&self) -> Vec<String> {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect()
        }
    }

    /// Lines that `act` writes; withheld lines are reported at its end.
    fn lines(format: Format, levels: Option<&str>, act: impl FnOnce()) -> Vec<String> {
        let (written, limited) = (Written::default(), Limited::new());
        let to = written.clone();
        let log = subscriber(format, targets(levels).unwrap(), limited.clone(), move || to.clone(), None);
        tracing::subscriber::with_default(log, || {
            act();
            limited.finish();
        });
        written.lines()
    }

    fn refuse(n: usize) {
        (0..n).for_each(|n| tracing::warn!(target: "kith_a", reason = "tls", address = n, "connection refused"));
    }

    /// Spans without a collector, and lines below the level: the best of many rounds, because other processes interrupt.
    #[test]
    fn what_goes_nowhere_costs_nanoseconds() {
        let subscriber = subscriber(Format::Text, targets(None).unwrap(), Limited::new(), io::sink, None);
        tracing::subscriber::with_default(subscriber, || {
            let mut best = [f64::INFINITY; 2];
            for _ in 0..200 {
                let begun = std::time::Instant::now();
                (0..1000).for_each(|n| drop(tracing::info_span!(target: "kith", "step", n)));
                best[0] = best[0].min(begun.elapsed().as_secs_f64() * 1e6);
                let begun = std::time::Instant::now();
                (0..1000).for_each(|n| tracing::debug!(target: "kith_client", n, "a call ended"));
                best[1] = best[1].min(begun.elapsed().as_secs_f64() * 1e6);
            }
            assert!(best.iter().all(|nanoseconds| *nanoseconds < 1000.0), "{best:?} ns for a span and a line");
        });
    }

    #[test]
    fn lines_have_a_level_a_target_and_fields() {
        let text = lines(Format::Text, None, || refuse(1));
        assert_eq!(text.len(), 1);
        let (time, rest) = text[0].split_once(' ').unwrap();
        assert!(time.ends_with('Z') && time.len() == "2026-01-01T00:00:00.000000Z".len(), "{text:?}");
        assert_eq!(rest.trim_start(), "WARN kith_a: connection refused reason=\"tls\" address=0");
        let json = lines(Format::Json, None, || refuse(1));
        let json: serde_json::Value = serde_json::from_str(&json[0]).unwrap();
        let found = ["level", "target", "message", "reason", "address"].map(|key| json[key].clone());
        assert_eq!(found, [json!("WARN"), json!("kith_a"), json!("connection refused"), json!("tls"), json!(0)]);
        assert!(json["timestamp"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn a_flood_is_a_few_lines_and_a_number() {
        for format in [Format::Text, Format::Json] {
            let found = lines(format, None, || refuse(62));
            assert_eq!(found.len(), 6, "{found:?}");
            let last = &found[5];
            let parts = ["… and 57 more in the last 1 s", "connection refused", "tls", "WARN"];
            assert!(parts.iter().all(|part| last.contains(part)), "{last}");
        }
    }

    #[test]
    fn levels_are_selected_by_target() {
        let write = || {
            tracing::error!(target: "kith_a", "one");
            tracing::info!(target: "kith_a", "two");
            tracing::debug!(target: "kith_b::inner", "three");
        };
        let words = |levels| -> Vec<String> {
            let found = lines(Format::Text, levels, write);
            found.iter().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
        };
        assert_eq!(words(None), ["one"]);
        assert_eq!(words(Some("info")), ["one", "two"]);
        assert_eq!(words(Some("off,kith_b=debug")), ["three"]);
        assert_eq!(words(Some("off")), [""; 0]);
        let error = targets(Some("kith=loud")).unwrap_err().to_string();
        assert!(error.starts_with("KITH_LOG: expected levels") && error.contains("kith=loud"), "{error}");
    }

    #[test]
    fn lines_for_debugging_are_not_limited() {
        let write = || (0..62).for_each(|n| tracing::debug!(target: "kith_a", n, "call"));
        assert_eq!(lines(Format::Text, Some("debug"), write).len(), 62);
    }

    #[test]
    fn sentences_have_a_level_in_json() {
        for (line, level, message) in [
            ("error: no such file", "ERROR", "no such file"),
            ("warning: the loss grows", "WARN", "the loss grows"),
            ("note: \"quoted\"", "INFO", "\"quoted\""),
            ("cora gat: epoch 3", "INFO", "cora gat: epoch 3"),
        ] {
            let json = json_of(line);
            assert_eq!((&json["level"], &json["message"]), (&json!(level), &json!(message)));
            assert!(json["timestamp"].as_str().unwrap().ends_with('Z'));
        }
    }
}
