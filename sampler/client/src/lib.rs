//! Trainer's view of a graph: a [`Plan`] gives the seed nodes of each step, a [`BatchMaker`] turns a slice of a step
//! into a [`Batch`] (blocks, pairs, features, labels), [`Prefetch`] makes mini-batches ahead on other threads.
//! [`Shards`] is the interface to the graph: a store in this process, or servers.
//!
//! Does not depend on tensors.

mod asked;
mod batch;
mod batch_digest;
mod blocks;
mod by_owner;
mod cache;
mod calls;
mod connect;
mod digest;
mod error;
pub mod faults;
mod forecast;
mod held_out;
mod link_batches;
mod local;
mod neighborhood;
mod plan;
mod positions;
mod prefetch;
pub mod remote;
mod roots;
mod rows;
mod session;
mod sharded;
mod shards;
mod stock;

pub use kith_sampler::{Labels, Seeds};

pub use crate::{
    batch::{Batch, BatchConfig, BatchMaker},
    batch_digest::BatchDigest,
    blocks::{BlockMaker, SampledBlocks},
    cache::{CacheFacts, CacheSize, most_probable},
    calls::RemoteCalls,
    connect::{TransportChoice, Whereabouts},
    digest::Digest,
    error::{ClientError, Result},
    forecast::{Forecast, Found, forecast},
    held_out::{EdgeKey, EdgeOrder, HeldOut, NON_EDGES, WithoutHeldOut},
    link_batches::{BatchPairs, LinkBatches, LinkNegatives, N_ATTEMPTS, in_batch},
    local::LocalStore,
    neighborhood::{Neighborhood, NeighborhoodMaker},
    plan::{Plan, PlanConfig, SliceSeeds, Step},
    positions::{hash_bytes, table_bytes},
    prefetch::{Job, Prefetch, PrefetchConfig, message_of},
    roots::Roots,
    rows::FetchedRows,
    session::session,
    sharded::Sharded,
    shards::{Info, RowCounts, Shards},
    stock::Stock,
};
