//! Filter that limits the lines of each kind, and reports the number of lines that it withheld.

use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use tracing::{
    Event, Level, Metadata,
    callsite::Identifier,
    field::{Field, Visit},
    subscriber::Interest,
};
use tracing_subscriber::layer::{Context, Filter};

use crate::kinds::{Kinds, Verdict, Withheld};

/// Target of lines about withheld lines.
pub(crate) const TARGET: &str = "kith_log";

/// Limits lines of the levels error, warn and info. Lines of debug and trace were asked for, and are not limited.
#[derive(Clone, Debug)]
pub(crate) struct Limited(Arc<State>);

#[derive(Debug)]
struct State {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug)]
struct Counts {
    kinds: Kinds<Identifier>,
    /// True once a thread reports withheld lines. Few processes need it.
    has_reporter: bool,
}

impl Limited {
    pub(crate) fn new() -> Limited {
        let counts = Mutex::new(Counts { kinds: Kinds::new(), has_reporter: false });
        Limited(Arc::new(State { counts, changed: Condvar::new() }))
    }

    /// Reports everything that is withheld.
    pub(crate) fn finish(&self) {
        let withheld = self.0.lock().kinds.take(Instant::now(), true);
        withheld.iter().for_each(report);
    }

    fn is_written(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || metadata.target() == TARGET {
            return true;
        }
        let mut kind = KindOfLine::default();
        event.record(&mut kind);
        let KindOfLine { message, reason } = kind;
        let mut counts = self.0.lock();
        let line = (*metadata.level(), message.as_str());
        if counts.kinds.admit(metadata.callsite(), reason, line, Instant::now()) == Verdict::Written {
            return true;
        }
        if !counts.has_reporter {
            let state = Arc::clone(&self.0);
            let run = move || state.report_withheld();
            counts.has_reporter = thread::Builder::new().name("log".to_owned()).spawn(run).is_ok();
        }
        self.0.changed.notify_one();
        false
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports withheld lines when their time is over, until the process ends.
    fn report_withheld(&self) {
        let mut counts = self.lock();
        loop {
            let now = Instant::now();
            counts = match counts.kinds.next_due() {
                None => self.changed.wait(counts).unwrap_or_else(PoisonError::into_inner),
                Some(due) if due > now => {
                    self.changed.wait_timeout(counts, due - now).unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    let withheld = counts.kinds.take(now, false);
                    // Writing a line asks this filter.
                    drop(counts);
                    withheld.iter().for_each(report);
                    self.lock()
                }
            };
        }
    }
}

/// Writes a line about withheld lines, at their level.
fn report(withheld: &Withheld) {
    let Withheld { level, message, reason, n_lines, seconds } = withheld;
    let reason = reason.as_deref();
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(target: TARGET, $level, line = message, reason, "… and {n_lines} more in the last {seconds} s")
        };
    }
    match *level {
        Level::ERROR => line!(Level::ERROR),
        Level::WARN => line!(Level::WARN),
        _ => line!(Level::INFO),
    }
}

impl<S> Filter<S> for Limited {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn callsite_enabled(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::always()
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.is_written(event)
    }
}

/// The fields of a line that tell its kind.
#[derive(Default)]
struct KindOfLine {
    message: String,
    reason: Option<String>,
}

impl Visit for KindOfLine {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            "reason" => self.reason = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if ["message", "reason"].contains(&field.name()) {
            self.record_str(field, &format!("{value:?}"));
        }
    }
}
