//! Buffers of a radix sort.

use super::{error::GpuError, machine::Gpu, memory::Array};

const WHAT: &str = "sorting a sampled batch";

/// Memory of a sort, used again by the next: keys and edges before a pass and after it.
#[derive(Debug)]
pub(super) struct Sort {
    pub(super) keys: [Array<u32>; 2],
    pub(super) edges: [Array<u32>; 2],
    /// Of digits, by digit and then by block.
    pub(super) counts: Array<u32>,
    pub(super) totals: Array<u32>,
}

impl Sort {
    pub(super) fn new(gpu: &Gpu) -> Result<Sort, GpuError> {
        let none = || Array::zeros(gpu, 0, WHAT);
        Ok(Sort { keys: [none()?, none()?], edges: [none()?, none()?], counts: none()?, totals: none()? })
    }
}
