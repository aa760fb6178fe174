//! What a sampler does with a store or a shard: draw the neighbors of a frontier, look up edges. Pure, and by name: two equal
//! questions get equal answers, on any thread and any shard.
//!
//! [`server`] answers the same questions to trainers in other processes ([`program`] is how it is started), and [`prometheus`] shows what a process counts;
//! nothing else here knows the network, and nothing knows tensors.

mod drawn;
mod edges;
mod fanout;
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

pub use crate::{
    drawn::{Drawn, DrawnIds, Id},
    edges::{Direction, has_edges},
    fanout::{Fanout, FanoutError, Replacement, fanouts_of_layers},
    graph::SampledGraph,
    hop::{Frontier, Hop, sample_hop, sample_hop_with},
    lanes::{N_LANES, WordSource},
    loops::KnownLoops,
    seeds::{Labels, Seeds, SeedsError},
    shard::ShardSampler,
    slots::draw_slots,
};
