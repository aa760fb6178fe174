//! A GPU behind the CUDA driver. Contains `unsafe` code.
#![allow(unsafe_code)]

use std::{
    collections::HashMap,
    ffi::{CString, c_void},
    sync::{Mutex, MutexGuard, PoisonError},
};

use cudarc::driver::{
    result::{self as cuda, DriverError},
    sys,
};

use super::{
    compile::{Constants, kernels},
    error::GpuError,
    machine::{Gpu, Lane, Machine, ModuleId, RecordingId},
    nvrtc::{compiled, compiler, too_old},
};

/// Opens a device by its number.
pub fn open(number: usize) -> Result<Gpu, GpuError> {
    // SAFETY: looks for a library by name, and opens it: NVIDIA's own, made for this.
    if !unsafe { sys::is_culib_present() } {
        return Err(GpuError::Missing(
            "libcuda.so.1 not found: install the NVIDIA driver, or use --device cpu".to_owned(),
        ));
    }
    let compiler = compiler()?;
    cuda::init().map_err(refused("start"))?;
    let mut version = 0;
    // SAFETY: `version` outlives the call.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(refused("tell its version"))?;
    if version / 1000 < compiler.0 {
        return Err(GpuError::Missing(too_old((version / 1000, version % 1000 / 10), compiler)));
    }
    Driver::open(number).map(Gpu::new)
}

#[derive(Debug)]
struct Driver {
    name: String,
    architecture: String,
    context: Handle<sys::CUcontext>,
    stream: Handle<sys::CUstream>,
    /// The stream of [`Lane::Sample`].
    sampling: Handle<sys::CUstream>,
    /// Copies that run beside both.
    copies: Handle<sys::CUstream>,
    /// Event of the last mark, and of the last time that a lane followed another.
    mark: Handle<sys::CUevent>,
    followed: Handle<sys::CUevent>,
    device: sys::CUdevice,
    made: Mutex<Made>,
}

/// Modules, recordings and arrays from the driver, to be given back.
#[derive(Debug, Default)]
struct Made {
    modules: Vec<Module>,
    /// The module of kernels that know no layer comes first.
    by_constants: HashMap<Constants, ModuleId>,
    /// None where one was forgotten.
    recordings: Vec<Option<Handle<sys::CUgraphExec>>>,
    /// Bytes of each array, by address.
    arrays: HashMap<u64, u64>,
}

/// The kernels for some constants, in parts.
#[derive(Debug, Default)]
struct Module {
    parts: Vec<Handle<sys::CUmodule>>,
    functions: HashMap<String, Handle<sys::CUfunction>>,
}

/// A handle of the driver's, which it lets any thread use once that thread has the context.
#[derive(Clone, Copy, Debug)]
struct Handle<T>(T);

// SAFETY: the driver's handles belong to the context, not to a thread, and its functions may be called from any thread.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

fn refused(what: &'static str) -> impl Fn(DriverError) -> GpuError {
    move |error| GpuError::Driver { what, error: format!("{:?}", error.0) }
}

impl Driver {
    fn open(number: usize) -> Result<Driver, GpuError> {
        let device = cuda::device::get(number as i32).map_err(refused("find the device"))?;
        let name = cuda::device::get_name(device).map_err(refused("name the device"))?;
        let attribute = |attribute| {
            // SAFETY: `device` is one.
            unsafe { cuda::device::get_attribute(device, attribute) }.map_err(refused("describe the device"))
        };
        let major = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        // SAFETY: `device` is one; the context is released when this is dropped.
        let context = unsafe { cuda::primary_ctx::retain(device) }.map_err(refused("make a context"))?;
        // SAFETY: the context was just made.
        unsafe { cuda::ctx::set_current(context) }.map_err(refused("take the context"))?;
        let stream = cuda::stream::create(cuda::stream::StreamKind::NonBlocking).map_err(refused("make a stream"))?;
        let sampling = cuda::stream::create(cuda::stream::StreamKind::NonBlocking).map_err(refused("make a stream"))?;
        let copies = cuda::stream::create(cuda::stream::StreamKind::NonBlocking).map_err(refused("make a stream"))?;
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let mark = cuda::event::create(flags).map_err(refused("make an event"))?;
        let followed = cuda::event::create(flags).map_err(refused("make an event"))?;
        Ok(Driver {
            name,
            architecture: format!("sm_{major}{minor}"),
            context: Handle(context),
            stream: Handle(stream),
            sampling: Handle(sampling),
            copies: Handle(copies),
            mark: Handle(mark),
            followed: Handle(followed),
            device,
            made: Mutex::default(),
        })
    }

