//! Ranks that wait, and for whom.

use kith_run::phase::Phase;

use super::{
    rank::RankRow,
    server::ServerRow,
    shown::{shown_seconds, shown_share},
};

/// A rank waits if it spends more than this share of its time with waiting.
const WAITING: f64 = 0.2;

/// A rank waits for another whose share of waiting is smaller by this.
const MARGIN: f64 = 0.1;

/// One sentence for each rank that waits for another rank, or for servers.
pub(super) fn sentences(ranks: &[RankRow], servers: &[ServerRow]) -> Vec<String> {
    let waits_least =
        |one: &&RankRow, other: &&RankRow| one.share(Phase::Exchange).total_cmp(&other.share(Phase::Exchange));
    let slowest = ranks.iter().min_by(waits_least);
    let wait = |rank| {
        let for_lost_servers = for_lost_servers(rank);
        for_lost_servers.or_else(|| for_rank(rank, slowest?)).or_else(|| for_servers(rank, servers))
    };
    ranks.iter().filter_map(wait).collect()
}

/// A rank whose calls fail, in whatever phase it is.
fn for_lost_servers(rank: &RankRow) -> Option<String> {
    let (number, n) = (rank.rank, rank.new_retries);
    (n > 0).then(|| {
        format!("rank {number} waits for sampling servers: it tried calls again {n} times since the last reading")
    })
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
fn for_servers(rank: &RankRow, servers: &[ServerRow]) -> Option<String> {
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
        Some(server) => format!(
            "{beginning}; the busiest server is {}, where work waits up to {}",
            server.place,
            shown_seconds(Some(queue(server)))
        ),
        None => beginning,
    })
}
