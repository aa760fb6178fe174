//! Simulation of all policies at equal memory.

use kith_client::most_probable;
use kith_store::NodeRows;
use serde::Serialize;

use super::{
    bound::bound_hits,
    clairvoyant::{Clairvoyant, levels},
    drawn::{Drawn, ID_BYTES},
    lru::lru_hits,
    memory::Memory,
    source::Source,
    trace::{Merged, Trace},
};

/// Static shares of the hybrid policy, in percent of the cache.
const STATIC_PERCENTS: [u32; 3] = [25, 50, 75];

/// A way to choose cached nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Policy {
    /// Every feature vector is fetched.
    None,
    /// The most probable nodes, chosen once: `kith train --cache`.
    Static,
    /// The least recently used node is evicted.
    Lru,
    /// Belady's rule within a window of known steps.
    Clairvoyant,
    /// A static part, and a clairvoyant one.
    Hybrid,
    /// Belady's rule with all steps known, and no bookkeeping: no cache fetches less.
    Bound,
}

impl Policy {
    pub(super) fn name(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::Static => "static",
            Policy::Lru => "LRU",
            Policy::Clairvoyant => "clairvoyant",
            Policy::Hybrid => "hybrid",
            Policy::Bound => "bound",
        }
    }
}

/// Result of a policy; memory is that of one rank.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PolicyResult {
    pub(super) policy: Policy,
    /// Steps known ahead.
    pub(super) window: Option<u64>,
    /// Part of the cache that is static.
    pub(super) static_percent: Option<u32>,
    /// Cached feature vectors.
    pub(super) n_kept: u64,
    pub(super) feature_bytes: u64,
    pub(super) bookkeeping_bytes: u64,
    /// Share of the remote feature vectors that the cache or a mini-batch in flight had.
    pub(super) hit_percent: f64,
    /// Fetched bytes per seed node: feature vectors and ids.
    pub(super) bytes_per_seed: f64,
    /// Bytes that the policy saves of those that the static cache fetches.
    pub(super) saved_percent: f64,
}

/// All policies with the memory of one static cache.
#[derive(Debug, Serialize)]
pub(super) struct CacheResult {
    /// Size of the static cache, in percent of all nodes.
    pub(super) percent: f64,
    /// Its memory, which all policies have.
    pub(super) memory_bytes: u64,
    pub(super) policies: Vec<PolicyResult>,
}

/// A window, and the effect of fetching its steps together.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Window {
    pub(super) steps: u64,
    /// Distinct feature vectors of a window / sum of its steps' feature vectors.
    pub(super) distinct_percent: f64,
    /// Feature vectors of the largest window of a rank, in bytes.
    pub(super) most_bytes: u64,
    /// Bits of the clairvoyant cache for this window.
    pub(super) bookkeeping_bytes: u64,
}

/// Mini-batches in flight that share their features with the next one.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct InFlight {
    pub(super) n_batches: u64,
    /// Share of the remote feature vectors that they have.
    pub(super) shared_percent: f64,
    /// Index of their nodes: bookkeeping of all policies that evict.
    pub(super) index_bytes: u64,
}

