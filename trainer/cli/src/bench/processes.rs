//! CPU time and memory of a process, from `/proc`.

use std::fs;

use serde::{Deserialize, Serialize};

/// Unit of CPU time in `/proc`: hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

/// Memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// Resident pages, including those of mapped files.
    pub(super) resident_bytes: u64,
    /// Private pages without a file: the memory that the process adds to the host.
    pub(super) private_bytes: u64,
    /// Peak of the resident memory.
    pub(super) peak_bytes: u64,
}

/// CPU seconds of a process so far, over all threads.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/stat");
    let text = read(&path)?;
    cpu_ticks(&text).map(|ticks| ticks as f64 / TICKS_PER_SECOND).ok_or_else(|| format!("{path}: is not as expected"))
}

/// Memory of a process.
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

/// Ticks in user and kernel mode: fields 14 and 15. The second field is an arbitrary name in parentheses.
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
        // The kernel updates resident counters only now and then.
        assert!(memory.peak_bytes >= memory.private_bytes / 2, "{memory:?}");
        assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
        assert!(super::memory(u32::MAX).unwrap_err().starts_with("/proc/4294967295/smaps_rollup: "));
    }
}
