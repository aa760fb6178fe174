//! One rank per GPU of this host.

use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::programs;

/// Number of ranks without `--ranks`: one per CUDA device with `--device cuda`, otherwise 1. `count` as in [`check`].
pub(super) fn n_ranks(device: &str, count: impl FnOnce() -> anyhow::Result<Option<usize>>) -> anyhow::Result<usize> {
    match device {
        "cuda" => Ok(count()?.unwrap_or(1).max(1)),
        _ => Ok(1),
    }
}

/// Refuses ranks that would share a CUDA device. `count` returns the number of devices, and is called only if needed;
/// with `None` (unknown), ranks check for themselves.
pub(super) fn check(
    n_ranks: usize,
    device: &str,
    count: impl FnOnce() -> anyhow::Result<Option<usize>>,
) -> anyhow::Result<()> {
    if n_ranks < 2 || !device.starts_with("cuda") {
        return Ok(());
    }
    if device != "cuda" {
        bail!("{n_ranks} ranks would share the device {device}: use --device cuda, which gives each rank its own");
    }
    match count()? {
        Some(n_devices) if n_devices < n_ranks => {
            bail!("{n_ranks} ranks need {n_ranks} CUDA devices, this host has {n_devices}: ask for fewer with --ranks")
        }
        _ => Ok(()),
    }
}

/// Number of CUDA devices, from `kith devices`: this program does not link libtorch.
pub(super) fn count() -> anyhow::Result<Option<usize>> {
    let asked = Command::new(programs::kith()?).args(["devices", "--json"]).output();
    let answer = asked.context("kith devices cannot be started")?;
    let devices: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
    Ok(devices["cuda"]["devices"].as_array().map(Vec::len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(n_ranks: usize, device: &str, n_devices: Option<usize>) -> Option<String> {
        check(n_ranks, device, || Ok(n_devices)).err().map(|error| error.to_string())
    }

    #[test]
    fn every_rank_has_a_device_of_its_own() {
        let expected = "4 ranks need 4 CUDA devices, this host has 2: ask for fewer with --ranks";
        assert_eq!(sentence(4, "cuda", Some(2)).as_deref(), Some(expected));
        assert!(sentence(2, "cuda:0", Some(8)).unwrap().contains("would share the device cuda:0"));
        for (n_ranks, device, n_devices) in
            [(2, "cuda", Some(2)), (1, "cuda", Some(1)), (1, "cuda:1", Some(2)), (4, "cpu", Some(0)), (4, "cuda", None)]
        {
            assert_eq!(sentence(n_ranks, device, n_devices), None, "{n_ranks} {device} {n_devices:?}");
        }
        assert!(check(4, "cpu", || unreachable!("nobody asks for devices")).is_ok());
    }

    #[test]
    fn every_gpu_has_a_rank_by_default() {
        let found = |device, n_devices| n_ranks(device, || Ok(n_devices)).unwrap();
        assert_eq!([found("cuda", Some(4)), found("cuda", Some(1)), found("cuda", None)], [4, 1, 1]);
        assert_eq!([found("cuda:2", Some(4)), found("cpu", Some(4))], [1, 1]);
    }
}
