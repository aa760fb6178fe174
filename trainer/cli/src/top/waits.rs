//! Ranks that wait, and for whom.

use kith_run::phase::Phase;

use super::{
    rank::RankRow,
    server::{ServerRow, finite},
    shown::{shown_seconds, shown_share},
};

/// A rank waits if it spends more than this share of its time with waiting.
const WAITING: f64 = 0.2;

/// A rank waits for another whose share of waiting is smaller by this.
const MARGIN: f64 = 0.1;

/// Seconds without a sign of life after which a rank may be paused: heartbeats come several times as often.
const SILENCE: f64 = 4.0;

/// Seconds that work waits for a thread of a busy server.
const BUSY: f64 = 0.001;

/// One sentence for each rank that waits for another rank, or for servers. `silent`: places without metrics.
pub(super) fn sentences(ranks: &[RankRow], servers: &[ServerRow], silent: &[&str]) -> Vec<String> {
    let waits_least =
        |one: &&RankRow, other: &&RankRow| one.share(Phase::Exchange).total_cmp(&other.share(Phase::Exchange));
    let slowest = ranks.iter().min_by(waits_least);
    let wait = |rank| {
        let lost = for_silent_rank(rank).or_else(|| for_rank(rank, slowest?));
        lost.or_else(|| for_lost_servers(rank)).or_else(|| for_servers(rank, servers, silent))
    };
    ranks.iter().filter_map(wait).collect()
}

/// A rank that hears nothing of another one.
fn for_silent_rank(rank: &RankRow) -> Option<String> {
    let (peer, age) = rank.silent_peer.filter(|(_, age)| *age > SILENCE)?;
    let (number, age) = (rank.rank, shown_seconds(Some(age)));
    Some(format!("rank {number} has heard nothing of rank {peer} for {age}: it is paused, or its host is away"))
}

/// A rank whose calls fail, in whatever phase it is.
fn for_lost_servers(rank: &RankRow) -> Option<String> {
    let (number, n) = (rank.rank, rank.new_retries);
    (n > 0).then(|| format!("rank {number} repeats calls to sampling servers: {n} since the last reading"))
}

/// A rank that is done with its part of steps earlier than others.
fn for_rank(rank: &RankRow, slowest: &RankRow) -> Option<String> {
    let share = rank.share(Phase::Exchange);
    if share < WAITING || slowest.share(Phase::Exchange) + MARGIN > share {
        return None;
    }
    let (phase, share_of_slowest) = slowest.main_phase()?;
    Some(format!(
        "rank {} waits for rank {}: exchange takes {} of its time; rank {} is in {phase} for {}",
        rank.rank,
        slowest.rank,
        shown_share(Some(share)),
        slowest.rank,
        shown_share(Some(share_of_slowest))
    ))
}

/// A rank whose mini-batches come too slowly.
fn for_servers(rank: &RankRow, servers: &[ServerRow], silent: &[&str]) -> Option<String> {
    let share = rank.share(Phase::Sample);
    if share < WAITING {
        return None;
    }
    let beginning =
        format!("rank {} waits for mini-batches: sample takes {} of its time", rank.rank, shown_share(Some(share)));
    let queue = |server: &ServerRow| server.queue_p99.unwrap_or(0.0);
    let busiest = servers.iter().max_by(|one, other| {
        (queue(one), one.in_flight).partial_cmp(&(queue(other), other.in_flight)).unwrap_or(std::cmp::Ordering::Equal)
    });
    Some(match busiest {
        Some(server) if queue(server) > BUSY => format!(
            "{beginning}; the busiest server is {}, where work waits up to {}",
            server.place,
            shown_seconds(Some(finite(queue(server))))
        ),
        _ => match silent {
            [place, ..] => format!("{beginning}; there are no metrics of {place}"),
            [] if servers.is_empty() => beginning,
            [] => format!("{beginning}; on the listed servers no work waits for a thread"),
        },
    })
}
