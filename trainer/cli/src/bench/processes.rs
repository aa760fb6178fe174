//! What the system counts of a process.

use std::fs;

use serde::{Deserialize, Serialize};

/// The system counts CPU time in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

/// Memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// All pages that are there, those of mapped files included.
    pub(super) resident_bytes: u64,
    /// Pages that nobody else has and that are in no file: what the process adds to the host.
    pub(super) private_bytes: u64,
    /// The most that was resident.
    pub(super) peak_bytes: u64,
}

/// Seconds of CPU time that a process took so far, all its threads together.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/stat");
    let text = read(&path)?;
    cpu_ticks(&text).map(|ticks| ticks as f64 / TICKS_PER_SECOND).ok_or_else(|| format!("{path}: is not as expected"))
}

/// Memory that a process has.
pub(super) fn memory(pid: u32) -> Result<Memory, String> {
    let (rollup, status) = (format!("/proc/{pid}/smaps_rollup"), format!("/proc/{pid}/status"));
    let parts = read(&rollup)?;
    let of = |text: &str, path: &str, name: &str| kib(text, name).ok_or_else(|| format!("{path}: has no {name}"));
    Ok(Memory {
        resident_bytes: of(&parts, &rollup, "Rss:")? * 1024,
        private_bytes: of(&parts, &rollup, "Private_Dirty:")? * 1024,
        peak_bytes: of(&read(&status)?, &status, "VmHWM:")? * 1024,
    })
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

/// In user mode and in the kernel: fields 14 and 15. The second field is a name that can hold anything, in parentheses.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// `Rss:    1234 kB`
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_shift_fields() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 120 30 0 0 20 0 9 0 100";
        assert_eq!(cpu_ticks(stat), Some(150));
        assert_eq!((cpu_ticks("7 (a) S 1 2"), cpu_ticks("")), (None, None));
    }

    #[test]
    fn a_process_knows_itself() {
        let memory = memory(std::process::id()).unwrap();
        assert!(0 < memory.private_bytes && memory.private_bytes <= memory.resident_bytes, "{memory:?}");
        // The system adds up what is resident now and then.
        assert!(memory.peak_bytes >= memory.private_bytes / 2, "{memory:?}");
        assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
        assert!(super::memory(u32::MAX).unwrap_err().starts_with("/proc/4294967295/smaps_rollup: "));
    }
}
