//! Sums of losses in a fixed order: parts by position, then part after part.

use super::{
    args::{Args, args},
    error::GpuError,
    machine::{Gpu, ModuleId},
    memory::Address,
};

/// Threads that add up a piece; SUM_THREADS in sums.cu.
pub(super) const SUM_THREADS: u32 = 256;
/// Parts that a long sum of losses is made of at most, and numbers of one at least.
pub(super) const N_PARTS: usize = 1024;
const N_PART: usize = 2048;

/// Parts of a sum of `n` losses.
pub(super) fn parts_of(n: usize) -> u32 {
    n.div_ceil(N_PART).clamp(1, N_PARTS) as u32
}

/// Launches of sums of losses, for all runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) module: ModuleId,
    pub(super) n_runs: u32,
    /// Room for `N_PARTS` numbers of each run.
    pub(super) parts: Address,
}

impl Sum<'_> {
    /// Adds up `n` numbers of each run; those of the next run's result are `out_stride` numbers away.
    pub(super) fn of(&self, numbers: Address, n: usize, out: Address, out_stride: usize) -> Result<(), GpuError> {
        let n_parts = parts_of(n);
        if n_parts == 1 {
            return self.launch(1, args![numbers, n as u32, out, out_stride as u32]);
        }
        self.launch(n_parts, args![numbers, n as u32, self.parts, n_parts])?;
        self.of_parts(n_parts, out, out_stride)
    }

    /// Adds up the parts of a sum.
    pub(super) fn of_parts(&self, n_parts: u32, out: Address, out_stride: usize) -> Result<(), GpuError> {
        self.launch(1, args![self.parts, n_parts, out, out_stride as u32])
    }

    fn launch(&self, n_blocks: u32, mut args: Args) -> Result<(), GpuError> {
        self.gpu.launch(self.module, "kith_sum", [n_blocks, self.n_runs, 1], SUM_THREADS, &mut args)
    }
}
