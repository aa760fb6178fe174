//! What a sampler does with a store: draw the neighbors of a frontier, look up edges. Pure, and by name: two equal
//! questions get equal answers, on any thread and any shard.
//!
//! Knows neither tensors nor the network.

mod drawn;
mod edges;
mod fanout;
mod hop;
mod lanes;
mod loops;
mod slots;

pub use crate::{
    drawn::{Drawn, DrawnIds, Id},
    edges::{Direction, has_edges},
    fanout::{Fanout, FanoutError, Replacement, fanouts_of_layers},
    hop::{Hop, SampledGraph, sample_hop, sample_hop_with},
    lanes::{N_LANES, WordSource},
    loops::KnownLoops,
    slots::draw_slots,
};
