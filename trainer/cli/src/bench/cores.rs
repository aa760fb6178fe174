//! Cores for processes that are pinned: those of different physical cores first.

use std::{fs, process::Command};

use anyhow::bail;

/// Cores that this process may use, in the order in which processes get them.
pub(super) fn cores() -> anyhow::Result<Vec<usize>> {
    if Command::new("taskset").arg("--version").output().is_err() {
        bail!("`taskset` not found, which gives each process a core: install util-linux");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
    let siblings = |core: usize| {
        let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
        fs::read_to_string(path).map(|text| numbers(&text)).unwrap_or_default()
    };
    Ok(ordered(&numbers(allowed), siblings))
}

/// First siblings of all cores, then the second ones.
fn ordered(allowed: &[usize], siblings: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let mut ordered: Vec<(usize, usize)> = allowed
        .iter()
        .map(|core| (siblings(*core).iter().filter(|other| **other < *core && allowed.contains(other)).count(), *core))
        .collect();
    ordered.sort_unstable();
    ordered.into_iter().map(|(_, core)| core).collect()
}

/// Numbers of a list as Linux writes it, such as `0-3,8`.
fn numbers(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_cores_come_first() {
        assert_eq!(numbers(" 0-3,8\n"), [0, 1, 2, 3, 8]);
        let pairs = |core: usize| vec![core / 2 * 2, core / 2 * 2 + 1];
        assert_eq!(ordered(&[0, 1, 2, 3], pairs), [0, 2, 1, 3]);
        assert_eq!(ordered(&[1, 2, 3], pairs), [1, 2, 3], "core 0 may not be used");
        assert_eq!(ordered(&[0, 1], |_| Vec::new()), [0, 1]);
        assert!(!cores().unwrap().is_empty());
    }
}
