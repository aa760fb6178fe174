//! A GPU behind the CUDA driver. Contains `unsafe` code.
#![allow(unsafe_code)]

mod machine;

use std::{
    collections::HashMap,
    ffi::CString,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use cudarc::driver::{
    result::{self as cuda, DriverError},
    sys,
};

use super::{
    compile::{Constants, kernels},
    error::GpuError,
    machine::{EventId, Gpu, Lane, ModuleId},
    nvrtc::{compiler, too_old},
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
    /// By lane.
    streams: [Handle<sys::CUstream>; 4],
    n_waits: AtomicU64,
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
    events: Vec<Option<Handle<sys::CUevent>>>,
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
        let stream = || cuda::stream::create(cuda::stream::StreamKind::NonBlocking).map(Handle);
        let stream = || stream().map_err(refused("make a stream"));
        let streams = [stream()?, stream()?, stream()?, stream()?];
        Ok(Driver {
            name,
            architecture: format!("sm_{major}{minor}"),
            context: Handle(context),
            streams,
            n_waits: AtomicU64::new(0),
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
        let place = match lane {
            Lane::Compute => 0,
            Lane::Sample => 1,
            Lane::Send => 2,
            Lane::Read => 3,
        };
        self.streams[place].0
    }

    /// Waits for everything that was started in a lane.
    fn wait(&self, lane: Lane, what: &'static str) -> Result<(), GpuError> {
        if lane == Lane::Compute {
            self.n_waits.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the stream lives as long as this.
        unsafe { cuda::stream::synchronize(self.stream_of(lane)) }.map_err(refused(what))
    }

    fn event_of(&self, event: EventId) -> sys::CUevent {
        self.made().events[event.0].expect("nobody uses what was given back").0
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
            for stream in self.streams {
                let _ = cuda::stream::synchronize(stream.0);
            }
            for recording in made.recordings.into_iter().flatten() {
                let _ = cuda::graph::exec_destroy(recording.0);
            }
            for part in made.modules.into_iter().flat_map(|module| module.parts) {
                let _ = cuda::module::unload(part.0);
            }
            for stream in self.streams {
                let _ = cuda::stream::destroy(stream.0);
            }
            for event in made.events.into_iter().flatten() {
                let _ = cuda::event::destroy(event.0);
            }
            let _ = cuda::primary_ctx::release(self.device);
        }
    }
}
