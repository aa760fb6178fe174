//! The two libraries of CUDA, opened by name at run time: the driver's and libtorch's.
//! One of the modules with `unsafe`.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_char, c_int, c_uint},
    mem,
    ptr::null,
};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW, Symbol};

use serde::Serialize;

/// One CUDA device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CudaDevice {
    /// The maker's name for it.
    pub name: String,
    /// All of its memory, in use or not.
    pub memory_bytes: u64,
    /// The instructions that it runs, as in sm_90.
    pub architecture: String,
}

/// Reason why no CUDA device can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCuda {
    /// The machine has no NVIDIA driver.
    #[error("libcuda.so.1 not found: install the NVIDIA driver, or use --device cpu")]
    DriverMissing,
    /// There is a driver, and it does not work.
    #[error("the NVIDIA driver does not start: {0}; check it with `nvidia-smi`")]
    DriverRefused(String),
    /// There is a driver, and it shows no device.
    #[error("the NVIDIA driver shows no device: check CUDA_VISIBLE_DEVICES")]
    NoDevice,
    /// Set-up ran where there was no driver, so libtorch's CUDA part was left out.
    #[error("libtorch_cuda.so not found: run `make` again on this machine")]
    LibraryMissing,
    /// libtorch's CUDA part is there, and does not load.
    #[error("libtorch_cuda.so does not load: {0}; run `make` again on this machine")]
    LibraryRefused(String),
    /// libtorch's CUDA part loaded, and disagrees with the driver.
    #[error("expected {n_driver} CUDA devices, libtorch sees {n_libtorch}: check the driver with `nvidia-smi`")]
    NotSeen {
        /// Devices the driver shows.
        n_driver: usize,
        /// Devices libtorch sees.
        n_libtorch: i64,
    },
}

const DRIVER: &str = "libcuda.so.1";
const LIBTORCH_CUDA: &str = "libtorch_cuda.so";
const MAJOR: c_int = 75; // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
const MINOR: c_int = 76; // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
const NO_DEVICE: c_int = 100; // The driver's answer also where CUDA_VISIBLE_DEVICES hides every device.

/// Version and devices of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DriverReport {
    /// The newest CUDA that it runs, as in 13.0.
    pub(crate) version: String,
    /// In the order that everybody numbers them in.
    pub(crate) devices: Vec<CudaDevice>,
}

/// Asks the driver.
pub(crate) fn ask_driver() -> Result<DriverReport, NoCuda> {
    let driver = Driver::open(DRIVER)?;
    let devices = driver.devices()?;
    Ok(DriverReport { version: driver.version()?, devices })
}

/// Opens libtorch's CUDA part.
pub(crate) fn open_libtorch_cuda() -> Result<(), NoCuda> {
    let library = open(LIBTORCH_CUDA, RTLD_NOW | RTLD_GLOBAL).map_err(|problem| match problem {
        OpenError::NotFound => NoCuda::LibraryMissing,
        OpenError::Refused(reason) => NoCuda::LibraryRefused(reason),
    })?;
    // libtorch keeps pointers into its CUDA part: it stays open for the life of the process.
    mem::forget(library);
    Ok(())
}

/// The NVIDIA driver's own interface, of which we ask only what can be known without making a context.
struct Driver(Library);

type Init = unsafe extern "C" fn(flags: c_uint) -> c_int;
type DriverVersion = unsafe extern "C" fn(version: *mut c_int) -> c_int;
type DeviceCount = unsafe extern "C" fn(n_devices: *mut c_int) -> c_int;
type DeviceGet = unsafe extern "C" fn(device: *mut c_int, index: c_int) -> c_int;
type DeviceName = unsafe extern "C" fn(name: *mut c_char, len: c_int, device: c_int) -> c_int;
type DeviceMemory = unsafe extern "C" fn(bytes: *mut usize, device: c_int) -> c_int;
type DeviceAttribute = unsafe extern "C" fn(value: *mut c_int, attribute: c_int, device: c_int) -> c_int;
type ErrorName = unsafe extern "C" fn(code: c_int, name: *mut *const c_char) -> c_int;

impl Driver {
    fn open(name: &str) -> Result<Driver, NoCuda> {
        open(name, RTLD_NOW | RTLD_LOCAL).map(Driver).map_err(|problem| match problem {
            OpenError::NotFound => NoCuda::DriverMissing,
            OpenError::Refused(reason) => NoCuda::DriverRefused(reason),
        })
    }

    fn devices(&self) -> Result<Vec<CudaDevice>, NoCuda> {
        let init: Symbol<Init> = self.function("cuInit")?;
        let count: Symbol<DeviceCount> = self.function("cuDeviceGetCount")?;
        let mut n_devices = 0;
        // SAFETY: the signatures are those of the driver's header; `n_devices` outlives the call.
        self.check(unsafe { init(0) })?;
        // SAFETY: as above.
        self.check(unsafe { count(&mut n_devices) })?;
        if n_devices <= 0 {
            return Err(NoCuda::NoDevice);
        }
        (0..n_devices).map(|index| self.device(index)).collect()
    }

