//! Rates between two readings, and numbers in cells.

use crate::scrape::Scraped;

/// Growth of a counter per second between two pages, over all its samples; 0 for a process that started in between.
pub(super) fn rate(before: Option<&Scraped>, now: &Scraped, name: &str) -> f64 {
    let value = |page: &Scraped| page.sum(name, &[]).unwrap_or(0.0);
    before.map_or(0.0, |before| {
        let seconds = now.when.saturating_duration_since(before.when).as_secs_f64();
        ((value(now) - value(before)) / seconds.max(1e-3)).max(0.0)
    })
}

/// A duration in a cell.
pub(super) fn shown_seconds(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds.is_infinite() => "long".to_owned(),
        Some(seconds) if seconds < 0.001 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        Some(seconds) if seconds < 120.0 => format!("{seconds:.1} s"),
        Some(seconds) => format!("{:.0} min", seconds / 60.0),
    }
}

/// A share in a cell.
pub(super) fn shown_share(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 100.0))
}
