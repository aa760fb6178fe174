//! Arrays on a GPU.

use std::{marker::PhantomData, ops::Range};

use bytemuck::{Pod, Zeroable};

use super::{
    error::GpuError,
    machine::{Gpu, Lane},
};

/// An array on a machine. It is freed when dropped; what was started before still finds it, since freeing waits.
#[derive(Debug)]
pub(super) struct Array<T> {
    gpu: Gpu,
    address: u64,
    len: usize,
    capacity: usize,
    what: &'static str,
    kind: PhantomData<T>,
}

impl<T: Pod> Array<T> {
    /// Zeros.
    pub(super) fn zeros(gpu: &Gpu, len: usize, what: &'static str) -> Result<Array<T>, GpuError> {
        // Never empty, so that no address is null.
        let n_bytes = (len * size_of::<T>()).max(16);
        let address = gpu.machine().allocate(n_bytes, what)?;
        let array = Array { gpu: gpu.clone(), address, len, capacity: len, what, kind: PhantomData };
        gpu.machine().fill(gpu.lane(), address, n_bytes, 0)?;
        Ok(array)
    }

    /// The same numbers.
    pub(super) fn of(gpu: &Gpu, values: &[T], what: &'static str) -> Result<Array<T>, GpuError> {
        let array = Array::zeros(gpu, values.len(), what)?;
        array.write(values)?;
        Ok(array)
    }

    /// Makes room for `len` values. If they fit, the contents stay; otherwise the memory is new, zero, and larger than
    /// asked for, since batches differ in size and the next may be a little larger. True if the memory is new.
    pub(super) fn fit(&mut self, len: usize) -> Result<bool, GpuError> {
        let is_new = len > self.capacity;
        if is_new {
            let roomy = if self.capacity == 0 { len } else { len + len / 4 };
            // The old one goes first: both may not fit.
            self.gpu.machine().free(std::mem::take(&mut self.address));
            (self.len, self.capacity) = (0, 0);
            let mut other = Array::zeros(&self.gpu, roomy, self.what)?;
            std::mem::swap(self, &mut other);
        }
        self.len = len;
        Ok(is_new)
    }

    /// True if `len` values fit without new memory.
    pub(super) fn has_room(&self, len: usize) -> bool {
        len <= self.capacity
    }

    pub(super) fn write(&self, values: &[T]) -> Result<(), GpuError> {
        assert_eq!(values.len(), self.len, "an array is written whole");
        self.write_part(0, values)
    }

    /// Writes some of them, from a place on.
    pub(super) fn write_part(&self, start: usize, values: &[T]) -> Result<(), GpuError> {
        assert!(start + values.len() <= self.len, "a part of the array");
        match values.is_empty() {
            true => Ok(()),
            false => {
                let address = self.address + (start * size_of::<T>()) as u64;
                self.gpu.machine().upload(self.gpu.lane(), address, bytemuck::cast_slice(values))
            }
        }
    }

    /// Waits for everything that was started.
    pub(super) fn read(&self) -> Result<Vec<T>, GpuError> {
        self.read_part(0..self.len)
    }

    /// The same of some of them.
    pub(super) fn read_part(&self, places: Range<usize>) -> Result<Vec<T>, GpuError> {
        let Place { address, len, .. } = self.place(places);
        let mut values = vec![T::zeroed(); len];
        if len > 0 {
            self.gpu.machine().download(self.gpu.lane(), address, bytemuck::cast_slice_mut(&mut values))?;
        }
        Ok(values)
    }

    /// The place of some of them, to be read by another thread.
    pub(super) fn place(&self, places: Range<usize>) -> Place<T> {
        assert!(places.end <= self.len, "a part of the array");
        let address = self.address + (places.start * size_of::<T>()) as u64;
        Place { address, len: places.len(), kind: PhantomData }
    }

