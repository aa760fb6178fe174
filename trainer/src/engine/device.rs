//! Compute resources of this machine: libtorch, the instruction set, threads, and CUDA devices found at run time.

use std::{sync::OnceLock, thread};

use kith_draw::arithmetic;
use serde::Serialize;
pub use tch::Device;

pub use crate::engine::cuda_library::{CudaDevice, NoCuda};
use crate::{
    distributed::collective::nccl_version,
    engine::cuda_library::{DriverReport, ask_driver, open_libtorch_cuda},
};

/// Everything a run's bits and speed depend on that the machine decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// Version of the libtorch this program was built with.
    pub libtorch: &'static str,
    /// The set of CPU instructions that kernels use, libtorch's and ours, and the vendor of a CPU that is not Intel's: equal
    /// names compute equal bits.
    pub instruction_set: &'static str,
    /// Threads this process may use.
    pub n_threads: usize,
    /// Threads libtorch uses within one operation; one, so that no sum is cut by thread.
    pub n_libtorch_threads: usize,
    /// CUDA devices, or why there are none.
    pub cuda: CudaReport,
    /// Libraries that GPUs need.
    pub libraries: CudaLibraries,
}

/// The libraries of CUDA, each opened where it is found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CudaLibraries {
    /// The driver: everything on a GPU needs it.
    pub driver: Library,
    /// The compiler: Kith's own kernels for GPUs need it.
    pub nvrtc: Library,
    /// Ranks on GPUs need it.
    pub nccl: Library,
    /// libtorch's CUDA part: models without kernels for GPUs need it.
    pub libtorch_cuda: Library,
}

/// A library, or the sentence that says why it is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Library {
    /// Its version.
    Version(String),
    /// It cannot be used.
    Missing(String),
}

impl Library {
    fn of(found: Result<String, impl ToString>) -> Library {
        found.map_or_else(|reason| Library::Missing(reason.to_string()), Library::Version)
    }
}

/// CUDA devices, or the sentence that says why there are none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CudaReport {
    /// At least one, in the order that everybody numbers them in.
    Devices(Vec<CudaDevice>),
    /// None can be used.
    Missing(String),
}

/// The device of this name: `cpu`, `cuda` (the first) or `cuda:1`.
pub fn find(name: &str) -> Result<tch::Device, String> {
    let Some(index) = check(name)? else { return Ok(tch::Device::Cpu) };
    match found_devices() {
        Err(reason) => Err(format!("device {name}: {reason}")),
        Ok(_) => Ok(tch::Device::Cuda(index)),
    }
}

/// The number in the name of a GPU that the driver shows; `None` for the CPU.
pub fn check(name: &str) -> Result<Option<usize>, String> {
    let Some(index) = number_of(name)? else { return Ok(None) };
    match driver() {
        Err(reason) => Err(format!("device {name}: {reason}")),
        Ok(driver) if index >= driver.devices.len() => {
            Err(format!("device {name}: this machine has {}, counted from 0", driver.devices.len()))
        }
        Ok(_) => Ok(Some(index)),
    }
}

/// The number in the name of a GPU, whether it is there or not; `None` for the CPU.
pub fn number_of(name: &str) -> Result<Option<usize>, String> {
    match name {
        "cpu" => Ok(None),
        "cuda" => Ok(Some(0)),
        _ => match name.strip_prefix("cuda:").and_then(|number| number.parse().ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("device {name:?}: expected cpu, cuda or cuda:N")),
        },
    }
}

/// The number of the CUDA device of this name, if the driver shows it.
pub fn cuda_index(name: &str) -> Option<usize> {
    check(name).ok().flatten()
}

/// Makes libtorch ready: one thread within an operation, and CUDA where there is any. Call it before anything else of
/// libtorch, which decides once and for all, at the first question, whether there is CUDA; a second call does nothing.
pub fn start() {
    found_devices();
}

