//! Arrays on a machine.

use std::{marker::PhantomData, ops::Range};

use bytemuck::{Pod, Zeroable};

use super::{error::GpuError, machine::Gpu};

/// An array on a machine. It is freed when dropped; what was started before still finds it, since freeing waits.
#[derive(Debug)]
pub(super) struct Array<T> {
    gpu: Gpu,
    address: u64,
    len: usize,
    kind: PhantomData<T>,
}

impl<T: Pod> Array<T> {
    /// Zeros.
    pub(super) fn zeros(gpu: &Gpu, len: usize, what: &'static str) -> Result<Array<T>, GpuError> {
        // Never empty: addresses are told apart from null.
        let n_bytes = (len * size_of::<T>()).max(16);
        let address = gpu.machine().allocate(n_bytes, what)?;
        let array = Array { gpu: gpu.clone(), address, len, kind: PhantomData };
        gpu.machine().fill(address, n_bytes, 0)?;
        Ok(array)
    }

    /// The same numbers.
    pub(super) fn of(gpu: &Gpu, values: &[T], what: &'static str) -> Result<Array<T>, GpuError> {
        let array = Array::zeros(gpu, values.len(), what)?;
        array.write(values)?;
        Ok(array)
    }

    pub(super) fn write(&self, values: &[T]) -> Result<(), GpuError> {
        assert_eq!(values.len(), self.len, "an array is written whole");
        self.write_front(values)
    }

    /// Writes the first of them.
    pub(super) fn write_front(&self, values: &[T]) -> Result<(), GpuError> {
        assert!(values.len() <= self.len, "a part of the array");
        match values.is_empty() {
            true => Ok(()),
            false => self.gpu.machine().upload(self.address, bytemuck::cast_slice(values)),
        }
    }

    /// Zeros instead, if it is shorter than so many.
    pub(super) fn at_least(&mut self, len: usize, what: &'static str) -> Result<(), GpuError> {
        if self.len < len {
            *self = Array::zeros(&self.gpu, with_reserve(len), what)?;
        }
        Ok(())
    }

    /// Waits for everything that was started.
    pub(super) fn read(&self) -> Result<Vec<T>, GpuError> {
        self.read_part(0..self.len)
    }

    /// The same of some of them.
    pub(super) fn read_part(&self, places: Range<usize>) -> Result<Vec<T>, GpuError> {
        assert!(places.end <= self.len, "a part of the array");
        let mut values = vec![T::zeroed(); places.len()];
        if !values.is_empty() {
            let address = self.address + (places.start * size_of::<T>()) as u64;
            self.gpu.machine().download(address, bytemuck::cast_slice_mut(&mut values))?;
        }
        Ok(values)
    }

    pub(super) fn fill(&self, byte: u8) -> Result<(), GpuError> {
        self.gpu.machine().fill(self.address, self.len * size_of::<T>(), byte)
    }

    pub(super) fn at(&self) -> Address {
        Address(self.address)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        self.gpu.machine().free(self.address);
    }
}

/// How long an array is made that has to hold so many numbers now and may have to hold a few more next time.
pub(super) fn with_reserve(len: usize) -> usize {
    len + len / 4
}

/// Where an array is, as kernels take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct Address(pub(super) u64);

impl Address {
    /// No array.
    pub(super) const NONE: Address = Address(0);

    /// An array, if there is one.
    pub(super) fn of<T: Pod>(array: Option<&Array<T>>) -> Address {
        array.map_or(Address::NONE, Array::at)
    }
}
