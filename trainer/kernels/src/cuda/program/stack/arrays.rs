//! Arrays of everything around the graph layers, each with all runs.

use super::plan::{Jumping, LinearPlan, RawTransition, StackPlan, TransitionPlan};
use crate::{
    cuda::{
        compile::Constants,
        error::GpuError,
        graph::PlacedGraph,
        layer::{Layer, LayerKind, LayerPlan},
        machine::{Gpu, ModuleId},
        memory::{Address, Array},
        program::{
            ProgramPlan,
            arrays::LayerState,
            tiles::{pieces_of, sparse_pieces, weight_tiles},
        },
    },
    transition::Activation,
};

/// A product with weights: a linear layer, or what is added to the output of a graph layer.
#[derive(Debug)]
pub(in crate::cuda::program) struct LinearState {
    pub(in crate::cuda::program) plan: LayerPlan,
    pub(in crate::cuda::program) layer: Layer,
    pub(in crate::cuda::program) module: ModuleId,
    /// Starts of its weights among all; the sum of two is in `sum`.
    pub(super) places: Vec<usize>,
    pub(super) sum: Option<Array<f32>>,
}

impl LinearState {
    pub(super) fn new(
        gpu: &Gpu,
        plan: &ProgramPlan,
        (dim, width): (usize, usize),
        places: &[usize],
        bias: Option<usize>,
    ) -> Result<LinearState, GpuError> {
        let own = LayerPlan::linear(dim, width, places[0], bias);
        let mut layer = own.layer(0, plan.n_weights);
        let sum = match places.len() {
            1 => None,
            _ => {
                (layer.weight, layer.n_weights) = (0, (dim * width) as u32);
                Some(Array::zeros(gpu, plan.runs.len() * dim * width, "sums of weights")?)
            }
        };
        let module = gpu.machine().compile(&[Constants::of(&layer)])?[0];
        Ok(LinearState { plan: own, layer, module, places: places.to_vec(), sum })
    }

    /// Numbers of the pieces of its weights' gradient, for `n_rows` rows.
    pub(super) fn n_pieces(&self, n_rows: usize) -> usize {
        let LayerPlan { dim, features, .. } = self.plan;
        let (_, piece_rows) = weight_tiles(&self.layer, n_rows as u32);
        let n_pieces = n_rows.div_ceil(piece_rows as usize).max(sparse_pieces(dim as u32) as usize);
        (n_pieces * dim * features).max(pieces_of(LayerKind::Own, n_rows as u32).0 as usize * features)
    }
}

/// The second layer of a perceptron, in all runs.
#[derive(Debug)]
pub(in crate::cuda::program) struct SecondState {
    pub(in crate::cuda::program) linear: LinearState,
    /// The activation before it.
    pub(super) transition: RawTransition,
    pub(super) rows: Array<f32>,
    pub(in crate::cuda::program) outputs: Array<f32>,
    /// Of the sums before it.
    pub(super) gradients: Array<f32>,
}

impl SecondState {
    /// Without room for anything yet.
    fn new(gpu: &Gpu, plan: &ProgramPlan, own: &LinearPlan) -> Result<SecondState, GpuError> {
        const WHAT: &str = "rows of a perceptron";
        let relu = TransitionPlan { activation: Activation::Relu, ..TransitionPlan::NONE };
        Ok(SecondState {
            linear: LinearState::new(gpu, plan, (own.dim, own.width), &[own.weight], own.bias)?,
            transition: RawTransition::new(&relu, own.dim),
            rows: Array::zeros(gpu, 0, WHAT)?,
            outputs: Array::zeros(gpu, 0, WHAT)?,
            gradients: Array::zeros(gpu, 0, WHAT)?,
        })
    }

    /// Makes room for a graph.
    fn fit(&mut self, graph: &PlacedGraph, n_runs: usize) -> Result<(), GpuError> {
        let n_rows = n_runs * graph.n_destinations;
        self.rows.fit(n_rows * self.linear.plan.dim)?;
        self.outputs.fit(n_rows * self.linear.layer.stride as usize)?;
        self.gradients.fit(n_rows * self.linear.layer.stride as usize).map(drop)
    }
}

