//! Neighbor sampling from a store or a shard: draws the neighbors of a frontier, looks up edges. All functions are pure
//! and draws are named: equal questions get equal answers, on any thread and any shard.
//!
//! [`server`] answers the same questions to trainers in other processes ([`program`] is its command line), and
//! [`prometheus`] exports metrics; nothing else here uses the network, and nothing uses tensors.

mod drawn;
mod edges;
mod fanout;
mod frontier;
mod graph;
mod hop;
mod lanes;
mod loops;
pub mod program;
pub mod prometheus;
mod seeds;
pub mod server;
mod shard;
mod slots;
mod weighted;

pub use crate::{
    drawn::{Drawn, DrawnIds, Id},
    edges::{Direction, has_edges},
    fanout::{EdgeData, Fanout, FanoutError, Sampling, fanouts_of_layers},
    frontier::Frontier,
    graph::SampledGraph,
    hop::{Hop, sample_hop, sample_hop_with},
    lanes::{N_LANES, WordSource},
    loops::KnownLoops,
    seeds::{Labels, Seeds, SeedsError},
    shard::ShardSampler,
    slots::draw_slots,
};
