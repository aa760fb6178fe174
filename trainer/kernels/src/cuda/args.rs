//! Arguments of a kernel, each in a slot of its own.

use std::ffi::c_void;

use bytemuck::Pod;

/// Bytes of the largest argument.
const MAX_BYTES: usize = 128;

/// Arguments, in the order of the kernel's.
#[derive(Debug, Default)]
pub(super) struct Args {
    places: Vec<[u64; MAX_BYTES / 8]>,
}

impl Args {
    /// One more.
    pub(super) fn with<T: Pod>(mut self, value: T) -> Args {
        let mut place = [0; MAX_BYTES / 8];
        bytemuck::cast_slice_mut(&mut place)[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        self.places.push(place);
        self
    }

    pub(super) fn pointers(&mut self) -> Vec<*mut c_void> {
        self.places.iter_mut().map(|place| place.as_mut_ptr().cast()).collect()
    }
}

/// Arguments of a kernel.
macro_rules! args {
    ($($value:expr),* $(,)?) => { $crate::cuda::args::Args::default()$(.with($value))* };
}
pub(super) use args;
