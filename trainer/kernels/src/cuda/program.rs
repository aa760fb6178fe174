//! Steps of several runs over one graph: their kernels, in order, and the arrays.

mod aggregate;
mod arrays;
mod backward;
mod batches;
mod dynamic;
mod forward;
mod optimizer;
mod plan;
mod product;
mod raw;
mod stack;
mod sums;
mod tiles;
mod update;
mod work;

use std::ops::Range;

use self::{
    arrays::{DeviceTargets, LayerState, Shared},
    optimizer::Updates,
    stack::Stack,
    work::{WholeGraph, Work},
};
pub use self::{
    batches::{Draws, RankSlices},
    optimizer::StepFactors,
    plan::{ProgramPlan, Settings, Targets, TrainingPlan, UpdateRule},
    stack::{AdditionPlan, Jumping, LinearPlan, StackLayer, StackPlan, TransitionPlan},
};
pub(super) use self::{
    raw::{Input, RawSettings, RawTargets},
    tiles::{TILE_COLUMNS, TILE_ROWS, TILE_THREADS},
};
use super::{
    args::{Args, args},
    error::GpuError,
    graph::{DeviceGraph, PlacedGraph},
    labeled::{Measured, Outputs},
    layer::{Layer, LayerPlan, N_THREADS},
    losses::Losses,
    machine::{Gpu, Lane, ModuleId, RecordingId},
    memory::Array,
    pairs::DrawnPairs,
    rows::DeviceRows,
};

/// Several runs on a machine.
#[derive(Debug)]
pub struct Program {
    gpu: Gpu,
    work: Work,
    plan: ProgramPlan,
    layers: Vec<LayerState>,
    stack: Option<Stack>,
    shared: Shared,
    settings: Array<RawSettings>,
    streams: Array<[u32; 12]>,
    updates: Updates,
    weights: Array<f32>,
    gradient: Array<f32>,
    first: Array<f32>,
    second: Array<f32>,
    /// By run: the node loss, then for each layer that of edges and that of negatives.
    losses: Array<f64>,
    recording: Option<RecordingId>,
}

impl Program {
    /// For a whole graph: makes room for everything, and compiles. All weights are zero.
    pub fn new(
        gpu: &Gpu,
        graph: DeviceGraph,
        rows: DeviceRows,
        plan: ProgramPlan,
        targets: &Targets,
    ) -> Result<Program, GpuError> {
        let (n_runs, placed) = (plan.runs.len(), graph.placed);
        assert_eq!(placed.n_sources, placed.n_destinations, "a whole graph");
        let targets = DeviceTargets::new(gpu, targets, placed.n_destinations, n_runs)?;
        let step = Array::zeros(gpu, 1, "the step")?;
        let mut drawn = Vec::new();
        if let Some(config) = plan.pairs {
            for _ in &plan.layers {
                let mut pairs = DrawnPairs::new(gpu)?;
                pairs.fit(&placed, config, 0, n_runs)?;
                drawn.push(pairs);
            }
        }
        let work = Work::Graph(Box::new(WholeGraph { graph, rows, targets, step, drawn }));
        let mut program = Program::of(gpu, work, plan)?;
        program.fit()?;
        (0..program.layers.len()).try_for_each(|layer| program.count_factors(layer, false))?;
        Ok(program)
    }

    fn of(gpu: &Gpu, work: Work, plan: ProgramPlan) -> Result<Program, GpuError> {
        let (n_runs, n_layers) = (plan.runs.len(), plan.layers.len());
        assert!(n_runs > 0 && n_layers > 0, "a program has runs and layers");
        let settings: Vec<RawSettings> = plan.runs.iter().map(|run| (*run).into()).collect();
        let numbers = |what| Array::zeros(gpu, n_runs * plan.n_weights, what);
        gpu.machine().compile(&plan.constants())?; // All layers at the same time.
        Ok(Program {
            work,
            layers: (0..n_layers).map(|layer| LayerState::new(gpu, layer, &plan)).collect::<Result<_, _>>()?,
            stack: Stack::new(gpu, &plan)?,
            shared: Shared::new(gpu, n_runs)?,
            settings: Array::of(gpu, &settings, "settings")?,
            streams: Array::zeros(gpu, n_runs * (n_layers + 1), "streams")?,
            updates: Updates::new(gpu, &plan)?,
            weights: numbers("weights")?,
            gradient: numbers("gradients of weights")?,
            first: numbers("moments")?,
            second: numbers("moments")?,
            losses: Array::zeros(gpu, n_runs * (1 + 2 * n_layers), "losses")?,
            recording: None,
            gpu: gpu.clone(),
            plan,
        })
    }