/// Compute resources of this machine; starts libtorch if that was not done yet.
pub fn devices() -> DeviceReport {
    let libtorch_cuda = found_devices().as_ref().map(|_| env!("KITH_LIBTORCH_VERSION").to_owned());
    let cuda = match driver() {
        Ok(driver) => CudaReport::Devices(driver.devices.clone()),
        Err(reason) => CudaReport::Missing(reason.to_string()),
    };
    DeviceReport {
        libtorch: env!("KITH_LIBTORCH_VERSION"),
        instruction_set: arithmetic(),
        n_threads: thread::available_parallelism().map_or(1, usize::from),
        n_libtorch_threads: usize::try_from(tch::get_num_threads()).unwrap_or(1),
        cuda,
        libraries: CudaLibraries {
            driver: Library::of(driver().as_ref().map(|driver| driver.version.clone())),
            nvrtc: Library::of(kith_kernels::cuda::compiler_version()),
            nccl: Library::of(nccl_version()),
            libtorch_cuda: Library::of(libtorch_cuda),
        },
    }
}

fn driver() -> &'static Result<DriverReport, NoCuda> {
    static FOUND: OnceLock<Result<DriverReport, NoCuda>> = OnceLock::new();
    FOUND.get_or_init(ask_driver)
}

/// The devices that libtorch computes on.
fn found_devices() -> &'static Result<Vec<CudaDevice>, NoCuda> {
    static FOUND: OnceLock<Result<Vec<CudaDevice>, NoCuda>> = OnceLock::new();
    FOUND.get_or_init(|| {
        tch::set_num_threads(1);
        kith_kernels::prepare();
        let devices = driver().clone()?.devices;
        open_libtorch_cuda()?;
        match tch::Cuda::device_count() {
            n_libtorch if usize::try_from(n_libtorch) == Ok(devices.len()) => Ok(devices),
            n_libtorch => Err(NoCuda::NotSeen { n_driver: devices.len(), n_libtorch }),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtorch_uses_one_thread_on_every_thread() {
        start();
        start();
        assert_eq!(tch::get_num_threads(), 1);
        let elsewhere = thread::spawn(tch::get_num_threads).join().expect("a thread that only asks");
        assert_eq!(elsewhere, 1);
    }

    #[test]
    fn the_report_agrees_with_libtorch() {
        let report = devices();
        assert_eq!(report.libtorch, "2.11.0");
        assert_eq!(report.n_libtorch_threads, 1);
        assert!(report.n_threads >= 1);
        match (report.cuda, report.libraries.libtorch_cuda) {
            (CudaReport::Devices(devices), Library::Version(_)) => {
                assert_eq!(tch::Cuda::device_count(), devices.len() as i64);
            }
            (_, missing) => assert!(!tch::Cuda::is_available(), "{missing:?}"),
        }
    }

    #[test]
    fn products_come_out_right_on_every_device_found() {
        let report = devices();
        let mut places = vec![tch::Device::Cpu];
        if let CudaReport::Devices(devices) = &report.cuda {
            places.extend((0..devices.len()).map(tch::Device::Cuda));
        }
        for place in places {
            let x = tch::Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0]).view([2, 2]).to(place);
            let product = Vec::<f32>::try_from(x.matmul(&x).view(-1)).expect("four floats");
            assert_eq!(product, [7.0, 10.0, 15.0, 22.0], "{place:?}");
        }
    }

    #[test]
    fn every_reason_says_what_is_wrong() {
        assert_eq!(
            NoCuda::DriverMissing.to_string(),
            "libcuda.so.1 not found: install the NVIDIA driver, or use --device cpu"
        );
        let unlike = NoCuda::NotSeen { n_driver: 2, n_libtorch: 0 };
        assert_eq!(unlike.to_string(), "expected 2 CUDA devices, libtorch sees 0: check the driver with `nvidia-smi`");
    }
}
