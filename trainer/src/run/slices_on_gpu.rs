//! Runs whose slices a GPU computes: batches, or one graph of a set after the other. Weights stay here, where all ranks change
//! them alike; the GPU gets them with every slice, and gives its gradient. While it computes one slice, the next is sampled and
//! sent, or waits to be sampled there.

mod sampled;

use kith_client::RowCounts;
use kith_kernels::cuda::{BatchParts, DeviceBatch, Gpu, Losses, Plan, Program};
use tch::Tensor;

use self::sampled::{Recipe, Sampled};
use super::{Run, on_gpu::OnGpu};
use crate::{
    checkpoint::Exact,
    error::TrainError,
    exchange::SliceRecord,
    feed::{At, Slice},
    gpu,
    input::Labels,
    model::{EdgeLoss, Forward},
    world::Phase,
};

/// Where slices are too large for a GPU.
const ADVICE: &str =
    "a smaller train.seeds_per_step, smaller train.fanouts or more train.slices need less, and so does --gpu-rows 0";

/// What computes slices.
#[derive(Debug)]
pub(super) struct Slices<'a> {
    gpu: Gpu,
    plan: Plan,
    program: Program,
    /// Whether the rows of all nodes are there.
    knows_rows: bool,
    /// What it samples by, where it does that, too.
    recipe: Option<Recipe>,
    /// The slice after the one that is computed.
    ahead: Option<Ready<'a>>,
    /// Memory of a slice that was computed.
    spare: Option<DeviceBatch>,
    gradient: Option<Tensor>,
}

/// A slice that is on its way to the GPU; one without roots never goes there.
#[derive(Debug)]
struct Ready<'a> {
    batch: Option<DeviceBatch>,
    /// What is known of it before it is computed.
    record: SliceRecord,
    drawn: Drawn<'a>,
}

/// Who drew a slice.
#[derive(Debug)]
enum Drawn<'a> {
    Here(Box<Slice<'a>>),
    OnGpu(Sampled),
}

