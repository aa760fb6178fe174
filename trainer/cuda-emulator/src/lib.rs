//! Emulated GPU: runs the CUDA kernels on the CPU, thread by thread, to test their logic without a GPU. Contains
//! `unsafe` code.
#![allow(unsafe_code)]

use std::{
    collections::HashMap,
    ffi::{CString, c_char, c_void},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use kith_kernels::cuda::{Constants, EventId, Gpu, GpuError, Lane, Machine, ModuleId, RecordingId};

unsafe extern "C" {
    fn kith_cuda_emulator_launch(name: *const c_char, grid: *const u32, n_threads: u32, args: *mut *mut c_void)
    -> bool;
}

/// An emulated GPU with 1 GiB of memory.
pub fn gpu() -> Gpu {
    gpu_with(1 << 30)
}

/// An emulated GPU with `n_bytes` of memory.
pub fn gpu_with(n_bytes: u64) -> Gpu {
    Gpu::new(Emulated { memory: Mutex::default(), n_bytes, n_waits: AtomicU64::new(0) })
}

/// Kernels share one set of fibers: one runs at a time.
static RUNNING: Mutex<()> = Mutex::new(());

/// Memory is this process's own, by address.
#[derive(Debug)]
struct Emulated {
    memory: Mutex<HashMap<u64, Vec<u128>>>,
    n_bytes: u64,
    n_waits: AtomicU64,
}

impl Emulated {
    fn memory(&self) -> MutexGuard<'_, HashMap<u64, Vec<u128>>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A GPU would be waited for.
    fn count_wait(&self, lane: Lane) {
        self.n_waits.fetch_add(u64::from(lane == Lane::Compute), Ordering::Relaxed);
    }

    /// Does something with memory from an address on, which may be within an array.
    fn with<T>(&self, address: u64, n_bytes: usize, act: impl FnOnce(*mut u8) -> T) -> T {
        let memory = self.memory();
        let holds = |(start, array): &(&u64, &Vec<u128>)| {
            (**start..**start + 16 * array.len() as u64).contains(&address)
                && address + n_bytes as u64 <= **start + 16 * array.len() as u64
        };
        assert!(memory.iter().any(|entry| holds(&entry)), "no array has these {n_bytes} bytes");
        act(address as *mut u8)
    }
}

impl Machine for Emulated {
    fn name(&self) -> String {
        "an emulated GPU".to_owned()
    }

    fn allocate(&self, n_bytes: usize, what: &'static str) -> Result<u64, GpuError> {
        let free = self.free_bytes();
        if n_bytes as u64 > free {
            return Err(GpuError::NoMemory { asked: n_bytes as u64, what, free });
        }
        // Not zeros: what nobody wrote should be seen.
        let array = vec![u128::MAX; n_bytes.div_ceil(16)];
        let address = array.as_ptr() as u64;
        self.memory().insert(address, array);
        Ok(address)
    }

    fn used_bytes(&self) -> u64 {
        self.memory().values().map(|array| 16 * array.len() as u64).sum()
    }

    fn free_bytes(&self) -> u64 {
        self.n_bytes.saturating_sub(self.used_bytes())
    }

    fn free(&self, address: u64) {
        self.memory().remove(&address);
    }

    fn upload(&self, lane: Lane, address: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.count_wait(lane);
        // SAFETY: an array has `bytes.len()` bytes there, and kernels run in no other thread while this one copies.
        self.with(address, bytes.len(), |to| unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) });
        Ok(())
    }

    /// May run beside a kernel, which does not write these bytes.
    fn download(&self, lane: Lane, address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.count_wait(lane);
        // SAFETY: as above.
        self.with(address, bytes.len(), |from| unsafe {
            std::ptr::copy_nonoverlapping(from.cast_const(), bytes.as_mut_ptr(), bytes.len());
        });
        Ok(())
    }

    fn fill(&self, _lane: Lane, address: u64, n_bytes: usize, byte: u8) -> Result<(), GpuError> {
        // SAFETY: as above.
        self.with(address, n_bytes, |to| unsafe { std::ptr::write_bytes(to, byte, n_bytes) });
        Ok(())
    }

    /// Everything is over when it returns.
    fn event(&self) -> Result<EventId, GpuError> {
        Ok(EventId(0))
    }

    fn record(&self, _event: EventId, _lane: Lane) -> Result<(), GpuError> {
        Ok(())
    }

    fn follow(&self, _lane: Lane, _event: EventId) -> Result<(), GpuError> {
        Ok(())
    }

    fn wait_for(&self, _event: EventId) -> Result<(), GpuError> {
        Ok(())
    }

    fn is_over(&self, _event: EventId) -> Result<bool, GpuError> {
        Ok(true)
    }

    fn free_event(&self, _event: EventId) {}

    fn stream(&self, _lane: Lane) -> Option<u64> {
        None
    }

    fn n_waits(&self) -> u64 {
        self.n_waits.load(Ordering::Relaxed)
    }

    fn pin(&self, n_bytes: usize) -> Result<*mut u8, GpuError> {
        let memory = vec![0u128; n_bytes.div_ceil(16)].into_boxed_slice();
        Ok(Box::into_raw(memory).cast())
    }

    unsafe fn unpin(&self, memory: *mut u8, n_bytes: usize) {
        let memory = std::ptr::slice_from_raw_parts_mut(memory.cast::<u128>(), n_bytes.div_ceil(16));
        // SAFETY: made so in `pin`, and nobody else has it.
        drop(unsafe { Box::from_raw(memory) });
    }

    unsafe fn send(&self, _lane: Lane, address: u64, bytes: *const u8, n_bytes: usize) -> Result<(), GpuError> {
        // SAFETY: an array has `n_bytes` bytes there; the caller's bytes are as many.
        self.with(address, n_bytes, |to| unsafe { std::ptr::copy_nonoverlapping(bytes, to, n_bytes) });
        Ok(())
    }

    unsafe fn bring(&self, _lane: Lane, address: u64, bytes: *mut u8, n_bytes: usize) -> Result<(), GpuError> {
        // SAFETY: as above.
        self.with(address, n_bytes, |from| unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), bytes, n_bytes) });
        Ok(())
    }

    fn compile(&self, constants: &[Constants]) -> Result<Vec<ModuleId>, GpuError> {
        Ok(vec![ModuleId(0); constants.len()])
    }

    unsafe fn launch(
        &self,
        _lane: Lane,
        _module: ModuleId,
        kernel: &'static str,
        grid: [u32; 3],
        n_threads: u32,
        args: &mut [*mut c_void],
    ) -> Result<(), GpuError> {
        let _running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let name = CString::new(kernel).expect("names of kernels have no zero");
        // SAFETY: the caller's arguments are the kernel's; one kernel runs at a time.
        let is_known = unsafe { kith_cuda_emulator_launch(name.as_ptr(), grid.as_ptr(), n_threads, args.as_mut_ptr()) };
        assert!(is_known, "there is no kernel {kernel}");
        Ok(())
    }

    fn synchronize(&self, lane: Lane) -> Result<(), GpuError> {
        self.count_wait(lane);
        Ok(())
    }

    fn begin_recording(&self) -> Result<bool, GpuError> {
        Ok(false)
    }

    fn end_recording(&self) -> Result<RecordingId, GpuError> {
        unreachable!("nothing is recorded")
    }

    fn play(&self, _recording: RecordingId) -> Result<(), GpuError> {
        unreachable!("nothing was recorded")
    }

    fn forget(&self, _recording: RecordingId) {}
}
