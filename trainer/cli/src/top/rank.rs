//! A rank in a glance.

use std::collections::BTreeMap;

use kith_run::phase::Phase;
use serde::Serialize;

use super::shown::{rate, shown_seconds, shown_share};
use crate::{progress::grouped, scrape::Scraped};

/// State of a rank.
#[derive(Debug, Serialize)]
pub(super) struct RankRow {
    pub(super) rank: u64,
    place: String,
    /// Weight updates of the run.
    pub(super) step: u64,
    epoch: u64,
    loss: Option<f64>,
    /// Seed nodes of all ranks.
    pub(super) seeds_per_second: f64,
    /// The current phase, and the time in it.
    pub(super) phase: Option<String>,
    pub(super) phase_seconds: Option<f64>,
    /// Share of each phase in the time between two readings; of the current phase alone if no step ended.
    pub(super) shares: BTreeMap<String, f64>,
    /// Share of features from the cache, of those that are not in files of this machine.
    pub(super) cached: Option<f64>,
    pub(super) retries: u64,
    /// Attempts between two readings that followed a failed one.
    pub(super) new_retries: u64,
    hedges: u64,
    checkpoint_seconds: Option<f64>,
    /// Longest time since the last sign of life of another rank, and that rank.
    heartbeat_seconds: Option<f64>,
    #[serde(skip)]
    pub(super) silent_peer: Option<(u64, f64)>,
}

/// Phases with a column.
const COLUMNS: [Phase; 4] = [Phase::Sample, Phase::Compute, Phase::Exchange, Phase::Evaluate];

impl RankRow {
    pub(super) fn new(place: &str, before: Option<&Scraped>, now: &Scraped) -> RankRow {
        let whole = |name: &str| now.sum(name, &[]).unwrap_or(0.0) as u64;
        let rows = |from| now.sum("kith_rows_total", &[("from", from)]).unwrap_or(0.0);
        let n_remote = rows("cached") + rows("remote");
        let phase = now.state("kith_phase", "phase").map(str::to_owned);
        RankRow {
            rank: now.label("kith_step", "rank").and_then(|rank| rank.parse().ok()).unwrap_or(0),
            place: place.to_owned(),
            step: whole("kith_step"),
            epoch: whole("kith_epoch"),
            // JSON has no number for a loss that is none.
            loss: now.sum("kith_loss", &[]).filter(|loss| loss.is_finite()),
            seeds_per_second: rate(before, now, "kith_seeds_total"),
            phase_seconds: now.sum("kith_phase_age_seconds", &[]),
            shares: shares(before, now, phase.as_deref()),
            phase,
            cached: (n_remote > 0.0).then(|| rows("cached") / n_remote),
            retries: whole("kith_remote_retries_total"),
            new_retries: before.map_or(0, |before| {
                let earlier = before.sum("kith_remote_retries_total", &[]).unwrap_or(0.0) as u64;
                whole("kith_remote_retries_total").saturating_sub(earlier)
            }),
            hedges: whole("kith_hedges_total"),
            checkpoint_seconds: now.sum("kith_checkpoint_age_seconds", &[]),
            heartbeat_seconds: now.most("kith_heartbeat_age_seconds", "peer").map(|(_, age)| age),
            silent_peer: now
                .most("kith_heartbeat_age_seconds", "peer")
                .and_then(|(peer, age)| Some((peer?.parse().ok()?, age))),
        }
    }

    /// Share of a phase.
    pub(super) fn share(&self, phase: Phase) -> f64 {
        self.shares.get(phase.name()).copied().unwrap_or(0.0)
    }

    /// The phase that takes most of the time.
    pub(super) fn main_phase(&self) -> Option<(&str, f64)> {
        let most = self.shares.iter().max_by(|one, other| one.1.total_cmp(other.1));
        most.map(|(phase, share)| (phase.as_str(), *share))
    }

    pub(super) fn heading() -> Vec<String> {
        let begin = ["rank", "place", "step", "epoch", "loss", "seeds/s", "phase"];
        let end = ["cached", "retries", "hedges", "checkpoint", "heartbeat"];
        begin.into_iter().chain(COLUMNS.map(Phase::name)).chain(end).map(str::to_owned).collect()
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let phase = self.phase.as_deref().map(|phase| format!("{phase} {}", shown_seconds(self.phase_seconds)));
        let mut cells = vec![
            self.rank.to_string(),
            self.place.clone(),
            grouped(self.step),
            grouped(self.epoch),
            self.loss.map_or_else(|| "none".to_owned(), |loss| format!("{loss:.4}")),
            grouped(self.seeds_per_second.round() as u64),
            phase.unwrap_or_else(|| "-".to_owned()),
        ];
        cells.extend(COLUMNS.map(|phase| shown_share((!self.shares.is_empty()).then(|| self.share(phase)))));
        cells.extend([
            shown_share(self.cached),
            grouped(self.retries),
            grouped(self.hedges),
            shown_seconds(self.checkpoint_seconds),
            shown_seconds(self.heartbeat_seconds),
        ]);
        cells
    }
}

/// Share of each phase between two readings. Times are counted at the end of a step: if none ended, the current phase has all.
fn shares(before: Option<&Scraped>, now: &Scraped, current: Option<&str>) -> BTreeMap<String, f64> {
    let seconds = |page: &Scraped, phase: Phase| page.sum("kith_seconds_total", &[("phase", phase.name())]);
    let spent = |phase: Phase| {
        let earlier = before.and_then(|before| seconds(before, phase)).unwrap_or(0.0);
        (seconds(now, phase).unwrap_or(0.0) - earlier).max(0.0)
    };
    let all: f64 = Phase::ALL.into_iter().map(spent).sum();
    if before.is_some() && all > 0.0 {
        return Phase::ALL.into_iter().map(|phase| (phase.name().to_owned(), spent(phase) / all)).collect();
    }
    current.map(|phase| (phase.to_owned(), 1.0)).into_iter().collect()
}
