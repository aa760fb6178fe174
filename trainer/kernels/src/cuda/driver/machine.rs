//! Calls of the CUDA driver: memory, copies, events, kernels and recordings. Contains `unsafe` code.
#![allow(unsafe_code)]

use std::{collections::HashMap, ffi::c_void, sync::atomic::Ordering};

use cudarc::driver::{result as cuda, sys};

use super::{Driver, Handle, Module, refused};
use crate::cuda::{
    cache::compiled,
    compile::Constants,
    error::GpuError,
    machine::{EventId, Lane, Machine, ModuleId, RecordingId},
};

impl Machine for Driver {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn allocate(&self, n_bytes: usize, what: &'static str) -> Result<u64, GpuError> {
        self.enter()?;
        // SAFETY: the caller fills the memory before it is read.
        let address = unsafe { cuda::malloc_sync(n_bytes) }.map_err(|error| match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let free = cuda::mem_get_info().map_or(0, |(free, _)| free as u64);
                GpuError::NoMemory { asked: n_bytes as u64, what, free }
            }
            _ => refused("find memory")(error),
        })?;
        self.made().arrays.insert(address, n_bytes as u64);
        Ok(address)
    }

    fn used_bytes(&self) -> u64 {
        self.made().arrays.values().sum()
    }

    fn free_bytes(&self) -> u64 {
        self.enter().ok().and_then(|()| cuda::mem_get_info().ok()).map_or(0, |(free, _)| free as u64)
    }

    fn free(&self, address: u64) {
        self.made().arrays.remove(&address);
        if self.enter().is_ok() {
            // SAFETY: the address came from `allocate`, and its array is gone. Freeing waits for what was started.
            let _ = unsafe { cuda::free_sync(address) };
        }
    }

    fn upload(&self, lane: Lane, address: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the array is at least so large. Waited for: the bytes may go as soon as this returns.
        unsafe { cuda::memcpy_htod_async(address, bytes, self.stream_of(lane)) }
            .map_err(refused("copy to the device"))?;
        self.wait(lane, "copy to the device")
    }

    fn download(&self, lane: Lane, address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the array is at least so large; the bytes are there when this returns.
        unsafe { cuda::memcpy_dtoh_async(bytes, address, self.stream_of(lane)) }
            .map_err(refused("copy from the device"))?;
        self.wait(lane, "finish what was started")
    }

    fn fill(&self, lane: Lane, address: u64, n_bytes: usize, byte: u8) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the array is at least so large.
        unsafe { cuda::memset_d8_async(address, byte, n_bytes, self.stream_of(lane)) }.map_err(refused("fill memory"))
    }

    fn event(&self) -> Result<EventId, GpuError> {
        self.enter()?;
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let event = cuda::event::create(flags).map_err(refused("make an event"))?;
        let mut made = self.made();
        made.events.push(Some(Handle(event)));
        Ok(EventId(made.events.len() - 1))
    }

    fn record(&self, event: EventId, lane: Lane) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the event and the stream live as long as this.
        unsafe { cuda::event::record(self.event_of(event), self.stream_of(lane)) }.map_err(refused("set an event"))
    }

    fn follow(&self, lane: Lane, event: EventId) -> Result<(), GpuError> {
        self.enter()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: as above.
        unsafe { cuda::stream::wait_event(self.stream_of(lane), self.event_of(event), flags) }
            .map_err(refused("order its work"))
    }

    fn wait_for(&self, event: EventId) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: as above.
        unsafe { sys::cuEventSynchronize(self.event_of(event)) }.result().map_err(refused("finish what was started"))
    }

    fn is_over(&self, event: EventId) -> Result<bool, GpuError> {
        self.enter()?;
        // SAFETY: as above.
        match unsafe { cuda::event::query(self.event_of(event)) } {
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            asked => asked.map(|()| true).map_err(refused("finish what was started")),
        }
    }

    fn free_event(&self, event: EventId) {
        let event = self.made().events[event.0].take();
        if let (Ok(()), Some(event)) = (self.enter(), event) {
            // SAFETY: the event came from the driver and is given back once.
            let _ = unsafe { cuda::event::destroy(event.0) };
        }
    }

    fn stream(&self, lane: Lane) -> Option<u64> {
        Some(self.stream_of(lane) as u64)
    }

    fn n_waits(&self) -> u64 {
        self.n_waits.load(Ordering::Relaxed)
    }

    fn pin(&self, n_bytes: usize) -> Result<*mut u8, GpuError> {
        self.enter()?;
        // SAFETY: given back by `unpin`; filled here, so that it may be read as bytes.
        unsafe {
            let memory = cuda::malloc_host(n_bytes, 0).map_err(refused("pin memory of this process"))?.cast::<u8>();
            memory.write_bytes(0, n_bytes);
            Ok(memory)
        }
    }

    unsafe fn unpin(&self, memory: *mut u8, _n_bytes: usize) {
        if self.enter().is_ok() {
            // SAFETY: the caller's memory came from `pin`.
            let _ = unsafe { cuda::free_host(memory.cast()) };
        }
    }

    unsafe fn send(&self, lane: Lane, address: u64, bytes: *const u8, n_bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the array is at least so large; the bytes stay until the copy is over.
        unsafe {
            let bytes = std::slice::from_raw_parts(bytes, n_bytes);
            cuda::memcpy_htod_async(address, bytes, self.stream_of(lane)).map_err(refused("copy to the device"))
        }
    }

    unsafe fn bring(&self, lane: Lane, address: u64, bytes: *mut u8, n_bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the array is at least so large; nobody has the bytes until the copy is over.
        unsafe {
            let bytes = std::slice::from_raw_parts_mut(bytes, n_bytes);
            cuda::memcpy_dtoh_async(bytes, address, self.stream_of(lane)).map_err(refused("copy from the device"))
        }
    }

    fn compile(&self, wanted: &[Constants]) -> Result<Vec<ModuleId>, GpuError> {
        self.enter()?;
        let mut missing: Vec<Constants> = Vec::new();
        for constants in std::iter::once(&Constants::NO_LAYER).chain(wanted) {
            if !self.made().by_constants.contains_key(constants) && !missing.contains(constants) {
                missing.push(*constants);
            }
        }
        let own_parts = |own: &Constants| own.sources().into_iter().map(|source| (*own, source)).collect::<Vec<_>>();
        let parts: Vec<(Constants, String)> = missing.iter().flat_map(own_parts).collect();
        // A second or more for each, unless the cache has it.
        let images: Vec<Result<Vec<u8>, GpuError>> = std::thread::scope(|scope| {
            let start = |(own, part): &'_ (Constants, String)| compiled(&self.architecture, own, part);
            let started: Vec<_> = parts.iter().map(|part| scope.spawn(move || start(part))).collect();
            started.into_iter().map(|thread| thread.join().expect("compiling does not panic")).collect()
        });
        let images = images.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut modules: HashMap<Constants, Module> = HashMap::new();
        for ((own, part), image) in parts.iter().zip(images) {
            self.load(modules.entry(*own).or_default(), part, &image)?;
        }
        for (constants, module) in modules {
            let mut made = self.made();
            let id = ModuleId(made.modules.len());
            made.modules.push(module);
            made.by_constants.insert(constants, id);
        }
        let made = self.made();
        Ok(wanted.iter().map(|constants| made.by_constants[constants]).collect())
    }

    unsafe fn launch(
        &self,
        lane: Lane,
        module: ModuleId,
        kernel: &'static str,
        grid: [u32; 3],
        n_threads: u32,
        args: &mut [*mut c_void],
    ) -> Result<(), GpuError> {
        self.enter()?;
        let made = self.made();
        let common = made.by_constants[&Constants::NO_LAYER];
        let functions = [module, common].map(|module| &made.modules[module.0].functions);
        let function =
            *functions.iter().find_map(|functions| functions.get(kernel)).expect("every kernel has a module");
        drop(made);
        let (grid, block) = ((grid[0], grid[1], grid[2]), (n_threads, 1, 1));
        // SAFETY: the caller's arguments are the kernel's.
        unsafe { cuda::launch_kernel(function.0, grid, block, 0, self.stream_of(lane), args) }
            .map_err(|error| GpuError::Driver { what: "start a kernel", error: format!("{:?} ({kernel})", error.0) })
    }

    fn synchronize(&self, lane: Lane) -> Result<(), GpuError> {
        self.enter()?;
        self.wait(lane, "finish what was started")
    }

    fn begin_recording(&self) -> Result<bool, GpuError> {
        self.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as this.
        unsafe { cuda::stream::begin_capture(self.stream_of(Lane::Compute), mode) }.map_err(refused("record"))?;
        Ok(true)
    }

    fn end_recording(&self) -> Result<RecordingId, GpuError> {
        self.enter()?;
        // SAFETY: the stream is recording; the graph is destroyed once the recording was made of it.
        let recording = unsafe {
            let graph = cuda::stream::end_capture(self.stream_of(Lane::Compute)).map_err(refused("record"))?;
            let recording = cuda::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            let _ = cuda::graph::destroy(graph);
            recording.map_err(refused("record"))?
        };
        let mut made = self.made();
        made.recordings.push(Some(Handle(recording)));
        Ok(RecordingId(made.recordings.len() - 1))
    }

    fn play(&self, recording: RecordingId) -> Result<(), GpuError> {
        self.enter()?;
        let recording = self.made().recordings[recording.0].expect("nobody plays what was forgotten");
        // SAFETY: recordings stay as long as this, and so do the arrays of the program that plays its own.
        unsafe { cuda::graph::launch(recording.0, self.stream_of(Lane::Compute)) }
            .map_err(refused("play what was recorded"))
    }

    fn forget(&self, recording: RecordingId) {
        let (Ok(()), Some(recording)) = (self.synchronize(Lane::Compute), self.made().recordings[recording.0].take())
        else {
            return;
        };
        // SAFETY: the recording came from the driver, is given back once, and has run.
        let _ = unsafe { cuda::graph::exec_destroy(recording.0) };
    }
}