/// Everything around the graph layers.
#[derive(Debug)]
pub(in crate::cuda::program) struct Stack {
    pub(super) plan: StackPlan,
    pub(super) input: Option<LinearState>,
    /// Output of the input linear layer, and its gradient.
    pub(super) entered: [Array<f32>; 2],
    /// Output of the input linear layer after dropout.
    pub(in crate::cuda::program) entered_rows: Array<f32>,
    pub(super) layers: Vec<StackLayerState>,
    pub(in crate::cuda::program) output: Option<LinearState>,
    pub(in crate::cuda::program) logits: Array<f32>,
    pub(in crate::cuda::program) logit_gradients: Array<f32>,
    /// Input of the output layer with jumping, and its gradient.
    pub(super) carried: Array<f32>,
    pub(super) carried_gradients: Array<f32>,
    /// Residual product of the current layer, or its gradient.
    pub(super) products: Array<f32>,
    /// Gradient of the current layer's rows.
    pub(super) row_gradients: Array<f32>,
    pub(super) records: Array<[f32; 2]>,
    pub(super) slopes: Array<f32>,
    pub(super) slope_pieces: Array<f32>,
    pub(super) has_dropout: bool,
}

/// Perceptron, residual and transition after a graph layer.
#[derive(Debug)]
pub(in crate::cuda::program) struct StackLayerState {
    pub(in crate::cuda::program) second: Option<SecondState>,
    pub(super) addition: Option<LinearState>,
    /// Transition after the layer; without norm and activation if the layer gives logits.
    pub(super) transition: RawTransition,
    /// Outputs with everything that is added to them, if the layer's own must stay as they are.
    pub(super) completed: Option<Array<f32>>,
    /// After the transition, plain.
    pub(super) rows: Array<f32>,
    pub(super) statistics: Array<f32>,
}

impl Stack {
    pub(in crate::cuda::program) fn new(gpu: &Gpu, plan: &ProgramPlan) -> Result<Option<Stack>, GpuError> {
        const WHAT: &str = "rows between layers";
        let Some(stack) = &plan.stack else { return Ok(None) };
        let numbers = || Array::zeros(gpu, 0, WHAT);
        let layer = |(own, graph): (&super::plan::StackLayer, &LayerPlan)| {
            let width = graph.n_outputs();
            let addition = match own.addition.weights.is_empty() {
                true => None,
                false => Some(LinearState::new(gpu, plan, (graph.dim, width), &own.addition.weights, None)?),
            };
            let transition = own.transition.as_ref();
            let adds_bias = transition.is_some() && graph.bias.is_some();
            let is_completed = addition.is_some() || own.addition.adds_input || adds_bias;
            let is_kept = is_completed && graph.kind.attention().is_some();
            Ok(StackLayerState {
                second: own.second.as_ref().map(|second| SecondState::new(gpu, plan, second)).transpose()?,
                addition,
                transition: transition.map_or(RawTransition::none(width), |own| RawTransition::new(own, width)),
                completed: is_kept.then(numbers).transpose()?,
                rows: numbers()?,
                statistics: Array::zeros(gpu, plan.runs.len() * 3 * width, WHAT)?,
            })
        };
        let linear = |own: &LinearPlan| LinearState::new(gpu, plan, (own.dim, own.width), &[own.weight], own.bias);
        Ok(Some(Stack {
            input: stack.input.as_ref().map(linear).transpose()?,
            entered: [numbers()?, numbers()?],
            entered_rows: numbers()?,
            layers: stack.layers.iter().zip(&plan.layers).map(layer).collect::<Result<_, GpuError>>()?,
            output: stack.output.as_ref().map(linear).transpose()?,
            logits: numbers()?,
            logit_gradients: numbers()?,
            carried: numbers()?,
            carried_gradients: numbers()?,
            products: numbers()?,
            row_gradients: numbers()?,
            records: Array::zeros(gpu, 0, WHAT)?,
            slopes: numbers()?,
            slope_pieces: numbers()?,
            has_dropout: plan.runs.iter().any(|run| run.dropout > 0.0),
            plan: stack.clone(),
        }))
    }

