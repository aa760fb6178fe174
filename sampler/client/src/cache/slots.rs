//! Byte rows in shared memory that are written once, each by the first process that has it, and read by all.
#![allow(unsafe_code)]

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicU8, Ordering},
};

use memmap2::MmapRaw;

/// States of a slot, one byte each. Memory begins as zeros. A slot whose writer was killed stays `CLAIMED`: nobody reads it.
const EMPTY: u8 = 0;
const CLAIMED: u8 = 1;
const FILLED: u8 = 2;

/// Rows begin at a multiple of this.
const ALIGNMENT: usize = 64;

/// Slots of equal length: a state for each, then the rows.
#[derive(Debug)]
pub(super) struct Slots {
    memory: MmapRaw,
    /// The mapped file: rows are written to it, so that an error of the system is no signal.
    file: File,
    n_slots: usize,
    row_bytes: usize,
}

impl Slots {
    /// Bytes of a file with these slots.
    pub(super) fn file_bytes(n_slots: usize, row_bytes: usize) -> Option<u64> {
        let n_bytes = row_bytes.checked_mul(n_slots)?.checked_add(n_slots.next_multiple_of(ALIGNMENT))?;
        u64::try_from(n_bytes).ok()
    }

    /// Maps a file of exactly the right length that nobody can shorten. It holds what other processes that mapped it wrote.
    pub(super) fn map(file: File, n_slots: usize, row_bytes: usize) -> io::Result<Slots> {
        let memory = MmapRaw::map_raw(&file)?;
        if Slots::file_bytes(n_slots, row_bytes) != Some(memory.len() as u64) {
            return Err(io::Error::other("shared memory of features has another length"));
        }
        // States are read and written through the map: their memory must be there.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, n_slots.max(1) as u64)?;
        Ok(Slots { memory, file, n_slots, row_bytes })
    }

    fn state(&self, slot: usize) -> &AtomicU8 {
        assert!(slot < self.n_slots);
        // SAFETY: the byte is in the map, which lives as long as `self`, is never shortened, and has memory for all states. All
        // processes access states as atomics only.
        unsafe { AtomicU8::from_ptr(self.memory.as_mut_ptr().add(slot)) }
    }

    /// Position of a row in the file.
    fn place(&self, slot: usize) -> usize {
        self.n_slots.next_multiple_of(ALIGNMENT) + slot * self.row_bytes
    }

    /// The row of a slot, if it is filled.
    pub(super) fn get(&self, slot: usize) -> Option<&[u8]> {
        if self.state(slot).load(Ordering::Acquire) != FILLED {
            return None;
        }
        // SAFETY: `state` has checked the slot, so the row is in the map. Nobody writes to a filled slot, and what its writer wrote
        // happened before it was marked as filled.
        Some(unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(self.place(slot)), self.row_bytes) })
    }

    /// Fills a slot, unless another thread or process has begun to. Without memory for its row, a slot stays empty for good.
    pub(super) fn fill(&self, slot: usize, row: &[u8]) {
        assert_eq!(row.len(), self.row_bytes);
        let state = self.state(slot);
        if state.compare_exchange(EMPTY, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            && self.file.write_all_at(row, self.place(slot) as u64).is_ok()
        {
            state.store(FILLED, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(n_slots: usize, row_bytes: usize) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(Slots::file_bytes(n_slots, row_bytes).unwrap()).unwrap();
        file
    }

    #[test]
    fn a_slot_is_written_once_and_read_through_every_map() {
        let file = file(3, 5);
        let [one, other] = [(); 2].map(|()| Slots::map(file.try_clone().unwrap(), 3, 5).unwrap());
        assert!((0..3).all(|slot| one.get(slot).is_none()));
        one.fill(1, b"first");
        other.fill(1, b"later");
        other.fill(2, b"third");
        for slots in [&one, &other] {
            assert_eq!([0, 1, 2].map(|slot| slots.get(slot)), [None, Some(&b"first"[..]), Some(b"third")]);
        }
    }

    #[test]
    fn a_slot_whose_writer_was_killed_is_left_alone() {
        let slots = Slots::map(file(2, 4), 2, 4).unwrap();
        slots.state(0).store(CLAIMED, Ordering::Relaxed);
        slots.fill(0, b"here");
        assert_eq!(slots.get(0), None);
    }

    #[test]
    fn memory_of_another_length_is_refused() {
        assert!(Slots::map(file(2, 4), 3, 4).is_err());
        assert_eq!(Slots::file_bytes(usize::MAX, 4), None);
    }

    #[test]
    fn many_threads_fill_and_read_the_same_slots() {
        let (n_slots, row_bytes) = (500, 24);
        let slots = Slots::map(file(n_slots, row_bytes), n_slots, row_bytes).unwrap();
        let row = |slot: usize| vec![slot as u8 | 1; row_bytes];
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let slots = &slots;
                scope.spawn(move || {
                    for turn in 0..n_slots * 4 {
                        let slot = (turn * 7 + thread * 13) % n_slots;
                        match slots.get(slot) {
                            Some(found) => assert_eq!(found, row(slot)),
                            None => slots.fill(slot, &row(slot)),
                        }
                    }
                });
            }
        });
        assert!((0..n_slots).all(|slot| slots.get(slot) == Some(&row(slot)[..])));
    }
}
