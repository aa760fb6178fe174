//! Large arrays that are reused. A step needs the same arrays as the step before; allocating fresh memory every time
//! would cost a page fault for each 4 KiB of them.

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, PoisonError},
};

use memmap2::MmapMut;

use crate::simd::{Lanes, N_LANES};

/// Arrays that are kept for later at most.
const MAX_KEPT: usize = 64;
/// Smaller ones come from the allocator's own stock.
const MIN_LANES: usize = 1024;
/// From here on arrays are mapped, in pages as large as the machine has.
const MIN_MAPPED: usize = 4 * HUGE_PAGE;
const HUGE_PAGE: usize = 2 << 20;

static KEPT: Mutex<Vec<Memory>> = Mutex::new(Vec::new());

/// Lanes that go back to the stock when dropped.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    memory: Memory,
    len: usize,
}

/// Memory of a buffer.
#[derive(Debug)]
enum Memory {
    Allocated(Vec<Lanes>),
    /// Rows are read in no order: with small pages, half of the time would go into finding out where each page is.
    Mapped {
        map: MmapMut,
        /// Bytes before the first whole page.
        start: usize,
    },
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::Allocated(Vec::new())
    }
}

impl Memory {
    fn new(len: usize) -> Memory {
        let n_bytes = len * size_of::<Lanes>();
        if n_bytes < MIN_MAPPED {
            return Memory::Allocated(vec![Lanes::ZERO; len]);
        }
        let n_bytes = n_bytes.next_multiple_of(HUGE_PAGE);
        // If there is no room for a map, there is none for a vector either, and its allocation reports that.
        let Ok(map) = MmapMut::map_anon(n_bytes + HUGE_PAGE) else {
            return Memory::Allocated(vec![Lanes::ZERO; len]);
        };
        let start = map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        #[cfg(target_os = "linux")]
        let _is_only_slower_without = map.advise_range(memmap2::Advice::HugePage, start, n_bytes);
        Memory::Mapped { map, start }
    }

    fn lanes(&self) -> &[Lanes] {
        match self {
            Memory::Allocated(lanes) => lanes,
            Memory::Mapped { map, start } => {
                let bytes = &map[*start..];
                bytemuck::cast_slice(&bytes[..bytes.len() / size_of::<Lanes>() * size_of::<Lanes>()])
            }
        }
    }

    fn lanes_mut(&mut self) -> &mut [Lanes] {
        match self {
            Memory::Allocated(lanes) => lanes,
            Memory::Mapped { map, start } => {
                let bytes = &mut map[*start..];
                let whole = bytes.len() / size_of::<Lanes>() * size_of::<Lanes>();
                bytemuck::cast_slice_mut(&mut bytes[..whole])
            }
        }
    }
}

impl Buffer {
    /// Lanes with numbers left from an earlier use: the caller writes them before reading them.
    pub(crate) fn dirty(len: usize) -> Buffer {
        // The smallest that will do; of equal ones the last used, which is still in the caches.
        let is_mapped = len * size_of::<Lanes>() >= MIN_MAPPED;
        let most = if is_mapped { len + len / 2 } else { len + len / 4 };
        let mut stock = stock();
        let fitting = stock.iter().enumerate().map(|(place, kept)| (kept.lanes().len(), place));
        let best = fitting.rev().filter(|(kept, _)| (len..=most).contains(kept)).min_by_key(|(kept, _)| *kept);
        let memory = match best.filter(|_| len >= MIN_LANES) {
            Some((_, place)) => stock.remove(place),
            None => {
                drop(stock);
                Memory::new(len)
            }
        };
        Buffer { memory, len }
    }

    /// Lanes of zeros.
    pub(crate) fn zeros(len: usize) -> Buffer {
        let mut buffer = Buffer::dirty(len);
        buffer.fill(Lanes::ZERO);
        buffer
    }

    /// Room for `n` numbers, not zeroed.
    pub(crate) fn dirty_numbers(n: usize) -> Buffer {
        Buffer::dirty(n.div_ceil(N_LANES))
    }

    /// Zeros for `n` numbers.
    pub(crate) fn zero_numbers(n: usize) -> Buffer {
        Buffer::zeros(n.div_ceil(N_LANES))
    }

    /// The lanes as numbers.
    pub(crate) fn numbers(&self) -> &[f32] {
        bytemuck::cast_slice(self)
    }

    /// The lanes as numbers, to be written.
    pub(crate) fn numbers_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(self)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.memory.lanes().len() >= MIN_LANES {
            let mut stock = stock();
            if stock.len() == MAX_KEPT {
                stock.remove(0); // The one that nobody wanted for longest.
            }
            stock.push(std::mem::take(&mut self.memory));
        }
    }
}

/// Keeps nothing for later.
pub(crate) fn trim() {
    stock().clear();
}

// Whatever a panic left behind is an array like any other.
fn stock() -> MutexGuard<'static, Vec<Memory>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deref for Buffer {
    type Target = [Lanes];

    fn deref(&self) -> &[Lanes] {
        &self.memory.lanes()[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [Lanes] {
        &mut self.memory.lanes_mut()[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_zeros_however_dirty_the_stock_is() {
        for len in [0, 1, 1000, 4096, 5000, 4500, 140_000, 150_000, 139_000] {
            let mut buffer = Buffer::dirty(len);
            buffer.fill(Lanes::all(7.0));
            drop(buffer);
            let zeros = Buffer::zeros(len);
            assert_eq!(zeros.len(), len);
            assert!(zeros.numbers().iter().all(|number| *number == 0.0));
        }
    }
}