    fn version(&self) -> Result<String, NoCuda> {
        let ask: Symbol<DriverVersion> = self.function("cuDriverGetVersion")?;
        let mut version = 0;
        // SAFETY: the signature is that of the driver's header; `version` outlives the call.
        self.check(unsafe { ask(&mut version) })?;
        Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
    }

    fn device(&self, index: c_int) -> Result<CudaDevice, NoCuda> {
        let get: Symbol<DeviceGet> = self.function("cuDeviceGet")?;
        let name: Symbol<DeviceName> = self.function("cuDeviceGetName")?;
        let memory: Symbol<DeviceMemory> = self.function("cuDeviceTotalMem_v2")?;
        let (mut device, mut text, mut memory_bytes) = (0, [0 as c_char; 256], 0);
        // SAFETY: the signatures are those of the driver's header; all three places outlive the calls.
        self.check(unsafe { get(&mut device, index) })?;
        // SAFETY: as above; the driver writes at most the length given, with a final zero.
        self.check(unsafe { name(text.as_mut_ptr(), text.len() as c_int - 1, device) })?;
        // SAFETY: as above.
        self.check(unsafe { memory(&mut memory_bytes, device) })?;
        // SAFETY: the last element of `text` is never written, so a zero ends the string within it.
        let name = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
        let architecture = format!("sm_{}{}", self.attribute(MAJOR, device)?, self.attribute(MINOR, device)?);
        Ok(CudaDevice { name, memory_bytes: memory_bytes as u64, architecture })
    }

    fn attribute(&self, attribute: c_int, device: c_int) -> Result<c_int, NoCuda> {
        let ask: Symbol<DeviceAttribute> = self.function("cuDeviceGetAttribute")?;
        let mut value = 0;
        // SAFETY: the signature is that of the driver's header; `value` outlives the call.
        self.check(unsafe { ask(&mut value, attribute, device) })?;
        Ok(value)
    }

    fn function<F>(&self, name: &str) -> Result<Symbol<F>, NoCuda> {
        // SAFETY: every `F` asked for in this file is the signature of that name in the driver's header.
        unsafe { self.0.get(name) }.map_err(|_| NoCuda::DriverRefused(format!("it has no function {name}")))
    }

    fn check(&self, code: c_int) -> Result<(), NoCuda> {
        match code {
            0 => return Ok(()),
            NO_DEVICE => return Err(NoCuda::NoDevice),
            _ => {}
        }
        let error_name: Symbol<ErrorName> = self.function("cuGetErrorName")?;
        let mut name = null();
        // SAFETY: the signature is that of the driver's header; on success `name` points to a constant of the driver.
        let known = unsafe { error_name(code, &mut name) } == 0 && !name.is_null();
        Err(NoCuda::DriverRefused(match known {
            // SAFETY: as above: a string that ends in zero and lives as long as the library.
            true => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
            false => format!("error {code}"),
        }))
    }
}

#[derive(Debug)]
enum OpenError {
    NotFound,
    Refused(String),
}

/// Opens a library by name: in the folders the program was linked with (see `build.rs`), then in the system's.
fn open(name: &str, flags: c_int) -> Result<Library, OpenError> {
    // SAFETY: opening runs the library's initializers. These are NVIDIA's and libtorch's own, made for this, and they
    // ask nothing of the caller; nothing here closes what was handed out.
    unsafe { Library::open(Some(name), flags) }.map_err(|problem| {
        // The linker's own sentence is the only place that tells an absent library from one that does not load.
        let reason = match problem {
            libloading::Error::DlOpen { source } => source.to_string(),
            other => other.to_string(),
        };
        match reason.starts_with(name) && reason.ends_with("No such file or directory") {
            true => OpenError::NotFound,
            false => OpenError::Refused(reason),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_library_is_not_found() {
        assert!(matches!(open("libkith-absent.so.1", RTLD_NOW), Err(OpenError::NotFound)));
        assert_eq!(Driver::open("libkith-absent.so.1").err(), Some(NoCuda::DriverMissing));
    }

    #[test]
    fn a_file_that_is_no_library_is_refused_with_the_reason() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let Err(OpenError::Refused(reason)) = open(manifest, RTLD_NOW) else { panic!("opened a text file") };
        assert!(reason.contains("invalid ELF header"), "{reason}");
    }

    #[test]
    fn a_driver_without_the_functions_is_refused() {
        let driver = Driver::open("libm.so.6").expect("every Linux has libm");
        assert_eq!(driver.devices(), Err(NoCuda::DriverRefused("it has no function cuInit".to_owned())));
    }
}
