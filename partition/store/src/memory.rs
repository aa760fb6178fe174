//! Memory of this machine, and private and peak memory of this process.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Memory that a process can still take: what the system calls available, or the least that its control groups leave it.
pub fn available_bytes() -> Option<u64> {
    let own = field("/proc/meminfo", "MemAvailable:")?;
    Some(own_groups().iter().filter_map(Group::free_bytes).fold(own, u64::min))
}

/// Memory of this machine, or the least limit of this process's control groups.
pub fn total_bytes() -> Option<u64> {
    let own = field("/proc/meminfo", "MemTotal:")?;
    Some(own_groups().iter().filter_map(Group::limit).fold(own, u64::min))
}

/// A control group that counts memory.
#[derive(Debug)]
struct Group {
    dir: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug)]
enum Version {
    One,
    Two,
}

impl Group {
    /// Memory that its processes may take; `None` without a limit.
    fn limit(&self) -> Option<u64> {
        let file = match self.version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        number(self.dir.join(file))
    }

    /// The part of its limit that is not taken. Cached files count as taken, and go when memory is needed.
    fn free_bytes(&self) -> Option<u64> {
        let (used, cached) = match self.version {
            Version::One => ("memory.usage_in_bytes", "total_inactive_file"),
            Version::Two => ("memory.current", "inactive_file"),
        };
        let used = number(self.dir.join(used))?;
        let cached = field_in_bytes(&self.dir.join("memory.stat"), cached).unwrap_or(0);
        Some(self.limit()?.saturating_sub(used.saturating_sub(cached)))
    }
}

fn own_groups() -> Vec<Group> {
    groups(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
}

/// Control groups of a process and those they are in, of both versions: `/proc/self/cgroup` names the groups of a process. In a
/// container, the group of the process may be the root of what is mounted.
fn groups(mount: &Path, names: &str) -> Vec<Group> {
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next().unwrap_or(""), parts.next().unwrap_or("/").trim_start_matches('/'));
        let (root, version) = match controllers {
            "" => (mount.to_owned(), Version::Two),
            controllers if controllers.split(',').any(|name| name == "memory") => (mount.join("memory"), Version::One),
            _ => return Vec::new(),
        };
        Path::new(group).ancestors().map(|group| Group { dir: root.join(group), version }).collect()
    };
    names.lines().flat_map(of_line).collect()
}

/// The most memory this process ever held, mapped files included.
pub fn peak_bytes() -> Option<u64> {
    field("/proc/self/status", "VmHWM:")
}

/// Private memory of this process: resident pages that belong to no file and are not shared.
pub fn private_bytes() -> Option<u64> {
    field("/proc/self/status", "RssAnon:")
}

/// A line `NAME  123 kB`.
fn field(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A line `NAME 123`.
fn field_in_bytes(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// A file that holds one number; `max` is none.
fn number(path: impl AsRef<Path>) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let least = |names| groups(root.path(), names).iter().filter_map(Group::limit).min();
        assert_eq!(least("0::/job/step"), None);
        write("job/memory.max", "16000\n");
        write("job/step/memory.max", "max\n");
        write("memory/process/memory.limit_in_bytes", "9000\n");
        assert_eq!(least("0::/job/step"), Some(16_000));
        assert_eq!(least("4:cpu,memory:/process\n0::/job"), Some(9000));
        assert_eq!(least("4:cpu:/process\n"), None);
        write("memory.max", "5000");
        assert_eq!(least("0::/"), Some(5000), "a container sees its own group as the root");
        // Without cached files, that is what a group has taken.
        let free = |names| groups(root.path(), names).iter().filter_map(Group::free_bytes).min();
        write("job/memory.current", "15000\n");
        assert_eq!(free("0::/job/step"), Some(1000));
        write("job/memory.stat", "anon 9000\ninactive_file 4000\nfile 5000\n");
        assert_eq!(free("0::/job/step"), Some(5000));
        write("memory/process/memory.usage_in_bytes", "8000\n");
        write("memory/process/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n");
        assert_eq!(free("0::/job/step\n4:memory:/process"), Some(1500));
    }

    #[test]
    fn the_system_tells() {
        let available = available_bytes().expect("this system has /proc");
        assert!(available > 1 << 20, "{available}");
        let total = total_bytes().expect("this system has /proc");
        assert!(total >= available, "{total} of which {available} are available");
        let peak = peak_bytes().expect("this system has /proc");
        assert!((1 << 20..1 << 40).contains(&peak), "{peak}");
        let before = private_bytes().expect("this system has /proc");
        let taken = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = private_bytes().expect("this system has /proc");
        assert!(after > before + (60 << 20), "{before} and {} more: {after}", taken.len());
    }
}
