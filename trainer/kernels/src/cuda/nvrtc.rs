//! NVRTC, CUDA's runtime compiler. Contains `unsafe` code.
#![allow(unsafe_code)]

use std::ffi::CString;

use cudarc::nvrtc;

use super::error::GpuError;

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

/// Refuses an architecture that the compiler does not know; [`compiler`] must have found it.
pub(super) fn check_architecture(architecture: &str) -> Result<(), GpuError> {
    let failed = |error: nvrtc::result::NvrtcError| GpuError::Compile(format!("{:?}", error.0));
    let mut n_known = 0;
    // SAFETY: the place outlives the call.
    unsafe { nvrtc::sys::nvrtcGetNumSupportedArchs(&mut n_known) }.result().map_err(failed)?;
    let mut known = vec![0; usize::try_from(n_known).unwrap_or(0)];
    // SAFETY: the compiler writes as many numbers as it has just told.
    unsafe { nvrtc::sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) }.result().map_err(failed)?;
    let names: Vec<String> = known.iter().map(|number| format!("sm_{number}")).collect();
    match names.iter().any(|name| name == architecture) {
        true => Ok(()),
        false => Err(GpuError::Refused(format!(
            "CUDA's compiler, libnvrtc.so, does not know {architecture}: choose among {}",
            names.join(", ")
        ))),
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

/// Compiles a source; gives its image.
pub(super) fn compile(source: &str, options: &[String]) -> Result<Vec<u8>, GpuError> {
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
    fn a_driver_that_is_too_old_is_told_from_the_compiler() {
        let sentence = too_old((12, 4), (13, 0));
        assert!(sentence.contains("it runs CUDA 12.4, and the compiler that was found is of CUDA 13.0"), "{sentence}");
        assert!(sentence.ends_with("nvidia-cuda-nvrtc-cu12"), "{sentence}");
    }
}
