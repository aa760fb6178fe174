//! Cores of this process, which shares its host with other ranks.

use std::{fs, num::NonZeroUsize, thread};

/// Cores for one of the `n_on_host` ranks of this host: `RAYON_NUM_THREADS` if it is set, otherwise an even share of all cores,
/// but no more than this process may use. Launchers that bind ranks to cores have divided them already.
pub fn n_cores(n_on_host: usize) -> usize {
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok()).filter(|n| *n > 0);
    asked.unwrap_or_else(|| {
        let n_usable = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        share(n_usable, n_online().unwrap_or(n_usable), n_on_host)
    })
}

fn share(n_usable: usize, n_online: usize, n_on_host: usize) -> usize {
    n_usable.min(n_online / n_on_host.max(1)).max(1)
}

/// Cores of the machine, including those that this process may not use.
fn n_online() -> Option<usize> {
    n_in_list(fs::read_to_string("/sys/devices/system/cpu/online").ok()?.trim())
}

/// Length of a list of numbers as Linux writes it, such as `0-3,8`.
fn n_in_list(list: &str) -> Option<usize> {
    let parts = list.split(',').map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.checked_sub(first)? + 1)
    });
    parts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_host_share_its_cores() {
        assert_eq!([share(64, 64, 1), share(64, 64, 4), share(64, 64, 5), share(2, 2, 8)], [64, 16, 12, 1]);
        // Bound to 16 of 64 cores, or limited to them by a container.
        assert_eq!([share(16, 64, 4), share(16, 64, 1), share(16, 64, 8)], [16, 16, 8]);
    }

    #[test]
    fn lists_of_cores_are_counted() {
        assert_eq!([n_in_list("0"), n_in_list("0-63"), n_in_list("0-3,8,10-11")], [Some(1), Some(64), Some(7)]);
        assert_eq!([n_in_list(""), n_in_list("3-1"), n_in_list("a-b")], [None; 3]);
        assert!(n_online().is_none_or(|n| n >= thread::available_parallelism().map_or(1, NonZeroUsize::get)));
    }
}
