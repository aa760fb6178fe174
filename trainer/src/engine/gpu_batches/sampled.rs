//! Slices that the GPU samples itself: the same blocks and pairs as on the host, bit for bit. A thread of its own samples them
//! ahead, in a lane of its own.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, JoinHandle},
};

use kith_client::Roots;
use kith_kernels::cuda::{
    DeviceBatch, Features, Gpu, GpuError, GraphSampler, HostBlocks, HostPairs, ProgramPlan, SampledParts,
};

use super::{
    ready::{Drawn, Ready, Sampled, Targets},
    recipe::Recipe,
};
use crate::{data::feed::At, distributed::exchange::SliceRecord};

/// Samples the slices of a run, in their order.
#[derive(Debug)]
pub(super) struct SamplesAhead {
    /// `None` only while it is dropped.
    ready: Option<Receiver<Result<Ready<'static>, GpuError>>>,
    spare: Sender<DeviceBatch>,
    thread: Option<JoinHandle<()>>,
}

impl SamplesAhead {
    /// Starts with the first of these slices.
    pub(super) fn start(
        gpu: &Gpu,
        plan: &ProgramPlan,
        recipe: Recipe,
        (sampler, features): (GraphSampler, Arc<Features>),
        slices: impl Iterator<Item = At> + Send + 'static,
    ) -> SamplesAhead {
        // One waits while another is sampled.
        let (done, ready) = sync_channel(1);
        let (spare, given_back) = channel();
        let (gpu, plan) = (gpu.clone(), plan.clone());
        let work = Work { gpu, plan, recipe, sampler, features, given_back, spare: Vec::new() };
        let thread = thread::spawn(move || work.run(slices, &done));
        SamplesAhead { ready: Some(ready), spare, thread: Some(thread) }
    }

    /// The next slice.
    pub(super) fn next(&self) -> Result<Ready<'static>, GpuError> {
        let ready = self.ready.as_ref().expect("it is not dropped");
        ready.recv().expect("there is a slice for every step, and the thread ends with this")
    }

    /// Takes a batch that was computed, for the memory.
    pub(super) fn give_back(&self, batch: DeviceBatch) {
        let _ = self.spare.send(batch); // After the last slice nobody takes it.
    }
}

impl Drop for SamplesAhead {
    /// Waits for the thread: it uses the GPU.
    fn drop(&mut self) {
        self.ready = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the sampling thread.
struct Work {
    gpu: Gpu,
    plan: ProgramPlan,
    recipe: Recipe,
    sampler: GraphSampler,
    features: Arc<Features>,
    given_back: Receiver<DeviceBatch>,
    spare: Vec<DeviceBatch>,
}

impl Work {
    fn run(mut self, slices: impl Iterator<Item = At>, done: &SyncSender<Result<Ready<'static>, GpuError>>) {
        for at in slices {
            let sampled = self.sample(at);
            let is_last = sampled.is_err();
            if done.send(sampled).is_err() || is_last {
                return;
            }
        }
    }

    /// The slice at a place of the run.
    fn sample(&mut self, at: At) -> Result<Ready<'static>, GpuError> {
        let Recipe { plan, fanouts, .. } = &self.recipe;
        let step = plan.step(at.step);
        let roots = Roots::of(plan, &step, at.slice);
        let name = (at.step, at.slice as u64);
        if roots.ids.is_empty() {
            return Ok(nothing(Sampled { name, roots }, &self.recipe));
        }
        while let Ok(mut batch) = self.given_back.try_recv() {
            batch.take_sampled().into_iter().for_each(|sampled| self.sampler.give_back(sampled));
            self.spare.push(batch);
        }
        let mut sampled = self.sampler.sample((at.run_key, at.step), fanouts, &roots.ids)?;
        self.sampler.transpose(&mut sampled)?;
        let targets = Targets::of(&roots.labels, &roots.seeds, roots.ids.len());
        let record = SliceRecord {
            row_counts: (0, sampled.n_nodes() as u64, 0),
            n_seeds: roots.seeds.len() as u64,
            n_edges: sampled.n_drawn_edges() as u64,
            ..SliceRecord::default()
        };
        let n_classes = self.plan.n_classes();
        let mut batch = match self.spare.pop() {
            Some(batch) => batch,
            None => DeviceBatch::new(&self.gpu, &self.plan, true)?,
        };
        batch.fill_sampled(SampledParts {
            step: at.step,
            slice: at.slice as u32,
            sampled,
            features: &self.features,
            classes: &targets.classes,
            values: &targets.values,
            n_classes,
            n_terms: targets.n_terms(step.n_seeds(), n_classes),
        })?;
        Ok(Ready { batch: Some(batch), record, drawn: Drawn::OnGpu(Sampled { name, roots }) })
    }
}

/// A slice without roots.
fn nothing(sampled: Sampled, recipe: &Recipe) -> Ready<'static> {
    let none = HostPairs { sources: Vec::new(), destinations: Vec::new(), kept: Vec::new(), n_pairs: 0, n_left_out: 0 };
    let blocks = vec![(vec![0], Vec::new(), 0); recipe.fanouts.len()];
    let drawn = (HostBlocks { nodes: Vec::new(), blocks }, vec![none; recipe.n_pair_layers]);
    let record = SliceRecord { digest: Some(sampled.digest(&drawn)), ..SliceRecord::default() };
    Ready { batch: None, record, drawn: Drawn::OnGpu(sampled) }
}