    /// Makes room for what is computed now.
    fn fit(&mut self) -> Result<(), GpuError> {
        let Program { work, layers, stack, shared, plan, .. } = self;
        for (layer, state) in layers.iter_mut().enumerate() {
            let pairs = work.pairs(layer);
            let draws_edges = layer == 0 || matches!(work, Work::Batches(_));
            state.fit(work.graph(layer), pairs, plan.runs.len(), draws_edges)?;
        }
        let graphs: Vec<&PlacedGraph> = (0..layers.len()).map(|layer| work.graph(layer)).collect();
        if let Some(stack) = stack {
            stack.fit(&graphs, layers, plan.runs.len())?;
        }
        let n_other_pieces = stack.as_ref().map_or(0, |stack| stack.n_pieces(&graphs));
        shared.fit(&graphs, layers, n_other_pieces, plan.runs.len())
    }

    /// Sets the state of all runs: weights and both moments, one run after the other, and steps so far.
    pub fn set_state(&self, step: u64, weights: &[f32], first: &[f32], second: &[f32]) -> Result<(), GpuError> {
        if let Work::Graph(whole) = &self.work {
            whole.step.write(&[step])?;
        }
        self.weights.write(weights)?;
        self.first.write(first)?;
        self.second.write(second)
    }

    /// The weights of one run.
    pub fn weights_of(&self, run: usize) -> Result<Vec<f32>, GpuError> {
        self.weights.read_part(self.numbers_of(run))
    }

    /// Sets the weights of one run.
    pub fn set_weights(&self, run: usize, weights: &[f32]) -> Result<(), GpuError> {
        self.weights.write_part(self.numbers_of(run).start, weights)
    }

    /// Last computed outputs of the last layer, of one run: nodes × classes.
    pub fn logits_of(&self, run: usize) -> Result<Vec<f32>, GpuError> {
        let Last { plan, layer, outputs, .. } = self.last();
        let n_own = outputs.len() / self.plan.runs.len();
        let (outputs, weights) = (outputs.read_part(run * n_own..(run + 1) * n_own)?, self.weights_of(run)?);
        let mut logits = Vec::with_capacity(self.work.whole().graph.placed.n_destinations * plan.features);
        for output in outputs.chunks_exact(layer.stride as usize) {
            for class in 0..plan.features {
                let heads = output.chunks_exact(layer.padded as usize);
                let sum: f32 = heads.map(|head| head[class]).sum();
                logits.push(sum / plan.heads as f32 + plan.bias.map_or(0.0, |bias| weights[bias + class]));
            }
        }
        Ok(logits)
    }

    /// Both moments of one run.
    pub fn moments_of(&self, run: usize) -> Result<(Vec<f32>, Vec<f32>), GpuError> {
        Ok((self.first.read_part(self.numbers_of(run))?, self.second.read_part(self.numbers_of(run))?))
    }

    /// Range of a run's weights among those of all runs.
    fn numbers_of(&self, run: usize) -> Range<usize> {
        run * self.plan.n_weights..(run + 1) * self.plan.n_weights
    }

    /// The gradients of the last step, of all runs.
    pub fn gradient(&self) -> Result<Vec<f32>, GpuError> {
        self.gradient.read()
    }

    /// One step of every run. Recorded once, where the machine can, and played from then on.
    pub fn step(&mut self) -> Result<(), GpuError> {
        if let Some(recording) = self.recording {
            return self.gpu.machine().play(recording);
        }
        if !self.gpu.machine().begin_recording()? {
            return self.step_unrecorded();
        }
        let recorded = self.differentiate().and_then(|()| self.update());
        let recording = self.gpu.machine().end_recording()?;
        recorded?;
        self.recording = Some(recording);
        self.gpu.machine().play(recording)
    }

    /// The same, kernel by kernel.
    pub fn step_unrecorded(&mut self) -> Result<(), GpuError> {
        self.differentiate()?;
        self.update()
    }

    /// The losses of the last step, by run.
    pub fn losses(&self) -> Result<Vec<Losses>, GpuError> {
        let n_layers = self.layers.len();
        let drawn = &self.work.whole().drawn;
        let n_pairs: Vec<Vec<u32>> = drawn.iter().map(|pairs| pairs.n_pairs.read()).collect::<Result<_, _>>()?;
        let losses = self.losses.read()?;
        let n_left_out = |run: usize| {
            let left_out = |(pairs, n_pairs): (&DrawnPairs, &Vec<u32>)| u64::from(pairs.most_pairs() - n_pairs[run]);
            drawn.iter().zip(&n_pairs).map(left_out).sum()
        };
        let of_run = |(run, losses): (usize, &[f64])| Losses {
            node: losses[0],
            n_left_out: n_left_out(run),
            edges: n_pairs
                .iter()
                .enumerate()
                .map(|(layer, n_pairs)| (losses[1 + 2 * layer] + losses[2 + 2 * layer]) / f64::from(n_pairs[run]))
                .collect(),
        };
        Ok(losses.chunks_exact(1 + 2 * n_layers).enumerate().map(of_run).collect())
    }

    /// Computes the outputs of all layers without dropout, for all runs.
    pub fn evaluate(&self) -> Result<(), GpuError> {
        self.forward_all(false)
    }

