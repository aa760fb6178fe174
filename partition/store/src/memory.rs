//! Available memory of this machine, and peak memory of this process.

use std::fs;

/// Memory that a process can still take: what the system calls available, or what its control group leaves it.
pub fn available_bytes() -> Option<u64> {
    let own = field("/proc/meminfo", "MemAvailable:")?;
    let group = (|| {
        let limit = number("/sys/fs/cgroup/memory.max")?;
        let used = number("/sys/fs/cgroup/memory.current")?;
        // Cached files count as used, and go when memory is needed.
        let cached = field_in_bytes("/sys/fs/cgroup/memory.stat", "inactive_file").unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    })();
    Some(group.map_or(own, |group| group.min(own)))
}

/// The most memory this process ever held, mapped files included.
pub fn peak_bytes() -> Option<u64> {
    field("/proc/self/status", "VmHWM:")
}

/// A line `NAME  123 kB`.
fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A line `NAME 123`.
fn field_in_bytes(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// A file that holds one number; `max` is none.
fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells() {
        let available = available_bytes().expect("this system has /proc");
        assert!(available > 1 << 20, "{available}");
        let peak = peak_bytes().expect("this system has /proc");
        assert!((1 << 20..1 << 40).contains(&peak), "{peak}");
    }
}
