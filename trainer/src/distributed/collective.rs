//! Collectives. Every rank makes the same calls in the same order; each call ends on all ranks or fails on all, within
//! a deadline.

mod alone;
#[cfg(test)]
mod contract;
mod nccl;
mod ring;

use std::fmt;

use tch::Tensor;

pub(crate) use alone::Alone;
#[cfg(test)]
pub(crate) use contract::on_all_ranks;
pub(crate) use nccl::{Nccl, gpu_identity, version as nccl_version};
pub(crate) use ring::Ring;

use crate::distributed::world::WorldError;

/// Collective operations of a rank.
pub trait Collective: fmt::Debug {
    /// Adds up the values of all ranks, in an order of its own: 32-bit floats, flat, as many on every rank.
    fn all_reduce(&mut self, values: &mut Tensor) -> Result<(), WorldError>;

    /// The values of all ranks, one row per rank: 32-bit floats, flat, as many on every rank.
    fn all_gather(&mut self, own: &Tensor) -> Result<Tensor, WorldError>;

    /// The bytes of all ranks, by rank, of whatever length.
    fn share(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, WorldError>;

    /// Gives rank 0's bytes to all.
    fn broadcast(&mut self, bytes: &mut Vec<u8>) -> Result<(), WorldError>;

    /// Waits until all ranks are here.
    fn barrier(&mut self) -> Result<(), WorldError>;

    /// Bytes that this rank has sent to others so far.
    fn sent_bytes(&self) -> u64;
}