    /// Makes the context that of this thread.
    fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the context lives as long as this.
        unsafe { cuda::ctx::set_current(self.context.0) }.map_err(refused("take the context"))
    }

    fn stream_of(&self, lane: Lane) -> sys::CUstream {
        match lane {
            Lane::Compute => self.stream.0,
            Lane::Sample => self.sampling.0,
        }
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a part of a module.
    fn load(&self, module: &mut Module, source: &str, image: &[u8]) -> Result<(), GpuError> {
        // SAFETY: the image was made by the compiler, and lives through the call.
        let part = unsafe { cuda::module::load_data(image.as_ptr().cast()) }.map_err(refused("load the kernels"))?;
        module.parts.push(Handle(part));
        for name in kernels(source) {
            let c_name = CString::new(name).expect("names of kernels have no zero");
            // SAFETY: the part was just loaded and stays.
            let function = unsafe { cuda::module::get_function(part, c_name) }.map_err(refused("find a kernel"))?;
            module.functions.insert(name.to_owned(), Handle(function));
        }
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let Ok(()) = self.enter() else { return };
        let made = std::mem::take(&mut *self.made());
        // SAFETY: all handles came from the driver, are given back once, and nothing runs any more after the first line.
        unsafe {
            let _ = cuda::stream::synchronize(self.stream.0);
            let _ = cuda::stream::synchronize(self.sampling.0);
            let _ = cuda::stream::synchronize(self.copies.0);
            for recording in made.recordings.into_iter().flatten() {
                let _ = cuda::graph::exec_destroy(recording.0);
            }
            for part in made.modules.into_iter().flat_map(|module| module.parts) {
                let _ = cuda::module::unload(part.0);
            }
            let _ = cuda::stream::destroy(self.stream.0);
            let _ = cuda::stream::destroy(self.sampling.0);
            let _ = cuda::stream::destroy(self.copies.0);
            let _ = cuda::event::destroy(self.mark.0);
            let _ = cuda::event::destroy(self.followed.0);
            let _ = cuda::primary_ctx::release(self.device);
        }
    }
}

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
        let stream = self.stream_of(lane);
        // SAFETY: the array is at least so large. Synchronized: the bytes may go as soon as this returns.
        unsafe {
            cuda::memcpy_htod_async(address, bytes, stream).map_err(refused("copy to the device"))?;
            cuda::stream::synchronize(stream).map_err(refused("copy to the device"))
        }
    }

    fn download(&self, lane: Lane, address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.enter()?;
        let stream = self.stream_of(lane);
        // SAFETY: the array is at least so large; the bytes are there when this returns.
        unsafe {
            cuda::memcpy_dtoh_async(bytes, address, stream).map_err(refused("copy from the device"))?;
            cuda::stream::synchronize(stream).map_err(refused("finish what was started"))
        }
    }

    fn fill(&self, lane: Lane, address: u64, n_bytes: usize, byte: u8) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the array is at least so large.
        unsafe { cuda::memset_d8_async(address, byte, n_bytes, self.stream_of(lane)) }.map_err(refused("fill memory"))
    }

    fn follow(&self, later: Lane, earlier: Lane) -> Result<(), GpuError> {
        self.enter()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the event and both streams live as long as this.
        unsafe {
            cuda::event::record(self.followed.0, self.stream_of(earlier)).map_err(refused("order its work"))?;
            cuda::stream::wait_event(self.stream_of(later), self.followed.0, flags).map_err(refused("order its work"))
        }
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

    unsafe fn send(&self, address: u64, bytes: *const u8, n_bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the array is at least so large; the bytes stay until the copy was waited for.
        unsafe {
            let bytes = std::slice::from_raw_parts(bytes, n_bytes);
            cuda::memcpy_htod_async(address, bytes, self.copies.0).map_err(refused("copy to the device"))
        }
    }

    fn wait_for_copies(&self) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the stream lives as long as this.
        unsafe { cuda::stream::synchronize(self.copies.0) }.map_err(refused("copy to the device"))
    }

    fn mark(&self) -> Result<(), GpuError> {
        self.enter()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the event and both streams live as long as this.
        unsafe {
            cuda::event::record(self.mark.0, self.stream.0).map_err(refused("set a mark"))?;
            cuda::stream::wait_event(self.copies.0, self.mark.0, flags).map_err(refused("set a mark"))
        }
    }

    fn fetch(&self, address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the array is at least so large; the bytes are there when this returns.
        unsafe {
            cuda::memcpy_dtoh_async(bytes, address, self.copies.0).map_err(refused("copy from the device"))?;
            cuda::stream::synchronize(self.copies.0).map_err(refused("copy from the device"))
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
        // SAFETY: the stream lives as long as this.
        unsafe { cuda::stream::synchronize(self.stream_of(lane)) }.map_err(refused("finish what was started"))
    }

    fn begin_recording(&self) -> Result<bool, GpuError> {
        self.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as this.
        unsafe { cuda::stream::begin_capture(self.stream.0, mode) }.map_err(refused("record"))?;
        Ok(true)
    }

    fn end_recording(&self) -> Result<RecordingId, GpuError> {
        self.enter()?;
        // SAFETY: the stream is recording; the graph is destroyed once the recording was made of it.
        let recording = unsafe {
            let graph = cuda::stream::end_capture(self.stream.0).map_err(refused("record"))?;
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
        unsafe { cuda::graph::launch(recording.0, self.stream.0) }.map_err(refused("play what was recorded"))
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
