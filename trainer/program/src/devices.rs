//! `kith devices`: libtorch, threads, GPUs and CUDA libraries of this machine.

mod warm;

use kith_cli::{
    answer::{print, print_json},
    devices::Args,
};
use kith_trainer::engine::device::{CudaLibraries, CudaReport, DeviceReport, Library, devices};

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    if !args.warm.is_empty() {
        return warm::run(&args);
    }
    let report = devices();
    if args.json { print_json(&report) } else { print(&readable(&report)) }
}

fn readable(report: &DeviceReport) -> String {
    let mut text = format!(
        "libtorch         {}\ninstruction set  {}\nthreads          {} ({} within a libtorch op)\n",
        report.libtorch, report.instruction_set, report.n_threads, report.n_libtorch_threads,
    );
    match &report.cuda {
        CudaReport::Missing(reason) => text += &format!("CUDA             none: {reason}\n"),
        CudaReport::Devices(devices) => {
            for (index, device) in devices.iter().enumerate() {
                let gib = device.memory_bytes as f64 / (1u64 << 30) as f64;
                text += &format!("CUDA device {index:<4} {}, {gib:.1} GiB, {}\n", device.name, device.architecture);
            }
            // Without a device nobody needs the others.
            let CudaLibraries { driver, nvrtc, nccl, libtorch_cuda } = &report.libraries;
            for (name, library, why) in [
                ("driver", driver, ""),
                ("NVRTC", nvrtc, "; kernels for GPUs need it"),
                ("NCCL", nccl, "; ranks on GPUs need it"),
                ("libtorch_cuda", libtorch_cuda, "; cgat and --kernels reference on GPUs need it"),
            ] {
                text += &match library {
                    Library::Version(version) => format!("{name:<16} {version}\n"),
                    Library::Missing(reason) => format!("{name:<16} none: {reason}{why}\n"),
                };
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use kith_trainer::engine::device::CudaDevice;

    use super::*;

    fn report(cuda: CudaReport) -> DeviceReport {
        let instruction_set = "avx2";
        let found = |version: &str| Library::Version(version.to_owned());
        let libraries = CudaLibraries {
            driver: found("13.0"),
            nvrtc: found("13.0"),
            nccl: Library::Missing("libnccl.so was not found".to_owned()),
            libtorch_cuda: found("2.11.0"),
        };
        DeviceReport { libtorch: "2.11.0", instruction_set, n_threads: 8, n_libtorch_threads: 1, cuda, libraries }
    }

    #[test]
    fn a_machine_without_a_driver_reads_well() {
        let text = readable(&report(CudaReport::Missing(
            "libcuda.so.1 not found: install the NVIDIA driver, or use --device cpu".to_owned(),
        )));
        let expected = "\
libtorch         2.11.0
instruction set  avx2
threads          8 (1 within a libtorch op)
CUDA             none: libcuda.so.1 not found: install the NVIDIA driver, or use --device cpu
";
        assert_eq!(text, expected);
    }

    #[test]
    fn every_device_and_every_library_has_a_line() {
        let (name, architecture) = ("NVIDIA H200".to_owned(), "sm_90".to_owned());
        let device = CudaDevice { name, memory_bytes: 150_323_855_360, architecture };
        let text = readable(&report(CudaReport::Devices(vec![device.clone(), device])));
        let expected = "\
CUDA device 0    NVIDIA H200, 140.0 GiB, sm_90
CUDA device 1    NVIDIA H200, 140.0 GiB, sm_90
driver           13.0
NVRTC            13.0
NCCL             none: libnccl.so was not found; ranks on GPUs need it
libtorch_cuda    2.11.0
";
        assert!(text.ends_with(expected), "{text}");
    }
}
