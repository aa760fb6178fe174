//! Bytes that ranks share by NCCL, beside what their GPUs compute: copied to the GPU, gathered there and copied back, in NCCL's
//! own stream. Contains `unsafe` code: memory of the GPU is named by its address.
#![allow(unsafe_code)]

use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaEvent, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DriverError, PinnedHostSlice, result, sys,
};

/// Bytes before those of a rank: their number.
const HEAD_BYTES: usize = 4;

/// Memory for the bytes of all ranks, on both sides.
pub(super) struct Post {
    n_most: usize,
    own: PinnedHostSlice<u8>,
    all: PinnedHostSlice<u8>,
    own_on_gpu: CudaSlice<u8>,
    all_on_gpu: CudaSlice<u8>,
    done: Option<CudaEvent>,
}

impl Post {
    pub(super) fn new(stream: &Arc<CudaStream>, n_ranks: usize, n_most: usize) -> Result<Post, DriverError> {
        let n_bytes = HEAD_BYTES + n_most;
        let pinned = |context: &Arc<CudaContext>, n: usize| -> Result<PinnedHostSlice<u8>, DriverError> {
            // SAFETY: filled on the next line.
            let mut memory = unsafe { context.alloc_pinned_with_flags(n, 0) }?;
            memory.as_mut_slice()?.fill(0);
            Ok(memory)
        };
        Ok(Post {
            n_most,
            own: pinned(stream.context(), n_bytes)?,
            all: pinned(stream.context(), n_ranks * n_bytes)?,
            own_on_gpu: stream.alloc_zeros(n_bytes)?,
            all_on_gpu: stream.alloc_zeros(n_ranks * n_bytes)?,
            done: None,
        })
    }

    pub(super) fn n_most(&self) -> usize {
        self.n_most
    }

    /// Starts to copy this rank's bytes; gives the addresses for the gathering, and the bytes of a rank there.
    pub(super) fn send(&mut self, stream: &Arc<CudaStream>, bytes: &[u8]) -> Result<(u64, u64, usize), DriverError> {
        assert!(bytes.len() <= self.n_most, "{} bytes, and room for {}", bytes.len(), self.n_most);
        let own = self.own.as_mut_slice()?;
        own[..HEAD_BYTES].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        own[HEAD_BYTES..][..bytes.len()].copy_from_slice(bytes);
        stream.memcpy_htod(&self.own, &mut self.own_on_gpu)?;
        let (from, _) = self.own_on_gpu.device_ptr(stream);
        let (to, _) = self.all_on_gpu.device_ptr_mut(stream);
        Ok((from, to, HEAD_BYTES + self.n_most))
    }

    /// Starts to copy the bytes of all ranks back.
    pub(super) fn bring(&mut self, stream: &Arc<CudaStream>) -> Result<(), DriverError> {
        stream.memcpy_dtoh(&self.all_on_gpu, &mut self.all)?;
        self.done = Some(stream.record_event(None)?);
        Ok(())
    }

    pub(super) fn is_done(&self) -> Result<bool, DriverError> {
        let Some(done) = &self.done else { return Ok(true) };
        // SAFETY: the event lives as long as this.
        match unsafe { result::event::query(done.cu_event()) } {
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            asked => asked.map(|()| true),
        }
    }

    /// The bytes of all ranks, once they are here.
    pub(super) fn shared(&self) -> Result<Vec<Vec<u8>>, DriverError> {
        let rows = self.all.as_slice()?.chunks_exact(HEAD_BYTES + self.n_most);
        let own = |row: &[u8]| {
            let head = row[..HEAD_BYTES].try_into().expect("as many bytes");
            row[HEAD_BYTES..].iter().take(u32::from_le_bytes(head) as usize).copied().collect()
        };
        Ok(rows.map(own).collect())
    }
}
