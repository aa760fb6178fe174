//! Plan of a program: layers, pairs, runs and labels.

use std::ops::Range;

use kith_block::PairConfig;

use super::stack::StackPlan;
use crate::cuda::{
    compile::Constants,
    labeled::{LabelValues, Regression},
    layer::LayerPlan,
};

/// Numbers by which runs of one program differ.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settings {
    /// Seed of everything that is drawn.
    pub run_key: u64,
    /// Of the optimizer, if it is constant.
    pub learning_rate: f64,
    /// λ_2.
    pub weight_decay: f64,
    /// λ_E.
    pub edge_weight: f64,
    /// Probability of dropout of hidden features.
    pub dropout: f64,
    /// Probability of dropout of the features of the graph.
    pub input_dropout: f64,
    /// Probability of dropout of attention weights.
    pub attention_dropout: f64,
    /// Probability of dropout of edges.
    pub edge_dropout: f64,
    /// The optimizer.
    pub rule: UpdateRule,
    /// Of gradient descent.
    pub momentum: f64,
    /// Largest norm of a gradient, if there is one.
    pub clip_norm: Option<f64>,
    /// Decay of the moving average of the weights, if there is one.
    pub ema: Option<f64>,
}

/// Optimizers; RULE_… in step.cu.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateRule {
    /// Adam; the decay is added to the gradient.
    #[default]
    Adam,
    /// Adam; the decay is applied to the weights.
    Adamw,
    /// Gradient descent, with momentum.
    Descent,
    /// The same with Nesterov's momentum.
    Nesterov,
}

/// Layers, pairs and runs of a program.
#[derive(Clone, Debug)]
pub struct ProgramPlan {
    /// The layers, from the input on; only a last layer that gives logits averages heads.
    pub layers: Vec<LayerPlan>,
    /// Layers and transitions around them; `None` for ELU and dropout only.
    pub stack: Option<StackPlan>,
    /// Numbers of one run's weights.
    pub n_weights: usize,
    /// Those that are trained; running statistics follow.
    pub n_trained: usize,
    /// Sampling of the edge loss's pairs; `None` without an edge loss.
    pub pairs: Option<PairConfig>,
    /// Settings of each run.
    pub runs: Vec<Settings>,
    /// Training of all runs.
    pub training: TrainingPlan,
}

/// Training that all runs of a program share.
#[derive(Clone, Debug, Default)]
pub struct TrainingPlan {
    /// Places of weights that do not decay.
    pub not_decayed: Vec<Range<usize>>,
    /// Weights of classes in the loss; `None` if all are equal.
    pub class_weights: Option<Vec<f32>>,
    /// Share of a node's label that is spread over all classes.
    pub smoothing: f32,
    /// Loss of numbers to predict.
    pub regression: Regression,
    /// True if the learning rate changes from step to step.
    pub is_scheduled: bool,
}

impl ProgramPlan {
    /// Classes of the last layer's outputs.
    pub fn n_classes(&self) -> usize {
        match self.stack.as_ref().and_then(|stack| stack.output) {
            Some(output) => output.width,
            None => self.layers.last().map_or(0, |layer| layer.features),
        }
    }

    /// Constants of the kernels of all layers: the graph layers, then residuals, then linear layers.
    pub fn constants(&self) -> Vec<Constants> {
        let mut all: Vec<Constants> = self.layers.iter().map(Constants::of_plan).collect();
        let linear = |width: usize| Constants::of_plan(&LayerPlan::linear(1, width, 0, None));
        if let Some(stack) = &self.stack {
            let additions = stack.layers.iter().zip(&self.layers).filter(|(own, _)| !own.addition.weights.is_empty());
            all.extend(additions.map(|(_, graph)| linear(graph.n_outputs())));
            let seconds = stack.layers.iter().filter_map(|own| own.second.as_ref());
            all.extend(stack.input.iter().chain(&stack.output).chain(seconds).map(|own| linear(own.width)));
        }
        all
    }

    /// Width of the features of the graph.
    pub fn dim(&self) -> usize {
        match self.stack.as_ref().and_then(|stack| stack.input) {
            Some(input) => input.dim,
            None => self.layers[0].dim,
        }
    }
}

/// Labels and splits of nodes, by position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Targets {
    /// Classes of nodes; with `values`, anything.
    pub classes: Vec<i32>,
    /// Labels that are not one class per node.
    pub values: LabelValues,
    /// Number of classes.
    pub n_classes: usize,
    /// Training nodes.
    pub train: Vec<u32>,
    /// Validation nodes.
    pub valid: Vec<u32>,
    /// Test nodes.
    pub test: Vec<u32>,
}
