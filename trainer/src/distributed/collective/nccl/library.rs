//! NCCL as it is found, its config, and the identities of GPUs. Contains `unsafe` code: the libraries are C.
#![allow(unsafe_code)]

use std::{ffi::c_int, mem::size_of, ptr::null};

use cudarc::{
    driver::sys as driver,
    nccl::{result, sys},
};

/// Values of an unset config in NCCL's header.
const MAGIC: u32 = 0xcafe_beef;
const UNSAID: c_int = c_int::MIN;
/// The version of the header that the config's layout is of.
const VERSION: u32 = 22_803;

/// The identity of a GPU, which no other GPU has; `None` where the driver does not tell.
pub(crate) fn gpu_identity(device: usize) -> Option<String> {
    // SAFETY: only asks whether the library can be opened; its initializers ask nothing of the caller.
    if !unsafe { driver::is_culib_present() } {
        return None;
    }
    cudarc::driver::result::init().ok()?;
    let found = cudarc::driver::result::device::get(device as c_int).ok()?;
    let uuid = cudarc::driver::result::device::get_uuid(found).ok()?;
    let hex: String = uuid.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
    Some(format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

/// The version of the NCCL that is found.
pub(crate) fn version() -> Result<String, String> {
    // SAFETY: only asks whether the library can be opened; its initializers ask nothing of the caller.
    if !unsafe { sys::is_culib_present() } {
        return Err("NCCL is not there: libnccl.so was not found; run `make` again on this machine".to_owned());
    }
    let version = result::get_nccl_version().map_err(|error| format!("NCCL refused: {:?}", error.0))?;
    Ok(format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100))
}

pub(super) fn config() -> sys::ncclConfig_t {
    sys::ncclConfig_t {
        size: size_of::<sys::ncclConfig_t>(),
        magic: MAGIC,
        version: VERSION,
        blocking: 0,
        cgaClusterSize: UNSAID,
        minCTAs: UNSAID,
        maxCTAs: UNSAID,
        netName: null(),
        splitShare: UNSAID,
        trafficClass: UNSAID,
        commName: null(),
        collnetEnable: UNSAID,
        CTAPolicy: UNSAID,
        shrinkShare: UNSAID,
        nvlsCTAs: UNSAID,
        nChannelsPerNetPeer: UNSAID,
        nvlinkCentricSched: UNSAID,
    }
}
