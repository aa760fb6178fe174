//! Collectives. Every rank makes the same calls in the same order; each call ends on all ranks or fails on all, within
//! a deadline. Those on GPU memory may end after the call has returned.

mod alone;
#[cfg(test)]
mod contract;
mod nccl;
mod ring;

use std::fmt;

use kith_kernels::cuda::DeviceNumbers;
use tch::{Tensor, no_grad};

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

    /// The sum of all ranks' tensors, added one after the other: rank by rank, and within a rank in the order of `own`. The
    /// same bits on every rank, however the tensors are divided among ranks. 32-bit floats, flat, of equal length;
    /// `counts` has the number of tensors of each rank, at least 1. The sum may take the memory of `own`.
    fn fold(&mut self, own: Vec<Tensor>, counts: &[usize]) -> Result<Tensor, WorldError> {
        let most = counts.iter().copied().max().unwrap_or(0);
        let n = own[0].numel();
        let padding = own[0].f_zeros_like()?;
        let mut row = own;
        row.resize_with(most, || padding.shallow_clone());
        let rows = self.all_gather(&Tensor::f_cat(&row, 0)?)?;
        let rows = rows.f_view([counts.len() as i64, most as i64, n as i64])?;
        let places = counts.iter().enumerate().flat_map(|(rank, count)| (0..*count).map(move |place| (rank, place)));
        Ok(in_order(places.map(|(rank, place)| rows.get(rank as i64).get(place as i64)).collect()))
    }

    /// [`Collective::all_reduce`] and [`Collective::share`] at once: the texts of all ranks, by rank.
    fn all_reduce_with(&mut self, values: &mut Tensor, text: Text<'_>) -> Result<Vec<Vec<u8>>, WorldError> {
        self.all_reduce(values)?;
        self.share(text.own)
    }

    /// [`Collective::fold`] and [`Collective::share`] at once: the sum, and the texts of all ranks, by rank.
    fn fold_with(
        &mut self,
        own: Vec<Tensor>,
        counts: &[usize],
        text: Text<'_>,
    ) -> Result<(Tensor, Vec<Vec<u8>>), WorldError> {
        Ok((self.fold(own, counts)?, self.share(text.own)?))
    }

    /// The bytes of all ranks, by rank, of whatever length.
    fn share(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, WorldError>;

    /// Sends `own[r]` to each rank r, and returns the bytes that each rank sent here, by rank. Lengths are arbitrary. For
    /// bytes that all ranks need, use [`Collective::share`].
    fn all_to_all(&mut self, own: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, WorldError>;

    /// Gives rank 0's bytes to all.
    fn broadcast(&mut self, bytes: &mut Vec<u8>) -> Result<(), WorldError>;

    /// Waits until all ranks are here.
    fn barrier(&mut self) -> Result<(), WorldError>;

    /// [`Collective::all_reduce`] of numbers on a GPU. It may be under way when this returns: what the GPU computes from then
    /// on comes after it.
    fn all_reduce_on_gpu(&mut self, values: &DeviceNumbers) -> Result<(), WorldError> {
        let mut here = Tensor::f_from_slice(&values.read()?)?;
        self.all_reduce(&mut here)?;
        Ok(values.write(&Vec::<f32>::try_from(here)?)?)
    }

    /// [`Collective::all_gather`] of numbers on a GPU, as above.
    fn all_gather_on_gpu(&mut self, own: &DeviceNumbers, all: &DeviceNumbers) -> Result<(), WorldError> {
        let rows = self.all_gather(&Tensor::f_from_slice(&own.read()?)?)?;
        Ok(all.write(&Vec::<f32>::try_from(rows.f_view([-1])?)?)?)
    }

    /// Starts to share bytes, on every rank at most as many as `n_most`. It may be under way when this returns.
    fn post(&mut self, own: &[u8], _n_most: usize) -> Result<Posted, WorldError> {
        Ok(Posted::Shared(self.share(own)?))
    }

    /// Waits for the bytes of all ranks, by rank. What was posted first is waited for first.
    fn collect(&mut self, posted: Posted) -> Result<Vec<Vec<u8>>, WorldError> {
        match posted {
            Posted::Shared(shared) => Ok(shared),
            Posted::UnderWay => unreachable!("nothing is under way here"),
        }
    }

    /// Waits for something that may depend on what other ranks do: an error, at a deadline at the latest.
    fn wait_until(&mut self, is_over: &mut dyn FnMut() -> Result<bool, WorldError>) -> Result<(), WorldError> {
        while !is_over()? {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Bytes that this rank has sent to others so far.
    fn sent_bytes(&self) -> u64;
}

/// Bytes that ranks share together with a sum.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Those of this rank.
    pub own: &'a [u8],
    /// Bytes of any rank at most; the same number on every rank.
    pub n_most: usize,
}

/// Bytes that are shared.
#[derive(Debug)]
pub enum Posted {
    /// By rank.
    Shared(Vec<Vec<u8>>),
    /// Known to the collective.
    UnderWay,
}

/// Adds tensors one after the other, in the memory of the first.
pub(crate) fn in_order(tensors: Vec<Tensor>) -> Tensor {
    let mut tensors = tensors.into_iter();
    let sum = tensors.next().expect("every rank has a tensor");
    no_grad(|| {
        tensors.fold(sum, |mut sum, tensor| {
            let _ = sum.g_add_(&tensor);
            sum
        })
    })
}
