//! Many arrays in one allocation, filled on the host and sent in one copy while the GPU computes something else.

use bytemuck::Pod;

use super::{
    error::GpuError,
    machine::Gpu,
    memory::{Address, Array, Sink},
    pinned::Pinned,
};

/// Arrays start at multiples of this.
const ALIGNED: usize = 256;

/// The same piece of memory on both sides.
#[derive(Debug)]
pub(super) struct Arena {
    gpu: Gpu,
    host: Option<Pinned>,
    device: Array<u8>,
}

impl Arena {
    pub(super) fn new(gpu: &Gpu, what: &'static str) -> Result<Arena, GpuError> {
        Ok(Arena { gpu: gpu.clone(), host: None, device: Array::zeros(gpu, 0, what)? })
    }

    /// Fills it with what `place` puts there, which is asked twice: how large it is, and then what it holds. The copy is on its
    /// way when this returns, in the lane of the arena. Nothing that was started in another lane may still read what was there before.
    pub(super) fn fill<R>(&mut self, place: impl Fn(&mut Places<'_>) -> Result<R, GpuError>) -> Result<R, GpuError> {
        let mut counted = Places { host: &mut [], device: 0, n_bytes: 0 };
        place(&mut counted)?;
        let n_bytes = counted.n_bytes;
        self.device.fit(n_bytes)?;
        let host = match self.host.take().filter(|host| host.len() >= n_bytes) {
            Some(host) => self.host.insert(host),
            None => self.host.insert(Pinned::new(&self.gpu, n_bytes + n_bytes / 4)?),
        };
        let mut places = Places { host: host.bytes()?, device: self.device.at().0, n_bytes: 0 };
        let placed = place(&mut places)?;
        host.send(self.gpu.lane(), self.device.at().0, n_bytes)?;
        Ok(placed)
    }
}

/// Places in an arena, given out one after the other. Without memory they are only counted.
#[derive(Debug)]
pub(super) struct Places<'a> {
    host: &'a mut [u8],
    device: u64,
    n_bytes: usize,
}

impl Sink for Places<'_> {
    fn place<T: Pod>(&mut self, n: usize, fill: impl FnOnce(&mut [T])) -> Result<Address, GpuError> {
        let start = self.n_bytes;
        self.n_bytes += (n * size_of::<T>()).next_multiple_of(ALIGNED).max(ALIGNED);
        if !self.host.is_empty() {
            fill(bytemuck::cast_slice_mut(&mut self.host[start..start + n * size_of::<T>()]));
        }
        Ok(Address(self.device + start as u64))
    }
}
