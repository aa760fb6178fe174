//! Launches of sums over nodes, pieces and runs.

use super::Program;
use crate::cuda::{
    args::args,
    error::GpuError,
    memory::Address,
    sum::{SUM_THREADS, Sum},
};

/// Numbers that a block adds up the pieces of; SUM_COLUMNS in sums.cu.
const SUM_COLUMNS: u32 = 8;

impl Program {
    pub(super) fn sums(&self) -> Sum<'_> {
        Sum {
            gpu: &self.gpu,
            module: self.layers[0].module,
            n_runs: self.plan.runs.len() as u32,
            parts: self.shared.parts.at(),
        }
    }

    /// Adds up pieces of `n` numbers each into the gradient, from `place` on.
    pub(super) fn sum_pieces(&self, n_pieces: u32, n: usize, place: usize) -> Result<(), GpuError> {
        self.sum_pieces_of(self.shared.pieces.at(), n_pieces, n, place)
    }

    /// The same of other pieces.
    pub(super) fn sum_pieces_of(&self, pieces: Address, n_pieces: u32, n: usize, place: usize) -> Result<(), GpuError> {
        let out = Address(self.gradient.at().0 + 4 * place as u64);
        let mut args = args![pieces, n_pieces, n as u32, out, self.plan.n_weights as u32];
        self.launch(self.layers[0].module, "kith_sum_pieces", (n as u32).div_ceil(SUM_COLUMNS), SUM_THREADS, &mut args)
    }
}
