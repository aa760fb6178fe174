//! Devices that run kernels: a GPU behind its driver, or an emulator. Contains `unsafe` code.
#![allow(unsafe_code)]

use std::{ffi::c_void, fmt, sync::Arc};

use super::{args::Args, compile::Constants, error::GpuError};

/// A compiled set of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModuleId(pub usize);

/// Recorded launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordingId(pub usize);

/// A queue of a device: what is started in one runs in order, beside the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Forward, backward and evaluation.
    Compute,
    /// Sampling of the next mini-batch.
    Sample,
}

/// A device that runs kernels. Everything that is started in a lane runs in the order it was started in.
pub trait Machine: fmt::Debug + Send + Sync {
    /// Name of the device.
    fn name(&self) -> String;

    /// Allocates `n_bytes` bytes; gives their address on the device.
    fn allocate(&self, n_bytes: usize, what: &'static str) -> Result<u64, GpuError>;

    /// Bytes that were allocated and not given back.
    fn used_bytes(&self) -> u64;

    /// Bytes that could be allocated.
    fn free_bytes(&self) -> u64;

    /// Gives memory back.
    fn free(&self, address: u64);

    /// Copies bytes to the machine.
    fn upload(&self, lane: Lane, address: u64, bytes: &[u8]) -> Result<(), GpuError>;

    /// Waits for everything that was started in the lane, and copies bytes from the machine.
    fn download(&self, lane: Lane, address: u64, bytes: &mut [u8]) -> Result<(), GpuError>;

    /// Sets every byte.
    fn fill(&self, lane: Lane, address: u64, n_bytes: usize, byte: u8) -> Result<(), GpuError>;

    /// Makes lane `later` wait, from here on, for everything that was started in lane `earlier`.
    fn follow(&self, later: Lane, earlier: Lane) -> Result<(), GpuError>;

    /// Memory of this process that copies run from while both sides do something else.
    fn pin(&self, n_bytes: usize) -> Result<*mut u8, GpuError>;

    /// Gives such memory back, once nothing is copied from it.
    ///
    /// # Safety
    ///
    /// It came from `pin`, and nobody uses it any more.
    unsafe fn unpin(&self, memory: *mut u8, n_bytes: usize);

    /// Starts a copy to the machine, beside whatever it computes.
    ///
    /// # Safety
    ///
    /// The bytes came from `pin` and stay as they are until [`Machine::wait_for_copies`] returned.
    unsafe fn send(&self, address: u64, bytes: *const u8, n_bytes: usize) -> Result<(), GpuError>;

    /// Waits for all copies that were started.
    fn wait_for_copies(&self) -> Result<(), GpuError>;

    /// Copies that are started from here on begin after everything that was started in [`Lane::Compute`].
    fn mark(&self) -> Result<(), GpuError>;

    /// Copies bytes from the machine beside whatever it computes since the last mark, and waits for them.
    fn fetch(&self, address: u64, bytes: &mut [u8]) -> Result<(), GpuError>;

    /// Compiles the kernels for each of these constants, at the same time, and those that know no layer.
    fn compile(&self, constants: &[Constants]) -> Result<Vec<ModuleId>, GpuError>;

    /// Starts a kernel. Each argument points to a value of the type that the kernel takes there.
    ///
    /// # Safety
    ///
    /// The arguments are those of the kernel, and what they point to on the machine is as large as the kernel takes it to be.
    unsafe fn launch(
        &self,
        lane: Lane,
        module: ModuleId,
        kernel: &'static str,
        grid: [u32; 3],
        n_threads: u32,
        args: &mut [*mut c_void],
    ) -> Result<(), GpuError>;

    /// Waits for everything that was started in the lane.
    fn synchronize(&self, lane: Lane) -> Result<(), GpuError>;

    /// From here on launches in [`Lane::Compute`] are recorded, not started; `false` where the machine cannot.
    fn begin_recording(&self) -> Result<bool, GpuError>;

    /// Ends a recording.
    fn end_recording(&self) -> Result<RecordingId, GpuError>;

    /// Starts everything that was recorded.
    fn play(&self, recording: RecordingId) -> Result<(), GpuError>;

    /// Frees a recording, once it has run.
    fn forget(&self, recording: RecordingId);
}

/// Memory of this process that copies to a machine run from while both do something else.
#[derive(Debug)]
pub(super) struct Pinned {
    gpu: Gpu,
    memory: *mut u8,
    n_bytes: usize,
}

// SAFETY: the memory is this one's alone, and any thread may write it.
unsafe impl Send for Pinned {}

impl Pinned {
    pub(super) fn new(gpu: &Gpu, n_bytes: usize) -> Result<Pinned, GpuError> {
        let n_bytes = n_bytes.max(1);
        Ok(Pinned { gpu: gpu.clone(), memory: gpu.machine().pin(n_bytes)?, n_bytes })
    }

    pub(super) fn len(&self) -> usize {
        self.n_bytes
    }

    /// All of it, once no copy runs from it any more.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `n_bytes` bytes are there, initialized by `pin`, and nobody else has them while this is borrowed; the
        // copies of the last use are over, since an arena waits for them before it is filled again.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.n_bytes) }
    }

    /// Starts a copy of the first bytes.
    pub(super) fn send(&self, address: u64, n_bytes: usize) -> Result<(), GpuError> {
        assert!(n_bytes <= self.n_bytes, "a part of the memory");
        // SAFETY: the memory came from `pin`, and is written again only after the copies were waited for.
        unsafe { self.gpu.machine().send(address, self.memory, n_bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.gpu.machine().wait_for_copies();
        // SAFETY: no copy runs any more, and this was the only one who had it.
        unsafe { self.gpu.machine().unpin(self.memory, self.n_bytes) };
    }
}

/// A machine that runs kernels, shared by all that is on it.
#[derive(Clone, Debug)]
pub struct Gpu {
    machine: Arc<dyn Machine>,
    lane: Lane,
}

impl Gpu {
    /// Takes a machine.
    pub fn new(machine: impl Machine + 'static) -> Gpu {
        Gpu { machine: Arc::new(machine), lane: Lane::Compute }
    }

    /// The same machine; what is started through this one runs in another lane.
    pub(super) fn in_lane(&self, lane: Lane) -> Gpu {
        Gpu { machine: Arc::clone(&self.machine), lane }
    }

    pub(super) fn lane(&self) -> Lane {
        self.lane
    }

    pub(super) fn machine(&self) -> &dyn Machine {
        &*self.machine
    }

    /// Name of the device.
    pub fn name(&self) -> String {
        self.machine.name()
    }

    /// Bytes of all arrays on it.
    pub fn used_bytes(&self) -> u64 {
        self.machine.used_bytes()
    }

    /// Bytes that could be allocated.
    pub fn free_bytes(&self) -> u64 {
        self.machine.free_bytes()
    }

    /// Waits for everything that was started through it.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        self.machine.synchronize(self.lane)
    }

    /// Starts a kernel of `n_threads` per block.
    pub(super) fn launch(
        &self,
        module: ModuleId,
        kernel: &'static str,
        grid: [u32; 3],
        n_threads: u32,
        args: &mut Args,
    ) -> Result<(), GpuError> {
        if grid.contains(&0) {
            return Ok(());
        }
        // SAFETY: every caller is in this folder and names the arguments in the order of the kernel's own; arrays were made
        // as large as the graph and the layer that go with them.
        unsafe { self.machine.launch(self.lane, module, kernel, grid, n_threads, &mut args.pointers()) }
    }
}
