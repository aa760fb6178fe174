//! Memory of this process that copies run from and to while a GPU and this process do something else; and events, which say
//! when a copy is over. Contains `unsafe` code.
#![allow(unsafe_code)]

use super::{
    error::GpuError,
    machine::{EventId, Gpu, Lane},
    memory::Address,
};

/// An event of a machine.
#[derive(Debug)]
pub(super) struct Event {
    gpu: Gpu,
    id: EventId,
}

impl Event {
    /// One that is over.
    pub(super) fn new(gpu: &Gpu) -> Result<Event, GpuError> {
        Ok(Event { gpu: gpu.clone(), id: gpu.machine().event()? })
    }

    /// Is over once everything that was started in the lane is.
    pub(super) fn record(&self, lane: Lane) -> Result<(), GpuError> {
        self.gpu.machine().record(self.id, lane)
    }

    /// Waits for it.
    pub(super) fn wait(&self) -> Result<(), GpuError> {
        self.gpu.machine().wait_for(self.id)
    }

    /// True if it is over.
    pub(super) fn is_over(&self) -> Result<bool, GpuError> {
        self.gpu.machine().is_over(self.id)
    }

    /// Makes a lane wait for it.
    pub(super) fn hold(&self, lane: Lane) -> Result<(), GpuError> {
        self.gpu.machine().follow(lane, self.id)
    }

    /// Its number, for another thread; it must not outlive this.
    pub(super) fn id(&self) -> EventId {
        self.id
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.gpu.machine().free_event(self.id);
    }
}

/// Pinned memory, and the last copy from or to it.
#[derive(Debug)]
pub(super) struct Pinned {
    gpu: Gpu,
    memory: *mut u8,
    n_bytes: usize,
    copied: Event,
}

// SAFETY: the memory is this one's alone, and any thread may write it.
unsafe impl Send for Pinned {}
// SAFETY: it is only written through `&mut`.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(super) fn new(gpu: &Gpu, n_bytes: usize) -> Result<Pinned, GpuError> {
        let n_bytes = n_bytes.max(1);
        let copied = Event::new(gpu)?;
        Ok(Pinned { gpu: gpu.clone(), memory: gpu.machine().pin(n_bytes)?, n_bytes, copied })
    }

    pub(super) fn len(&self) -> usize {
        self.n_bytes
    }

    /// All of it, once no copy runs any more.
    pub(super) fn bytes(&mut self) -> Result<&mut [u8], GpuError> {
        self.copied.wait()?;
        // SAFETY: `n_bytes` bytes are there, initialized by `pin`, nobody else has them while this is borrowed, and the copies
        // are over.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.memory, self.n_bytes) })
    }

    /// Its address, which kernels can read; nobody writes it while they do.
    pub(super) fn address(&self) -> Address {
        Address(self.memory as u64)
    }

    /// True if no copy runs any more.
    pub(super) fn is_there(&self) -> Result<bool, GpuError> {
        self.copied.is_over()
    }

    /// Starts a copy of the first bytes to the machine.
    pub(super) fn send(&mut self, lane: Lane, address: u64, n_bytes: usize) -> Result<(), GpuError> {
        assert!(n_bytes <= self.n_bytes, "a part of the memory");
        // SAFETY: the memory came from `pin`, and is only reached through `bytes`, after the copy.
        unsafe { self.gpu.machine().send(lane, address, self.memory, n_bytes)? };
        self.copied.record(lane)
    }

    /// Starts a copy of bytes from the machine to a place here.
    pub(super) fn bring(&mut self, lane: Lane, address: u64, start: usize, n_bytes: usize) -> Result<(), GpuError> {
        assert!(start + n_bytes <= self.n_bytes, "a part of the memory");
        // SAFETY: the memory came from `pin`, and is only reached through `bytes`, after the copy.
        unsafe { self.gpu.machine().bring(lane, address, self.memory.add(start), n_bytes)? };
        self.copied.record(lane)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.copied.wait();
        // SAFETY: no copy runs any more, and this was the only one who had it.
        unsafe { self.gpu.machine().unpin(self.memory, self.n_bytes) };
    }
}
