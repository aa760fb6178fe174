//! A launcher in a glance.

use serde::Serialize;

use crate::{progress::grouped, scrape::Scraped};

/// State of a launcher.
#[derive(Debug, Serialize)]
pub(super) struct LauncherRow {
    place: String,
    /// Running processes.
    ranks: u64,
    servers: u64,
    pub(super) restarts: u64,
    /// Restarts since the last checkpoint, of those that are allowed.
    pub(super) in_vain: u64,
    most_in_vain: u64,
    /// Processes that ended with an error or by a signal, other than 75: ranks end with 75 because another one was lost.
    pub(super) failed: u64,
}

impl LauncherRow {
    pub(super) fn new(place: &str, now: &Scraped) -> LauncherRow {
        let whole = |name: &str, labels: &[(&str, &str)]| now.sum(name, labels).unwrap_or(0.0).max(0.0) as u64;
        let ends = |labels: &[(&str, &str)]| whole("kith_launch_ends_total", labels);
        LauncherRow {
            place: place.to_owned(),
            ranks: whole("kith_launch_processes", &[("kind", "rank")]),
            servers: whole("kith_launch_processes", &[("kind", "server")]),
            restarts: whole("kith_launch_restarts_total", &[]),
            in_vain: whole("kith_launch_restarts_without_progress", &[]),
            most_in_vain: whole("kith_launch_max_restarts_without_progress", &[]),
            failed: ends(&[]).saturating_sub(ends(&[("code", "0")]) + ends(&[("code", "75")])),
        }
    }

    pub(super) fn heading() -> Vec<String> {
        ["launcher", "ranks", "servers", "ended badly", "restarts", "restarts since checkpoint"]
            .map(str::to_owned)
            .to_vec()
    }

    pub(super) fn cells(&self) -> Vec<String> {
        vec![
            self.place.clone(),
            grouped(self.ranks),
            grouped(self.servers),
            grouped(self.failed),
            grouped(self.restarts),
            format!("{} of {}", self.in_vain, self.most_in_vain),
        ]
    }
}