    /// Makes room for the graphs of all layers.
    pub(in crate::cuda::program) fn fit(
        &mut self,
        graphs: &[&PlacedGraph],
        layers: &[LayerState],
        n_runs: usize,
    ) -> Result<(), GpuError> {
        let n_last = graphs[graphs.len() - 1].n_destinations;
        if let Some(input) = &self.input {
            let n_rows = n_runs * graphs[0].n_sources;
            for entered in &mut self.entered {
                entered.fit(n_rows * input.layer.stride as usize)?;
            }
            self.entered_rows.fit(n_rows * input.plan.features)?;
        }
        let has_jumping = self.plan.jumping != Jumping::None;
        let (mut n_products, mut n_gradients, mut most_rows) = (0, 0, 0);
        for ((own, graph), state) in self.layers.iter_mut().zip(graphs).zip(layers) {
            let width = own.transition.width as usize;
            if own.addition.is_some() {
                n_products = n_products.max(n_runs * graph.n_destinations * width.next_multiple_of(4));
            }
            if let Some(completed) = &mut own.completed {
                completed.fit(n_runs * graph.n_destinations * state.layer.stride as usize)?;
            }
            if let Some(second) = &mut own.second {
                second.fit(graph, n_runs)?;
            }
            own.rows.fit(n_runs * graph.n_destinations * width)?;
            n_gradients = n_gradients.max(n_runs * graph.n_sources * state.plan.dim);
            n_gradients = n_gradients.max(n_runs * graph.n_destinations * width);
            most_rows = most_rows.max(n_runs * graph.n_destinations);
        }
        self.products.fit(n_products)?;
        self.row_gradients.fit(n_gradients)?;
        self.records.fit(most_rows)?;
        self.slopes.fit(most_rows)?;
        self.slope_pieces.fit(most_rows)?;
        if let Some(output) = &self.output {
            self.logits.fit(n_runs * n_last * output.layer.stride as usize)?;
            self.logit_gradients.fit(n_runs * n_last * output.layer.stride as usize)?;
            if has_jumping {
                self.carried.fit(n_runs * n_last * output.plan.dim)?;
                self.carried_gradients.fit(n_runs * n_last * output.plan.dim)?;
            }
        }
        Ok(())
    }

    /// Numbers of the pieces of sums over nodes.
    pub(in crate::cuda::program) fn n_pieces(&self, graphs: &[&PlacedGraph]) -> usize {
        let of_layer = |(own, graph): (&StackLayerState, &&PlacedGraph)| {
            let of_nodes = pieces_of(LayerKind::Own, graph.n_destinations as u32).0 as usize;
            let of_addition = own.addition.as_ref().map_or(0, |addition| addition.n_pieces(graph.n_destinations));
            let of_second = own.second.as_ref().map_or(0, |second| second.linear.n_pieces(graph.n_destinations));
            of_addition.max(of_second).max(of_nodes * 2 * own.transition.width as usize)
        };
        let of_layers = self.layers.iter().zip(graphs).map(of_layer).max().unwrap_or(0);
        let of_input = self.input.as_ref().map_or(0, |input| input.n_pieces(graphs[0].n_sources));
        let last = graphs[graphs.len() - 1];
        let of_output = self.output.as_ref().map_or(0, |output| output.n_pieces(last.n_destinations));
        of_layers.max(of_input).max(of_output)
    }

    /// Outputs of a graph layer with everything that is added to them, if they are not in their own place.
    pub(in crate::cuda::program) fn completed(&self, layer: usize) -> Option<&Array<f32>> {
        let own = &self.layers[layer];
        own.completed.as_ref().or(own.second.as_ref().map(|second| &second.outputs))
    }

    /// The second layer of a graph layer's perceptron.
    pub(in crate::cuda::program) fn second(&self, layer: usize) -> Option<&LinearState> {
        self.layers[layer].second.as_ref().map(|second| &second.linear)
    }

    /// Place of the bias of a layer's residual.
    pub(in crate::cuda::program) fn residual_bias(&self, layer: usize) -> Option<usize> {
        self.plan.layers[layer].addition.bias
    }

    /// Rows that a graph layer reads; `None` for the features of the graph.
    pub(in crate::cuda::program) fn rows_before(&self, layer: usize) -> Option<Address> {
        match (layer, &self.input) {
            (0, None) => None,
            (0, Some(_)) => Some(self.entered_rows.at()),
            _ => Some(self.layers[layer - 1].rows.at()),
        }
    }
}
