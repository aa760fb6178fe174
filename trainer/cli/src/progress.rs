//! Progress of long work: a bar on a terminal, plain lines in a log. Both go to stderr; stdout is for answers.

use std::{
    io::{self, IsTerminal},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use kith_log::Format;
use kith_partition::progress::{Progress, Unit};
pub use kith_run::memory_plan::bytes;

/// Interval of progress lines in a log.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Minimum duration of work that is reported.
const WORTH_A_LINE: Duration = Duration::from_millis(500);

/// Shows progress on stderr.
pub struct Shown {
    is_terminal: bool,
    work: Mutex<Option<Work>>,
    n_done: AtomicU64,
}

struct Work {
    what: String,
    total: Option<u64>,
    unit: Unit,
    started: Instant,
    last_line: Instant,
    bar: Option<ProgressBar>,
}

impl Work {
    /// Estimated remaining time.
    fn time_left(&self, n_done: u64) -> Option<String> {
        let n_left = self.total?.checked_sub(n_done)?;
        let left = self.started.elapsed().mul_f64(n_left as f64 / n_done.max(1) as f64).as_secs();
        Some(match left {
            0..60 => format!("{left} s"),
            60..3600 => format!("{} min", left.div_ceil(60)),
            _ => format!("{:.1} h", left as f64 / 3600.0),
        })
    }
}

impl Default for Shown {
    fn default() -> Shown {
        Shown::new()
    }
}

impl Shown {
    /// Creates it, with nothing shown yet.
    pub fn new() -> Shown {
        Shown { is_terminal: is_terminal(), work: Mutex::new(None), n_done: AtomicU64::new(0) }
    }

    fn with_work(&self, act: impl FnOnce(&mut Work)) {
        if let Ok(mut work) = self.work.lock()
            && let Some(work) = work.as_mut()
        {
            act(work);
        }
    }
}

impl Progress for Shown {
    fn begin(&self, what: &str, total: Option<u64>, unit: Unit) {
        let now = Instant::now();
        let bar = self.is_terminal.then(|| make_bar(what, total, unit));
        let work = Work { what: what.to_owned(), total, unit, started: now, last_line: now, bar };
        self.n_done.store(0, Relaxed);
        if let Ok(mut place) = self.work.lock() {
            *place = Some(work);
        }
    }

    fn advance(&self, n: u64) {
        let n_done = self.n_done.fetch_add(n, Relaxed) + n;
        // Skips the update if another thread is reporting: progress never blocks work.
        let Ok(mut work) = self.work.try_lock() else { return };
        let Some(work) = work.as_mut() else { return };
        match &work.bar {
            Some(bar) => bar.set_position(n_done),
            None if work.last_line.elapsed() > LINE_EVERY => {
                work.last_line = Instant::now();
                let total = work.total.map(|total| format!(" of {}", in_units(total, work.unit))).unwrap_or_default();
                let left = work.time_left(n_done).map(|left| format!(", about {left} left")).unwrap_or_default();
                say(&format!("{}: {}{total}{left}", work.what, in_units(n_done, work.unit)));
            }
            None => {}
        }
    }

    fn end(&self) {
        let n_done = self.n_done.load(Relaxed);
        self.with_work(|work| {
            if let Some(bar) = &work.bar {
                bar.finish_and_clear();
            }
            let elapsed = work.started.elapsed();
            if elapsed < WORTH_A_LINE {
                return;
            }
            let counted = if n_done > 0 { format!("{}, ", in_units(n_done, work.unit)) } else { String::new() };
            say(&format!("{}: {counted}{:.1} s", work.what, elapsed.as_secs_f64()));
        });
        if let Ok(mut place) = self.work.lock() {
            *place = None;
        }
    }
}

/// Shows the epochs and results of training.
pub struct Epochs {
    what: String,
    n_epochs: u64,
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl Epochs {
    /// Training starts, or resumes after `n_done` epochs.
    pub fn begin(what: String, n_done: u64, n_epochs: u64) -> Epochs {
        let bar = is_terminal().then(|| {
            let bar = ProgressBar::new(n_epochs).with_position(n_done);
            if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:32}] {human_pos}/{human_len} {eta}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_message(what.clone());
            bar
        });
        Epochs { what, n_epochs, bar, last_line: Instant::now() }
    }

    /// Shows that `n_done` epochs are done, with the text of `how`.
    pub fn advance(&mut self, n_done: u64, how: impl FnOnce() -> String) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(format!("{}: {}", self.what, how()));
                bar.set_position(n_done);
            }
            None if self.last_line.elapsed() > LINE_EVERY => {
                self.last_line = Instant::now();
                say(&format!("{}: epoch {n_done} of {}, {}", self.what, self.n_epochs, how()));
            }
            None => {}
        }
    }
}

impl Drop for Epochs {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// True if people watch stderr.
fn is_terminal() -> bool {
    io::stderr().is_terminal() && kith_log::format() == Format::Text
}

fn make_bar(what: &str, total: Option<u64>, unit: Unit) -> ProgressBar {
    let counts = if unit == Unit::Bytes {
        "{bytes}/{total_bytes} {binary_bytes_per_sec}"
    } else {
        "{human_pos}/{human_len} {per_sec}"
    };
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), format!("{{msg}} [{{bar:32}}] {counts} {{eta}}")),
        None => (ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}".to_owned()),
    };
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn in_units(n: u64, unit: Unit) -> String {
    let name = match unit {
        Unit::Bytes => return bytes(n),
        Unit::Edges => "edges",
        Unit::Nodes => "nodes",
        Unit::Rows => "rows",
        Unit::Files => "files",
        Unit::Runs => "runs",
    };
    format!("{} {name}", grouped(n))
}

/// A number with commas between its thousands.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Prints one line on stderr, as `--log-format` says; ignores a closed stderr.
pub fn say(line: &str) {
    kith_log::say(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_166_243), "1,166,243");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(31_921_488), "30.4 MiB");
    }
}
