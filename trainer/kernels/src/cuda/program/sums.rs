//! Launches of sums over nodes, pieces and runs.

use super::{Program, tiles::parts_of};
use crate::cuda::{
    args::args,
    error::GpuError,
    memory::{Address, Array},
};

/// Threads that add up a piece; SUM_THREADS in sums.cu.
pub(super) const SUM_THREADS: u32 = 256;
/// Numbers that a block adds up the pieces of; SUM_COLUMNS in sums.cu.
const SUM_COLUMNS: u32 = 8;
impl Program {
    /// Adds up `n` numbers of each run.
    pub(super) fn sum(&self, numbers: &Array<f64>, n: usize, out: Address, out_stride: usize) -> Result<(), GpuError> {
        let module = self.layers[0].module;
        let n_parts = parts_of(n);
        if n_parts == 1 {
            let mut args = args![numbers.at(), n as u32, out, out_stride as u32];
            return self.launch(module, "kith_sum", 1, SUM_THREADS, &mut args);
        }
        let mut args = args![numbers.at(), n as u32, self.shared.parts.at(), n_parts];
        self.launch(module, "kith_sum", n_parts, SUM_THREADS, &mut args)?;
        self.sum_parts(n_parts, out, out_stride)
    }

    /// Adds up the parts of a sum.
    pub(super) fn sum_parts(&self, n_parts: u32, out: Address, out_stride: usize) -> Result<(), GpuError> {
        let mut args = args![self.shared.parts.at(), n_parts, out, out_stride as u32];
        self.launch(self.layers[0].module, "kith_sum", 1, SUM_THREADS, &mut args)
    }

    /// Adds up pieces of `n` numbers each into the gradient, from `place` on.
    pub(super) fn sum_pieces(&self, n_pieces: u32, n: usize, place: usize) -> Result<(), GpuError> {
        let out = Address(self.gradient.at().0 + 4 * place as u64);
        let mut args = args![self.shared.pieces.at(), n_pieces, n as u32, out, self.plan.n_weights as u32];
        self.launch(self.layers[0].module, "kith_sum_pieces", (n as u32).div_ceil(SUM_COLUMNS), SUM_THREADS, &mut args)
    }
}