/// Everything that the policies of one graph share.
pub(super) struct Simulation<'a> {
    source: &'a Source,
    drawn: &'a Drawn,
    memory: Memory,
    levels: Vec<u8>,
    pub(super) windows: Vec<Window>,
    pub(super) in_flight: InFlight,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(source: &'a Source, drawn: &'a Drawn, windows: &[u16], in_flight: u16) -> Simulation<'a> {
        let memory = Memory { n_nodes: source.n_nodes, vector_bytes: source.vector_bytes };
        let merged = |n_steps: usize| {
            drawn.traces.iter().map(|trace| trace.merged(n_steps)).fold(Merged::default(), |sum, own| Merged {
                n_vectors: sum.n_vectors + own.n_vectors,
                n_distinct: sum.n_distinct + own.n_distinct,
                most_distinct: sum.most_distinct.max(own.most_distinct),
            })
        };
        let window = |steps: &u16| {
            let merged = merged(usize::from(*steps));
            Window {
                steps: u64::from(*steps),
                distinct_percent: percent_of(merged.n_distinct, merged.n_vectors),
                most_bytes: memory.features(merged.most_distinct),
                bookkeeping_bytes: memory.window(u64::from(*steps), merged.most_distinct),
            }
        };
        let n_accesses = drawn.traces.iter().map(Trace::n_accesses).sum();
        let n_shared = drawn.traces.iter().map(Trace::n_shared).sum();
        let in_flight = InFlight {
            n_batches: u64::from(in_flight),
            shared_percent: percent_of(n_shared, n_accesses),
            index_bytes: match in_flight {
                0 => 0,
                n => memory.in_flight(merged(usize::from(n)).most_distinct),
            },
        };
        let windows = windows.iter().map(window).collect();
        Simulation { source, drawn, memory, levels: levels(&source.inclusion), windows, in_flight }
    }

    /// Simulates all policies with the memory of a static cache of a percentage of all nodes.
    pub(super) fn at(&self, percent: f64) -> CacheResult {
        let n_static = (self.source.n_nodes as f64 * percent / 100.0) as u64;
        let budget = self.memory.features(n_static) + self.memory.static_index();
        let mut policies = vec![
            self.result(Policy::None, 0, 0, |_| 0),
            self.result(Policy::Static, n_static, self.memory.static_index(), |rank| {
                self.drawn.traces[rank].static_hits(&self.set(&self.fill(rank, 0, n_static)))
            }),
            self.lru(budget),
        ];
        for window in &self.windows {
            policies.extend(self.clairvoyant(budget, window, 0, n_static));
            let hybrids = STATIC_PERCENTS.iter().filter_map(|share| self.clairvoyant(budget, window, *share, n_static));
            policies.extend(hybrids.min_by(|one, other| one.bytes_per_seed.total_cmp(&other.bytes_per_seed)));
        }
        let n_most = self.memory.fit(budget, |_| 0);
        let most_hits = |rank: usize| bound_hits(&self.drawn.traces[rank], n_most as usize);
        policies.push(self.result(Policy::Bound, n_most, 0, most_hits));
        let of_static = policies[1].bytes_per_seed;
        for result in &mut policies {
            result.saved_percent = 100.0 * (1.0 - result.bytes_per_seed / of_static.max(f64::MIN_POSITIVE));
        }
        CacheResult { percent, memory_bytes: budget, policies }
    }

    fn lru(&self, budget: u64) -> PolicyResult {
        let bookkeeping = |n_kept| self.memory.lru(n_kept) + self.in_flight.index_bytes;
        let n_kept = self.memory.fit(budget, bookkeeping);
        self.result(Policy::Lru, n_kept, bookkeeping(n_kept), |rank| {
            lru_hits(&self.drawn.traces[rank], n_kept as usize, &self.fill(rank, 0, n_kept))
        })
    }

    /// A clairvoyant cache beside a static one of a percentage of `n_static` nodes; `None` if its bookkeeping does not fit.
    fn clairvoyant(&self, budget: u64, window: &Window, static_percent: u32, n_static: u64) -> Option<PolicyResult> {
        let n_beside = n_static * u64::from(static_percent) / 100;
        let index = if n_beside > 0 { self.memory.static_index() } else { 0 };
        let left = budget.saturating_sub(self.memory.features(n_beside) + index);
        let other_bytes = window.bookkeeping_bytes + self.in_flight.index_bytes;
        let bookkeeping = |n_kept| self.memory.clairvoyant(n_kept, other_bytes);
        let n_kept = Some(self.memory.fit(left, bookkeeping)).filter(|n_kept| *n_kept > 0)?;
        let policy = if static_percent > 0 { Policy::Hybrid } else { Policy::Clairvoyant };
        let all_bookkeeping = index + bookkeeping(n_kept);
        let result = self.result(policy, n_beside + n_kept, all_bookkeeping, |rank| {
            let trace = &self.drawn.traces[rank];
            let beside = self.set(&self.fill(rank, 0, n_beside));
            let cache = Clairvoyant {
                capacity: n_kept as usize,
                window: window.steps as usize,
                levels: &self.levels,
                beside: (n_beside > 0).then_some(&beside),
            };
            trace.static_hits(&beside) + cache.hits(trace, &self.fill(rank, n_beside, n_kept))
        });
        let static_percent = Some(static_percent).filter(|percent| *percent > 0);
        Some(PolicyResult { window: Some(window.steps), static_percent, ..result })
    }

    fn result(&self, policy: Policy, n_kept: u64, bookkeeping: u64, hits: impl Fn(usize) -> u64) -> PolicyResult {
        let Drawn { traces, n_seeds, .. } = self.drawn;
        let n_accesses: u64 = traces.iter().map(Trace::n_accesses).sum();
        let n_hits: u64 = (0..traces.len()).map(|rank| traces[rank].n_shared() + hits(rank)).sum();
        let n_bytes = (n_accesses - n_hits) as f64 * (self.source.vector_bytes + ID_BYTES as f64);
        PolicyResult {
            policy,
            window: None,
            static_percent: None,
            n_kept,
            feature_bytes: self.memory.features(n_kept),
            bookkeeping_bytes: bookkeeping,
            hit_percent: percent_of(n_hits, n_accesses),
            bytes_per_seed: n_bytes / (*n_seeds).max(1) as f64,
            saved_percent: 0.0,
        }
    }

    /// The most probable remote nodes of a rank after the `n_before` first ones, the most probable last.
    fn fill(&self, rank: usize, n_before: u64, n_kept: u64) -> Vec<u32> {
        let inclusion = &self.source.inclusion;
        let n_rows = (n_before + n_kept) as usize;
        let mut nodes: Vec<u32> = most_probable(inclusion, n_rows, |node| self.source.is_remote(rank, node))
            .into_iter()
            .map(|node| node as u32)
            .collect();
        nodes
            .sort_by(|one, other| inclusion[*one as usize].total_cmp(&inclusion[*other as usize]).then(other.cmp(one)));
        nodes.truncate(nodes.len().saturating_sub(n_before as usize));
        nodes
    }

    fn set(&self, nodes: &[u32]) -> NodeRows {
        let mut is_in = vec![false; self.source.n_nodes as usize];
        nodes.iter().for_each(|node| is_in[*node as usize] = true);
        NodeRows::new(self.source.n_nodes, |node| is_in[node as usize])
    }
}

fn percent_of(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}