    /// Everything from the features to the logits.
    fn forward_all(&self, is_training: bool) -> Result<(), GpuError> {
        self.enter(is_training)?;
        if self.plan.layers[0].left_out.dropped && matches!(self.work, Work::Graph(_)) {
            (0..self.layers.len()).try_for_each(|layer| self.count_factors(layer, is_training))?;
        }
        for layer in 0..self.layers.len() {
            self.forward(layer, is_training)?;
            self.follow(layer, is_training)?;
        }
        self.leave()
    }

    /// The layer whose outputs are logits.
    fn last(&self) -> Last<'_> {
        if let Some((stack, output)) = self.stack.as_ref().and_then(|stack| Some((stack, stack.output.as_ref()?))) {
            let (outputs, gradients) = (&stack.logits, &stack.logit_gradients);
            return Last { plan: &output.plan, layer: output.layer, module: output.module, outputs, gradients };
        }
        let LayerState { plan, layer, module, outputs, gradients, .. } =
            self.layers.last().expect("a program has layers");
        let (stack, last) = (self.stack.as_ref(), self.layers.len() - 1);
        let outputs = stack.and_then(|stack| stack.completed(last)).unwrap_or(outputs);
        let second = stack.and_then(|stack| stack.second(last));
        let (plan, layer, module) =
            second.map_or((plan, *layer, *module), |second| (&second.plan, second.layer, second.module));
        Last { plan, layer, module, outputs, gradients }
    }

    /// Gradients of a graph layer's outputs. Hidden layers of one shape share an array: the gradients of a layer are used before those of
    /// the layer before it are computed.
    fn gradients_of(&self, layer: usize) -> &Array<f32> {
        let own = &self.layers[layer];
        if own.shares_gradients { &self.layers[0].gradients } else { &own.gradients }
    }

    /// Streams of a run: one for each layer, and one for what is after the last.
    fn n_streams(&self) -> u32 {
        self.layers.len() as u32 + 1
    }

    /// Evaluates every run on the validation and test nodes.
    pub fn measure(&self) -> Result<Vec<[Measured; 2]>, GpuError> {
        self.evaluate()?;
        let Last { layer, module, outputs, .. } = self.last();
        let WholeGraph { graph, targets, .. } = self.work.whole();
        let outputs = Outputs {
            layer,
            module,
            weights: self.weights.at(),
            outputs: outputs.at(),
            first: 0,
            n_nodes: graph.placed.n_destinations as u32,
        };
        let n_runs = self.plan.runs.len();
        let mut found = vec![[Measured::default(); 2]; n_runs];
        for (place, set) in targets.sets.iter().enumerate() {
            set.begin()?;
            set.measure(&self.gpu, n_runs as u32, &outputs)?;
            for (found, measured) in found.iter_mut().zip(set.finish(&self.sums())?) {
                found[place] = measured;
            }
        }
        Ok(found)
    }

    /// Forward, losses and backward of every run.
    fn differentiate(&self) -> Result<(), GpuError> {
        let (n_runs, n_streams) = (self.plan.runs.len() as u32, self.n_streams());
        let (rates, factors) = (self.updates.rates(), self.updates.factors());
        let mut args =
            args![self.work.step(), self.settings.at(), rates, n_runs, n_streams, self.streams.at(), factors];
        let n = n_runs * n_streams;
        self.gpu.launch(
            self.layers[0].module,
            "kith_begin_step",
            [n.div_ceil(N_THREADS), 1, 1],
            N_THREADS,
            &mut args,
        )?;
        self.spread_rows()?;
        for layer in 0..self.layers.len() {
            self.draw(layer)?;
        }
        if let Work::Batches(batches) = &self.work {
            (0..self.layers.len()).try_for_each(|layer| self.count_factors(layer, true))?;
            batches.batch().is_drawn.record(Lane::Compute)?;
        }
        self.forward_all(true)?;
        self.node_loss()?;
        self.leave_back()?;
        for layer in (0..self.layers.len()).rev() {
            self.backward(layer)?;
            self.follow_back(layer)?;
        }
        Ok(())
    }

    fn n_losses(&self) -> usize {
        1 + 2 * self.layers.len()
    }

    /// Starts a kernel for all runs.
    fn launch(
        &self,
        module: ModuleId,
        kernel: &'static str,
        n_blocks: u32,
        n_threads: u32,
        args: &mut Args,
    ) -> Result<(), GpuError> {
        self.gpu.launch(module, kernel, [n_blocks, self.plan.runs.len() as u32, 1], n_threads, args)
    }
}

/// The layer whose outputs are logits.
struct Last<'a> {
    plan: &'a LayerPlan,
    layer: Layer,
    module: ModuleId,
    outputs: &'a Array<f32>,
    gradients: &'a Array<f32>,
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(recording) = self.recording {
            self.gpu.machine().forget(recording);
        }
    }
}
