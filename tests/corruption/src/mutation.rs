//! Drawn mutations of bytes. Equal draws give equal bytes.

use kith_draw::{Draws, Name, Purpose};

/// Bytes with a meaning in texts, and the ends of the range of a byte.
const TELLING: &[u8] = b"0123456789-+,.:\n\r\"[]{}eNtf \xff\x00\x7f\x80";

/// The largest part that is removed or doubled at once.
const MAX_PART: usize = 12;

/// Calls `check` with `n` damaged copies of `bytes`: bytes changed, removed, doubled or cut off.
pub fn each_mutation(bytes: &[u8], n: u64, mut check: impl FnMut(&[u8])) {
    let stream = Name { run_key: 7, purpose: Purpose::Fault, step: 0, layer: 0 }.stream();
    for case in 0..n {
        let mut draws = stream.draws(case, 0, 0);
        let mut damaged = bytes.to_vec();
        for _ in 0..=draws.below(3) {
            mutate(&mut damaged, &mut draws);
        }
        check(&damaged);
    }
}

/// Changes, inserts, removes or doubles some bytes, or cuts off the rest.
pub fn mutate(bytes: &mut Vec<u8>, draws: &mut Draws) {
    let place = |draws: &mut Draws, n: usize| draws.below(n as u64) as usize;
    if bytes.is_empty() {
        return;
    }
    let at = place(draws, bytes.len());
    let end = (at + 1 + place(draws, MAX_PART)).min(bytes.len());
    match draws.below(6) {
        0 => bytes[at] = TELLING[place(draws, TELLING.len())],
        1 => bytes[at] ^= 1 << draws.below(8),
        2 => bytes.insert(at, TELLING[place(draws, TELLING.len())]),
        3 => drop(bytes.drain(at..end)),
        4 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
        _ => bytes.truncate(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_are_drawn_by_name() {
        let all = |bytes: &[u8]| {
            let mut all = Vec::new();
            each_mutation(bytes, 200, |damaged| all.push(damaged.to_vec()));
            all
        };
        let first = all(b"id,target\n0,17\n");
        assert_eq!(first, all(b"id,target\n0,17\n"));
        assert!(first.iter().filter(|damaged| damaged.as_slice() != b"id,target\n0,17\n").count() > 190);
        assert!(all(b"").iter().all(Vec::is_empty));
    }
}
