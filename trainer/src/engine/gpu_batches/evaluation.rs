//! Evaluation of mini-batch runs on a GPU: that of rank 0, for all ranks.

use std::time::{Duration, Instant};

use kith_kernels::cuda::{Gpu, GpuError, Program, ProgramPlan};
use kith_run::{
    measured::{Measured, Metric},
    report::Confusion,
    stop::Request,
};

use crate::{
    data::{BatchInput, Data},
    distributed::world::World,
    error::TrainError,
    inference::{
        confusion,
        on_gpu::{Beat, GpuEvaluation, Known},
        receptive::ReceptiveSets,
    },
};

/// Ranks that wait hear this often that rank 0 is still at it.
const HEARD_EVERY: Duration = Duration::from_secs(1);

/// Evaluation of the model.
#[derive(Debug)]
pub(super) enum Evaluation {
    /// Decided by the memory that the first steps leave free.
    Undecided,
    OnGpu(Box<GpuEvaluation>),
    OnCpu,
}

/// Inputs of an evaluation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) plan: &'a ProgramPlan,
    pub(super) program: &'a Program,
    pub(super) known: Known<'a>,
}

impl Evaluation {
    /// Evaluates these weights, or those of training, on the GPU of rank 0; `None` on all ranks if the CPU must.
    pub(super) fn evaluate(
        &mut self,
        parts: Parts<'_>,
        (data, metric): (&Data, Metric),
        weights: Option<Vec<f32>>,
        world: &mut World,
    ) -> Result<Option<Measured>, TrainError> {
        if world.rank() > 0 {
            return hear(world);
        }
        let weights = match weights {
            Some(weights) => weights,
            None => parts.program.averages_of(0)?.map_or_else(|| parts.program.weights_of(0), Ok)?,
        };
        let found = self.compute_here(parts, data, world, |evaluation, input, beat| {
            evaluation.evaluate(&weights, (input, metric), parts.known, beat)
        })?;
        let numbers = found.map(|Measured { valid_loss, valid, test }| [valid_loss, valid, test]);
        tell(world, Told::Done(numbers))?;
        Ok(found)
    }

    /// Counts nodes by true and predicted class with these weights, on the GPU of rank 0; others get no counts. `None` on all ranks if the
    /// CPU must.
    pub(super) fn confusion(
        &mut self,
        parts: Parts<'_>,
        (data, weights): (&Data, &[f32]),
        world: &mut World,
    ) -> Result<Option<Confusion>, TrainError> {
        if world.rank() > 0 {
            return Ok(hear(world)?.map(|_| confusion::zeros(0)));
        }
        let found = self.compute_here(parts, data, world, |evaluation, input, beat| {
            evaluation.confusion(weights, input, parts.known, beat)
        })?;
        tell(world, Told::Done(found.as_ref().map(|_| [0.0; 3])))?;
        Ok(found)
    }

    /// Nodes of an evaluation; `None` before the first, and if the CPU evaluates.
    pub(super) fn receptive(&self) -> Option<&ReceptiveSets> {
        if let Evaluation::OnGpu(evaluation) = self { Some(evaluation.receptive()) } else { None }
    }

    /// Computes something here; `None` if the GPU cannot.
    fn compute_here<T>(
        &mut self,
        Parts { gpu, plan, .. }: Parts<'_>,
        data: &Data,
        world: &mut World,
        act: impl FnOnce(&mut GpuEvaluation, &BatchInput, Beat<'_>) -> Result<T, TrainError>,
    ) -> Result<Option<T>, TrainError> {
        let Data::Batches(input) = data else { return Ok(None) };
        let mut heard = Instant::now();
        let mut beat = || {
            if let Some(request) = world.stop_request().request() {
                tell(world, Told::Abandoned(request))?;
                return Err(TrainError::Abandoned(request));
            }
            if heard.elapsed() < HEARD_EVERY {
                return Ok(());
            }
            heard = Instant::now();
            tell(world, Told::NotYet)
        };
        if plan.stack.is_some() {
            *self = Evaluation::OnCpu;
        }
        if let Evaluation::Undecided = self {
            let made = match GpuEvaluation::new(gpu, plan, input, &mut beat) {
                Err(TrainError::Gpu(GpuError::NoMemory { .. })) => None,
                made => made?,
            };
            *self = made.map_or(Evaluation::OnCpu, |made| Evaluation::OnGpu(Box::new(made)));
        }
        let Evaluation::OnGpu(evaluation) = self else { return Ok(None) };
        match act(evaluation, input, &mut beat) {
            Err(TrainError::Gpu(GpuError::NoMemory { .. })) => {
                *self = Evaluation::OnCpu;
                Ok(None)
            }
            found => found.map(Some),
        }
    }
}

/// Messages of rank 0 during an evaluation.
enum Told {
    NotYet,
    /// It was asked to stop.
    Abandoned(Request),
    /// Its results; `None` if its GPU cannot.
    Done(Option<[f64; 3]>),
}

/// Tells all other ranks.
fn tell(world: &mut World, told: Told) -> Result<(), TrainError> {
    let mut bytes = match told {
        Told::NotYet => vec![0],
        Told::Done(None) => vec![1],
        Told::Abandoned(request) => vec![2, Request::to_number(Some(request))],
        Told::Done(Some(numbers)) => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
    };
    Ok(world.collective().broadcast(&mut bytes)?)
}

/// Waits for what rank 0 found.
fn hear(world: &mut World) -> Result<Option<Measured>, TrainError> {
    loop {
        let mut bytes = Vec::new();
        world.collective().broadcast(&mut bytes)?;
        if let Ok(numbers) = <[u8; 24]>::try_from(&bytes[..]) {
            let number = |place: usize| {
                let bytes = numbers[8 * place..][..8].try_into().expect("eight of 24 bytes");
                f64::from_le_bytes(bytes)
            };
            return Ok(Some(Measured { valid_loss: number(0), valid: number(1), test: number(2) }));
        }
        match bytes[..] {
            [0] => {}
            [2, number] => {
                return Err(TrainError::Abandoned(Request::of_number(number).unwrap_or(Request::Terminate)));
            }
            _ => return Ok(None),
        }
    }
}
