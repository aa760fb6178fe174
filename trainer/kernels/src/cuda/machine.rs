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

/// Something that is over once everything before it in a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId(pub usize);

/// A queue of a device: what is started in one runs in order, beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Forward, backward and evaluation.
    Compute,
    /// Sampling of the next mini-batch.
    Sample,
    /// Mini-batches from the host.
    Send,
    /// Copies of drawn mini-batches to the host.
    Read,
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

    /// A new event, which is over.
    fn event(&self) -> Result<EventId, GpuError>;

    /// From now on the event is over once everything that was started in the lane is.
    fn record(&self, event: EventId, lane: Lane) -> Result<(), GpuError>;

    /// Makes all work that is started in the lane from here on wait for the event.
    fn follow(&self, lane: Lane, event: EventId) -> Result<(), GpuError>;

    /// Waits for an event.
    fn wait_for(&self, event: EventId) -> Result<(), GpuError>;

    /// True if an event is over.
    fn is_over(&self, event: EventId) -> Result<bool, GpuError>;

    /// Gives an event back.
    fn free_event(&self, event: EventId);

    /// The driver's handle of a lane's stream; `None` where nothing but this runs kernels.
    fn stream(&self, lane: Lane) -> Option<u64>;

    /// Times that this process waited for [`Lane::Compute`] so far.
    fn n_waits(&self) -> u64;

    /// Memory of this process that copies run from and to while both sides do something else.
    fn pin(&self, n_bytes: usize) -> Result<*mut u8, GpuError>;

    /// Gives such memory back, once nothing is copied from it.
    ///
    /// # Safety
    ///
    /// It came from `pin`, and nobody uses it any more.
    unsafe fn unpin(&self, memory: *mut u8, n_bytes: usize);

    /// Starts a copy to the machine, in a lane.
    ///
    /// # Safety
    ///
    /// The bytes came from `pin` and stay as they are until the copy is over.
    unsafe fn send(&self, lane: Lane, address: u64, bytes: *const u8, n_bytes: usize) -> Result<(), GpuError>;

    /// Starts a copy from the machine, in a lane.
    ///
    /// # Safety
    ///
    /// The bytes came from `pin`, and nobody reads or writes them until the copy is over.
    unsafe fn bring(&self, lane: Lane, address: u64, bytes: *mut u8, n_bytes: usize) -> Result<(), GpuError>;

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

    /// Times that this process waited for the GPU's computations so far, evaluations included.
    pub fn n_waits(&self) -> u64 {
        self.machine.n_waits()
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
