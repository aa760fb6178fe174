//! `--memory`: memory left for data after the program's own.

use anyhow::bail;
use kith_partition::csr::MIN_MEMORY_BYTES;

use crate::progress::bytes;

/// Memory left of a limit for data. libtorch alone takes tens of MiB from the start of the program.
pub(crate) fn for_data(limit_bytes: u64) -> anyhow::Result<u64> {
    let own_bytes = private_bytes().unwrap_or(0);
    match limit_bytes.checked_sub(own_bytes) {
        Some(left) if left >= MIN_MEMORY_BYTES => Ok(left),
        _ => bail!(
            "--memory {}: expected at least {}, {} of it for the program itself",
            bytes(limit_bytes),
            bytes(own_bytes + MIN_MEMORY_BYTES),
            bytes(own_bytes)
        ),
    }
}

/// Private writable memory of this process; `None` if the system does not report it.
fn private_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
