//! Updates of the weights by an optimizer: see step.cu.

use super::{
    Program,
    optimizer::{Averages, StepFactors},
};
use crate::cuda::{
    args::args,
    error::GpuError,
    layer::N_THREADS,
    memory::Address,
    sum::{SUM_THREADS, parts_of},
};

impl Program {
    /// Sets the learning rate of each run for the steps from here on, where it changes from step to step.
    pub fn set_rates(&self, rates: &[f64]) -> Result<(), GpuError> {
        self.updates.rates.as_ref().expect("a schedule was planned").write(rates)
    }

    /// The step of every run over a whole graph, by its gradient.
    pub(super) fn update(&self) -> Result<(), GpuError> {
        let (module, n_weights) = (self.layers[0].module, self.plan.n_weights as u32);
        self.clip(self.gradient.at())?;
        let mut args = args![
            n_weights,
            self.plan.n_trained as u32,
            self.settings.at(),
            self.updates.factors(),
            self.updates.exceptions(),
            self.gradient.at(),
            self.weights.at(),
            self.first.at(),
            self.second.at()
        ];
        self.launch(module, "kith_update", n_weights.div_ceil(N_THREADS), N_THREADS, &mut args)?;
        self.average(Address::NONE)?;
        self.gpu.launch(module, "kith_end_step", [1, 1, 1], 1, &mut args![self.work.step()])
    }

    /// The step of one run by the gradients of all its slices, which are added up at `sum`.
    pub(super) fn update_by(&self, factors: StepFactors, is_lost: Address, sum: Address) -> Result<(), GpuError> {
        let (module, n_weights) = (self.layers[0].module, self.plan.n_weights as u32);
        self.clip(sum)?;
        let mut args = args![
            n_weights,
            self.plan.n_trained as u32,
            self.settings.at(),
            factors,
            self.updates.exceptions(),
            is_lost,
            sum,
            self.weights.at(),
            self.first.at(),
            self.second.at()
        ];
        self.launch(module, "kith_update_by_slices", n_weights.div_ceil(N_THREADS), N_THREADS, &mut args)?;
        self.average(is_lost)
    }

    /// Moves averages of weights, if there are any.
    fn average(&self, is_lost: Address) -> Result<(), GpuError> {
        let Some(Averages { shares, numbers }) = &self.updates.averages else { return Ok(()) };
        let (module, n_weights) = (self.layers[0].module, self.plan.n_weights as u32);
        let mut args =
            args![n_weights, self.plan.n_trained as u32, shares.at(), is_lost, self.weights.at(), numbers.at()];
        self.launch(module, "kith_average", n_weights.div_ceil(N_THREADS), N_THREADS, &mut args)
    }

    /// Sets the averages of all runs' weights, one run after the other; without averages nothing changes.
    pub fn set_averages(&self, averages: &[f32]) -> Result<(), GpuError> {
        self.updates.averages.as_ref().map_or(Ok(()), |own| own.numbers.write(averages))
    }

    /// The averages of one run's weights; `None` without averages.
    pub fn averages_of(&self, run: usize) -> Result<Option<Vec<f32>>, GpuError> {
        self.updates.averages.as_ref().map(|own| own.numbers.read_part(self.numbers_of(run))).transpose()
    }

    /// Calls `act` with the averages in place of the weights, if there are averages. A recorded step must not be played in it.
    pub fn with_averages<T>(&mut self, act: impl FnOnce(&Program) -> T) -> T {
        let swap = |program: &mut Program| {
            if let Some(own) = &mut program.updates.averages {
                std::mem::swap(&mut own.numbers, &mut program.weights);
            }
        };
        swap(self);
        let done = act(self);
        swap(self);
        done
    }

    /// Computes the factors of gradients that are too long.
    fn clip(&self, gradients: Address) -> Result<(), GpuError> {
        let Some(clip) = &self.updates.clip else { return Ok(()) };
        let (module, n_trained) = (self.layers[0].module, self.plan.n_trained);
        let (n_parts, parts) = (parts_of(n_trained), self.shared.parts.at());
        let mut args = args![gradients, n_trained as u32, self.plan.n_weights as u32, parts];
        self.launch(module, "kith_square_sums", n_parts, SUM_THREADS, &mut args)?;
        let mut args = args![parts, n_parts, self.settings.at(), clip.at()];
        self.launch(module, "kith_clip_factors", 1, 32, &mut args)
    }
}
