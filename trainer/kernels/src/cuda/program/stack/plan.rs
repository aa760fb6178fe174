//! Plan of everything around the graph layers.

use bytemuck::{Pod, Zeroable};

use crate::{
    cuda::layer::NO_WEIGHT,
    transition::{Activation, NormKind},
};

/// Layers and transitions around the graph layers of a model; without a plan, ELU and dropout only.
#[derive(Clone, Debug, PartialEq)]
pub struct StackPlan {
    /// Linear layer before the first graph layer.
    pub input: Option<LinearPlan>,
    /// By graph layer.
    pub layers: Vec<StackLayer>,
    /// Linear layer after the last graph layer.
    pub output: Option<LinearPlan>,
    /// Input of the linear layer after the last graph layer.
    pub jumping: Jumping,
}

/// Residual and transition after a graph layer.
#[derive(Clone, Debug, PartialEq)]
pub struct StackLayer {
    /// Residual and root weight.
    pub addition: AdditionPlan,
    /// Second layer of a perceptron, after relu; the graph layer is the first.
    pub second: Option<LinearPlan>,
    /// Norm and activation; `None` for a layer whose outputs are logits.
    pub transition: Option<TransitionPlan>,
}

/// A linear layer, and where its weights stand among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearPlan {
    /// Width of what it reads.
    pub dim: usize,
    /// Width of its output.
    pub width: usize,
    /// Start of the weights: dim × width.
    pub weight: usize,
    /// Start of the bias, if there is one.
    pub bias: Option<usize>,
}

/// Additions to the output of a graph layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdditionPlan {
    /// Starts of weights, dim × width each, whose sum multiplies the layer's input; two at most.
    pub weights: Vec<usize>,
    /// Start of the bias of that product.
    pub bias: Option<usize>,
    /// True if the layer's input itself is added.
    pub adds_input: bool,
}

/// Norm and activation of a hidden layer, and where their weights stand among all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransitionPlan {
    /// The norm.
    pub norm: NormKind,
    /// Start of γ, which β follows.
    pub affine: Option<usize>,
    /// Start of α.
    pub mean_scale: Option<usize>,
    /// Start of the running mean, which the running variance follows.
    pub running: Option<usize>,
    /// The activation.
    pub activation: Activation,
    /// Place of the learned slope.
    pub slope: Option<usize>,
}

impl TransitionPlan {
    /// Without norm and activation.
    pub(super) const NONE: TransitionPlan = TransitionPlan {
        norm: NormKind::None,
        affine: None,
        mean_scale: None,
        running: None,
        activation: Activation::Identity,
        slope: None,
    };
}

/// Inputs of the linear layer after the last graph layer; JUMP_… in transition.cu.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jumping {
    /// The output of the last graph layer.
    #[default]
    None,
    /// The sum of all outputs.
    Sum,
    /// The largest of each feature.
    Max,
    /// All outputs, concatenated.
    Concat,
}

/// As `struct Transition` in transition.cu.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct RawTransition {
    norm: u32,
    activation: u32,
    leak: f32,
    pub(super) width: u32,
    pub(super) lanes: u32,
    affine: u32,
    mean_scale: u32,
    slope: u32,
    running: u32,
}

/// Columns that a thread has at a time.
const N_COLUMNS: usize = 8;

impl RawTransition {
    /// Without norm and activation.
    pub(super) fn none(width: usize) -> RawTransition {
        RawTransition {
            norm: 0,
            activation: 0,
            leak: 0.0,
            width: width as u32,
            lanes: width.div_ceil(N_COLUMNS).next_power_of_two().min(32) as u32,
            affine: NO_WEIGHT,
            mean_scale: NO_WEIGHT,
            slope: NO_WEIGHT,
            running: NO_WEIGHT,
        }
    }

    pub(super) fn new(plan: &TransitionPlan, width: usize) -> RawTransition {
        let place = |place: Option<usize>| place.map_or(NO_WEIGHT, |place| place as u32);
        let (activation, leak) = match plan.activation {
            Activation::Identity => (0, 0.0),
            Activation::Elu => (1, 0.0),
            Activation::Gelu => (2, 0.0),
            Activation::Relu => (3, 0.0),
            Activation::LeakyRelu(slope) => (3, slope),
        };
        RawTransition {
            norm: plan.norm as u32,
            activation,
            leak,
            affine: place(plan.affine),
            mean_scale: place(plan.mean_scale),
            slope: place(plan.slope),
            running: place(plan.running),
            ..RawTransition::none(width)
        }
    }
}
