//! NVRTC, CUDA's runtime compiler, and the cache of compiled kernels. Contains `unsafe` code.
#![allow(unsafe_code)]

use std::{
    ffi::CString,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use cudarc::nvrtc;
use sha2::{Digest, Sha256};

use super::{compile::Constants, error::GpuError};

/// The version of CUDA's compiler, or why there is none.
pub fn compiler_version() -> Result<String, GpuError> {
    compiler().map(|(major, minor)| format!("{major}.{minor}"))
}

/// The same in numbers.
pub(super) fn compiler() -> Result<(i32, i32), GpuError> {
    // SAFETY: looks for a library by name, and opens it: NVIDIA's own, made for this.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err(GpuError::Missing(
            "CUDA's compiler, libnvrtc.so, was not found: install the Python package nvidia-cuda-nvrtc, and name its lib folder in \
             LD_LIBRARY_PATH".to_owned(),
        ));
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both places outlive the call.
    let asked = unsafe { nvrtc::sys::nvrtcVersion(&mut major, &mut minor) };
    match asked.result() {
        Ok(()) => Ok((major, minor)),
        Err(error) => Err(GpuError::Compile(format!("libnvrtc.so does not tell its version: {:?}", error.0))),
    }
}

/// The reason why a driver cannot run what a compiler makes.
pub(super) fn too_old(driver: (i32, i32), compiler: (i32, i32)) -> String {
    format!(
        "the NVIDIA driver is too old: it runs CUDA {}.{}, and the compiler that was found is of CUDA {}.{}; update the driver, or \
         install the Python package nvidia-cuda-nvrtc-cu{}",
        driver.0, driver.1, compiler.0, compiler.1, driver.0
    )
}

/// The kernels of a source for an architecture: from the cache, or compiled and put there.
pub(super) fn compiled(architecture: &str, constants: &Constants, source: &str) -> Result<Vec<u8>, GpuError> {
    let version = compiler_version()?;
    let mut options = constants.options();
    options.push(format!("--gpu-architecture={architecture}"));
    options.push("--std=c++17".to_owned());
    let path = cache_folder().map(|folder| {
        let mut digest = Sha256::new();
        for part in options.iter().map(String::as_str).chain([source, &version]) {
            digest.update(part.as_bytes());
            digest.update([0]);
        }
        let name: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        folder.join(format!("{name}.cubin"))
    });
    if let Some(image) = path.as_ref().and_then(|path| fs::read(path).ok()).filter(|image| !image.is_empty()) {
        return Ok(image);
    }
    let image = compile(source, &options)?;
    if let Some(path) = path {
        // Without a cache, the next process compiles again.
        let _ = keep(&path, &image);
    }
    Ok(image)
}

/// Folder of the kernel cache, within the user's cache folder.
fn cache_folder() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let folder = folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    Some(folder.join("kith").join("kernels"))
}

/// Written beside and renamed: another process or thread sees all of it or nothing.
fn keep(path: &Path, image: &[u8]) -> std::io::Result<()> {
    static N_KEPT: AtomicU64 = AtomicU64::new(0);
    let folder = path.parent().expect("a file in a folder");
    fs::create_dir_all(folder)?;
    let beside = folder.join(format!(".{}-{}.part", std::process::id(), N_KEPT.fetch_add(1, Ordering::Relaxed)));
    fs::write(&beside, image)?;
    fs::rename(&beside, path)
}

fn compile(source: &str, options: &[String]) -> Result<Vec<u8>, GpuError> {
    let source = CString::new(source).expect("sources have no zero");
    let failed = |error: nvrtc::result::NvrtcError| GpuError::Compile(format!("{:?}", error.0));
    let program = nvrtc::result::create_program(&source, Some(c"kith.cu")).map_err(failed)?;
    // SAFETY: the program was just made, and is destroyed once, after its last use.
    unsafe {
        let outcome = nvrtc::result::compile_program(program, options).map_err(|error| {
            let log = nvrtc::result::get_program_log(program).unwrap_or_default();
            let log: Vec<u8> = log.into_iter().map(|byte| byte as u8).collect();
            GpuError::Compile(format!("{:?}\n{}", error.0, String::from_utf8_lossy(&log).trim_end_matches('\0')))
        });
        let image = outcome.and_then(|()| {
            let mut size = 0;
            nvrtc::sys::nvrtcGetCUBINSize(program, &mut size).result().map_err(failed)?;
            let mut image = vec![0u8; size];
            nvrtc::sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()).result().map_err(failed)?;
            Ok(image)
        });
        let _ = nvrtc::result::destroy_program(program);
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_keep_at_once_keep_their_own() {
        let folder = std::env::temp_dir().join(format!("kith-kept-{}", std::process::id()));
        let path = |k: u8| folder.join(format!("{k}.cubin"));
        std::thread::scope(|scope| {
            for k in 0..8 {
                let path = path(k);
                scope.spawn(move || keep(&path, &vec![k; 1 << 20]).unwrap());
            }
        });
        for k in 0..8 {
            assert!(fs::read(path(k)).unwrap() == vec![k; 1 << 20], "image {k}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_driver_that_is_too_old_is_told_from_the_compiler() {
        let sentence = too_old((12, 4), (13, 0));
        assert!(sentence.contains("it runs CUDA 12.4, and the compiler that was found is of CUDA 13.0"), "{sentence}");
        assert!(sentence.ends_with("nvidia-cuda-nvrtc-cu12"), "{sentence}");
    }
}