impl<'a> Slices<'a> {
    pub(super) fn new(device: &Gpu, run: &mut Run<'a>) -> Result<Slices<'a>, TrainError> {
        Slices::make(device, run).map_err(|error| error.advised(ADVICE))
    }

    fn make(device: &Gpu, run: &mut Run<'a>) -> Result<Slices<'a>, TrainError> {
        let rows = gpu::all_rows(device, run.data, run.gpu_rows)?;
        run.feed.serve_gpu(rows.is_none());
        let plan = gpu::plan_of_slices(&run.model, run.data, &run.config, run.run_key, run.feed.n_slices());
        let knows_rows = rows.is_some();
        let mut recipe = run.feed.recipe().filter(|_| knows_rows).map(Recipe::of);
        let sampler = match &recipe {
            Some(recipe) => gpu::sampler(device, run.data, &recipe.fanouts)?,
            None => None,
        };
        recipe.take_if(|_| sampler.is_none());
        let program = Program::of_batches(device, rows, sampler, plan.clone())?;
        let gpu = device.clone();
        Ok(Slices { gpu, plan, program, knows_rows, recipe, ahead: None, spare: None, gradient: None })
    }

    /// The gradient of the slice that was computed last.
    pub(super) fn take_gradient(&mut self) -> Tensor {
        self.gradient.take().expect("a slice was computed")
    }

    fn spare(&mut self) -> Result<DeviceBatch, TrainError> {
        self.spare.take().map_or_else(|| Ok(DeviceBatch::new(&self.gpu, &self.plan)?), Ok)
    }

    /// Sends a slice on its way.
    fn send(&mut self, mut slice: Slice<'a>, step: u64) -> Result<Ready<'a>, TrainError> {
        let RowCounts { local, mut cached, remote } = slice.row_counts;
        if self.knows_rows {
            cached += slice.sample.blocks.first().map_or(0, |block| block.n_sources() as u64);
        }
        let record = SliceRecord {
            digest: slice.digest.take(),
            row_counts: (local, cached, remote),
            n_seeds: slice.seeds.len() as u64,
            n_edges: slice.n_edges(),
            ..SliceRecord::default()
        };
        let mut batch = None;
        if !slice.is_empty() {
            let mut own = self.spare()?;
            let n_roots = slice.sample.blocks.last().map_or(0, |block| block.n_destinations());
            let learned = Learned::of(&slice.labels, &slice.seeds, n_roots);
            let n_classes = self.n_classes();
            own.fill(&BatchParts {
                step,
                blocks: &slice.sample.blocks,
                are_sampled: record.digest.is_some(),
                pairs: &slice.compared.pairs,
                rows: (!self.knows_rows).then_some(&*slice.sample.rows),
                classes: &learned.classes,
                bits: learned.bits.as_deref(),
                n_classes,
                n_terms: learned.n_terms(slice.n_step_seeds, n_classes),
            })?;
            batch = Some(own);
        }
        Ok(Ready { batch, record, drawn: Drawn::Here(Box::new(slice)) })
    }

    fn n_classes(&self) -> usize {
        self.plan.layers.last().map_or(0, |layer| layer.features)
    }
}

/// What the roots of a slice are learned by.
struct Learned {
    classes: Vec<i32>,
    bits: Option<Vec<u8>>,
}

impl Learned {
    fn of(labels: &Labels, seeds: &[u32], n_roots: usize) -> Learned {
        let mut classes = vec![-1; n_roots];
        match labels {
            Labels::Classes(all) => {
                seeds.iter().for_each(|seed| classes[*seed as usize] = all[*seed as usize] as i32);
                Learned { classes, bits: None }
            }
            Labels::Bits { bits, .. } => {
                seeds.iter().for_each(|seed| classes[*seed as usize] = 0);
                Learned { classes, bits: Some(bits.iter().map(|bit| u8::from(*bit)).collect()) }
            }
        }
    }

    fn n_terms(&self, n_step_seeds: usize, n_classes: usize) -> usize {
        n_step_seeds * if self.bits.is_some() { n_classes } else { 1 }
    }
}

impl<'a> Run<'a> {
    /// The slice at a place of the run, on its way to the GPU.
    fn ready(&mut self, slices: &mut Slices<'a>, at: At) -> Result<Ready<'a>, TrainError> {
        self.enter(Phase::Sample);
        if slices.recipe.is_some() {
            return slices.sample(at);
        }
        let slice = self.feed.next(&self.model, at)?;
        slices.send(slice, at.step)
    }

    /// The place of this rank's slice after another; `None` after the last.
    fn after(&self, at: At) -> Option<At> {
        let own = self.own_slices();
        let n_steps = self.config.train.epochs * self.feed.steps_per_epoch() as u64;
        match at.slice + 1 {
            slice if slice < own.end => Some(self.at_step(at.step, slice)),
            _ => (at.step + 1 < n_steps).then(|| self.at_step(at.step + 1, own.start)),
        }
    }

    /// One slice of the next step by the GPU, which leaves its gradient.
    pub(super) fn learn_slice_on_gpu(
        &mut self,
        slices: &mut Slices<'a>,
        slice: usize,
    ) -> Result<SliceRecord, TrainError> {
        let at = self.at(slice);
        let Ready { batch, mut record, drawn } = match slices.ahead.take() {
            Some(ready) => ready,
            None => self.ready(slices, at)?,
        };
        self.enter(Phase::Compute);
        let is_started = batch.is_some();
        if let Some(batch) = batch {
            let weights: Vec<f32> = Vec::try_from(self.model.weights().flat())?;
            slices.program.start(batch, &weights)?;
        }
        if let (Drawn::OnGpu(sampled), true) = (&drawn, is_started) {
            // The GPU computes meanwhile.
            record.digest = Some(slices.digest(sampled)?);
        }
        // Not known to be needed: the run may stop early. What was sampled is lost then.
        slices.ahead = self.after(at).map(|next| self.ready(slices, next)).transpose()?;
        self.enter(Phase::Compute);
        slices.gradient = Some(match is_started {
            false => self.model.weights().flat().zeros_like(),
            true => {
                let (losses, gradient, batch) = slices.program.finish()?;
                let slice = match &drawn {
                    Drawn::Here(slice) if !slices.knows_rows => Some(&**slice),
                    _ => None,
                };
                self.hear_losses(&mut record, losses, slice)?;
                slices.take_back(batch);
                Tensor::from_slice(&gradient)
            }
        });
        if let Drawn::Here(slice) = drawn {
            self.feed.give_back(*slice);
        }
        Ok(record)
    }

    fn hear_losses(
        &self,
        record: &mut SliceRecord,
        losses: Losses,
        slice: Option<&Slice<'_>>,
    ) -> Result<(), TrainError> {
        let Losses { node, edges, n_left_out } = losses;
        let edge_weight = self.config.edge_loss.as_ref().map_or(0.0, |edge_loss| edge_loss.weight);
        record.loss = Exact(node + edge_weight / self.feed.n_slices() as f64 * edges.iter().sum::<f64>());
        record.node_loss = Exact(node);
        record.n_negatives_left_out = n_left_out;
        let forward = Forward {
            logits: Tensor::from_slice::<f32>(&[]),
            edge_losses: vec![EdgeLoss {
                weight: edge_weight,
                layers: edges.iter().map(|loss| Tensor::from(*loss)).collect(),
            }],
            n_negatives_left_out: n_left_out as usize,
        };
        record.edge_losses = edges.into_iter().map(Exact).collect();
        self.check_finite(record.loss.0, self.state.step, slice.map(|slice| (&slice.sample, &forward)))
    }

    /// Computes with the slices' GPU, which is not the run's while it does.
    pub(super) fn with_slices<T>(
        &mut self,
        act: impl FnOnce(&mut Run<'a>, &mut Slices<'a>) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        let Some(OnGpu::Slices(mut slices)) = self.on_gpu.take() else { unreachable!("slices are on a GPU") };
        let outcome = act(self, &mut slices).map_err(|error| error.advised(ADVICE));
        self.on_gpu = Some(OnGpu::Slices(slices));
        outcome
    }
}

impl Slices<'_> {
    /// Takes a batch that was computed.
    fn take_back(&mut self, mut batch: DeviceBatch) {
        if let Some(sampled) = batch.take_sampled() {
            self.program.give_back(sampled);
        }
        self.spare = Some(batch);
    }
}