    pub(super) fn fill(&self, byte: u8) -> Result<(), GpuError> {
        self.gpu.machine().fill(self.gpu.lane(), self.address, self.len * size_of::<T>(), byte)
    }

    /// Zeros for some of them.
    pub(super) fn fill_part(&self, places: Range<usize>) -> Result<(), GpuError> {
        let Place { address, len, .. } = self.place(places);
        self.gpu.machine().fill(self.gpu.lane(), address, len * size_of::<T>(), 0)
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
        if self.address != 0 {
            self.gpu.machine().free(self.address);
        }
    }
}

impl Array<f32> {
    /// The array, for exchange with other GPUs.
    pub(super) fn numbers(&self) -> DeviceNumbers {
        DeviceNumbers { gpu: self.gpu.clone(), place: self.place(0..self.len) }
    }
}

/// Numbers on a GPU, which a program computes and ranks exchange. They must not outlive the program.
#[derive(Clone, Debug)]
pub struct DeviceNumbers {
    gpu: Gpu,
    place: Place<f32>,
}

impl DeviceNumbers {
    /// Their number.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.place.len
    }

    /// Their address on the GPU.
    pub fn address(&self) -> u64 {
        self.place.address
    }

    /// The driver's handle of the stream that computes them; `None` on an emulated GPU.
    pub fn stream(&self) -> Option<u64> {
        self.gpu.machine().stream(self.gpu.lane())
    }

    /// Waits for them, and copies them here.
    pub fn read(&self) -> Result<Vec<f32>, GpuError> {
        let mut values = vec![0.0; self.len()];
        self.gpu.machine().download(self.gpu.lane(), self.place.address, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// Copies them to the GPU.
    pub fn write(&self, values: &[f32]) -> Result<(), GpuError> {
        assert_eq!(values.len(), self.len(), "as many");
        self.gpu.machine().upload(self.gpu.lane(), self.place.address, bytemuck::cast_slice(values))
    }
}

/// A part of an array. The reader makes sure that the array still exists, and that nothing writes to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<T> {
    address: u64,
    len: usize,
    kind: PhantomData<T>,
}

impl<T: Pod> Place<T> {
    /// Reads it beside whatever is computed, after what was started in [`Lane::Read`].
    pub(super) fn fetch(&self, gpu: &Gpu) -> Result<Vec<T>, GpuError> {
        let mut values = vec![T::zeroed(); self.len];
        if self.len > 0 {
            gpu.machine().download(Lane::Read, self.address, bytemuck::cast_slice_mut(&mut values))?;
        }
        Ok(values)
    }
}

/// Memory that takes arrays one after the other, filled or copied.
pub(super) trait Sink {
    /// An array of `n`, which `fill` writes.
    fn place<T: Pod>(&mut self, n: usize, fill: impl FnOnce(&mut [T])) -> Result<Address, GpuError>;

    /// A copy.
    fn copy<T: Pod>(&mut self, values: &[T]) -> Result<Address, GpuError> {
        self.place(values.len(), |to: &mut [T]| to.copy_from_slice(values))
    }
}

/// Arrays of their own, copied one by one.
#[derive(Debug)]
pub(super) struct Arrays {
    gpu: Gpu,
    what: &'static str,
    all: Vec<Array<u32>>,
}

impl Arrays {
    pub(super) fn new(gpu: &Gpu, what: &'static str) -> Arrays {
        Arrays { gpu: gpu.clone(), what, all: Vec::new() }
    }
}

impl Sink for Arrays {
    fn place<T: Pod>(&mut self, n: usize, fill: impl FnOnce(&mut [T])) -> Result<Address, GpuError> {
        let mut values = vec![T::zeroed(); n];
        fill(&mut values);
        let array = Array::of(&self.gpu, bytemuck::cast_slice::<T, u32>(&values), self.what)?;
        let address = array.at();
        self.all.push(array);
        Ok(address)
    }
}

/// Address of an array, as kernels take it.
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
