//! Exponential moving average of the weights (`optimizer.ema`).

use kith_kernels::average;
use tch::{TchError, Tensor, no_grad};

/// The average of all weights. Running statistics of norms are averages already: they are copied.
#[derive(Debug)]
pub(super) struct Average {
    /// Share of new weights in the average: 1 − decay.
    share: f64,
    pub(super) values: Tensor,
}

impl Average {
    /// Begins with weights.
    pub(super) fn new(decay: f64, weights: &Tensor) -> Average {
        Average { share: 1.0 - decay, values: weights.detach().copy() }
    }

    /// Replaces all values.
    pub(super) fn set(&mut self, values: &Tensor) {
        no_grad(|| self.values.copy_(values));
    }

    /// Takes the weights of a step, of which the first `n_trained` are trained.
    pub(super) fn take(&mut self, weights: &Tensor, n_trained: i64) -> Result<(), TchError> {
        let part = |tensor: &Tensor, start: i64, end: i64| tensor.f_narrow(0, start, end - start);
        let (mut own, trained) = (part(&self.values, 0, n_trained)?, part(weights, 0, n_trained)?);
        no_grad(|| {
            if !average(&mut own, &trained, self.share as f32) {
                let _ = own.f_lerp_(&trained, self.share)?;
            }
            let n = weights.size1()?;
            part(&self.values, n_trained, n)?.f_copy_(&part(weights, n_trained, n)?)
        })
    }
}
