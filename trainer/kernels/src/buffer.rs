//! Large arrays that are used again. A step needs the same ones as the step before; asking the system for fresh memory
//! every time would cost a page fault for each 4 KiB of them.

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::simd::{Lanes, N_LANES};

/// Arrays that are kept for later at most.
const MAX_KEPT: usize = 32;
/// Smaller ones come from the allocator's own stock.
const MIN_LANES: usize = 1024;

static KEPT: Mutex<Vec<Vec<Lanes>>> = Mutex::new(Vec::new());

/// Lanes that go back to the stock when dropped.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<Lanes>);

impl Buffer {
    /// Lanes whose numbers are left from an earlier use: whoever takes them writes them first.
    pub(crate) fn dirty(len: usize) -> Buffer {
        let fits = |kept: &Vec<Lanes>| (len..=len + len / 4).contains(&kept.capacity());
        let mut stock = stock();
        let mut lanes = match stock.iter().rposition(fits).filter(|_| len >= MIN_LANES) {
            Some(place) => stock.remove(place),
            None => Vec::with_capacity(len),
        };
        drop(stock);
        lanes.resize(len, Lanes::ZERO);
        Buffer(lanes)
    }

    /// Lanes of zeros.
    pub(crate) fn zeros(len: usize) -> Buffer {
        let mut buffer = Buffer::dirty(len);
        buffer.0.fill(Lanes::ZERO);
        buffer
    }

    /// Room for so many numbers.
    pub(crate) fn dirty_numbers(n: usize) -> Buffer {
        Buffer::dirty(n.div_ceil(N_LANES))
    }

    /// The lanes as numbers.
    pub(crate) fn numbers(&self) -> &[f32] {
        bytemuck::cast_slice(&self.0)
    }

    /// The lanes as numbers, to be written.
    pub(crate) fn numbers_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.0.capacity() >= MIN_LANES {
            let mut stock = stock();
            if stock.len() == MAX_KEPT {
                stock.remove(0); // The one that nobody wanted for longest.
            }
            stock.push(std::mem::take(&mut self.0));
        }
    }
}

// Whatever a panic left behind is an array like any other.
fn stock() -> MutexGuard<'static, Vec<Vec<Lanes>>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deref for Buffer {
    type Target = [Lanes];

    fn deref(&self) -> &[Lanes] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [Lanes] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_zeros_however_dirty_the_stock_is() {
        for len in [0, 1, 1000, 4096, 5000, 4500] {
            let mut buffer = Buffer::dirty(len);
            buffer.fill(Lanes::all(7.0));
            drop(buffer);
            let zeros = Buffer::zeros(len);
            assert_eq!(zeros.len(), len);
            assert!(zeros.numbers().iter().all(|number| *number == 0.0));
        }
    }
}
