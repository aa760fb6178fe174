//! The optimizer, and the course of the learning rate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choices::{NoDecay, OptimizerName, ScheduleName};
use crate::choice::{Named, named, named_option};

/// The optimizer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OptimizerConfig {
    /// the optimizer
    #[serde(with = "named")]
    #[schemars(with = "Named<OptimizerName>")]
    pub name: OptimizerName,
    /// learning rate; with a schedule, the largest one (`lr` is understood too)
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub learning_rate: f64,
    /// weight decay (λ_2): added to the gradient (adam, sgd), or applied to the weights themselves (adamw)
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// weights that do not decay. biases: biases, weights of norms and slopes of activations (default: none)
    #[serde(skip_serializing_if = "Option::is_none", with = "named_option")]
    #[schemars(with = "Option<Named<NoDecay>>")]
    pub no_decay: Option<NoDecay>,
    /// momentum (sgd; default: 0)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub momentum: Option<f64>,
    /// true: Nesterov's momentum (sgd; default: false)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nesterov: Option<bool>,
    /// largest norm of the gradient of a step; a longer gradient is scaled down to it (default: no limit)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub clip_norm: Option<f64>,
    /// decay of the exponential moving average (EMA) of the weights: after each step, average = decay · average + (1 − decay) · weights.
    /// Evaluation, the best epoch, `kith predict` and `kith export` use the average (default: none)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0, "exclusiveMaximum" = 1.0))]
    pub ema: Option<f64>,
}

impl Default for OptimizerConfig {
    fn default() -> OptimizerConfig {
        OptimizerConfig {
            name: OptimizerName::Adam,
            learning_rate: 0.005,
            weight_decay: 0.0,
            no_decay: None,
            momentum: None,
            nesterov: None,
            clip_norm: None,
            ema: None,
        }
    }
}

/// The course of the learning rate. Without this section it is constant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ScheduleConfig {
    /// course after the warmup. cosine, linear: down to `min_factor` at the last epoch; step: times `factor` every `every` epochs;
    /// plateau: times `factor` after `patience` epochs without a better validation score
    #[serde(with = "named")]
    #[schemars(with = "Named<ScheduleName>")]
    pub name: ScheduleName,
    /// epochs in which the learning rate rises from 0, in a straight line
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub warmup: u64,
    /// smallest learning rate, as a fraction of `optimizer.learning_rate` (cosine, linear, plateau; default: 0)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_factor: Option<f64>,
    /// factor of one reduction (step, plateau; default: 0.5)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1.0))]
    pub factor: Option<f64>,
    /// epochs between reductions (step, which requires it)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub every: Option<u64>,
    /// epochs without a better validation score before a reduction (plateau; default: 10)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub patience: Option<u64>,
}

impl Default for ScheduleConfig {
    fn default() -> ScheduleConfig {
        ScheduleConfig {
            name: ScheduleName::Constant,
            warmup: 0,
            min_factor: None,
            factor: None,
            every: None,
            patience: None,
        }
    }
}
