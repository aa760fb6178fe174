//! Plan of what stands between and around the graph layers of a model.

use kith_kernels::cuda::{AdditionPlan, Jumping, LinearPlan, StackLayer, StackPlan, TransitionPlan};
use kith_run::config;

use crate::model::{Model, activation_of, norm_kind};

/// The plan of a model; `None` for plain layers.
pub(super) fn plan(model: &Model) -> Option<StackPlan> {
    let own = model.config();
    if own.is_plain() {
        return None;
    }
    let place = |name: &str| model.weights().place(name);
    let linear = |name: &str| {
        let shape = model.weights().get(&format!("{name}.weight"))?.size();
        Some(LinearPlan {
            dim: shape[0] as usize,
            width: shape[1] as usize,
            weight: place(&format!("{name}.weight"))?,
            bias: place(&format!("{name}.bias")),
        })
    };
    let layer = |layer: usize| StackLayer {
        addition: AdditionPlan {
            weights: ["roots", "residuals"]
                .iter()
                .filter_map(|name| place(&format!("{name}.{layer}.weight")))
                .collect(),
            bias: place(&format!("residuals.{layer}.bias")),
            adds_input: model.adds_input(layer),
        },
        second: linear(&format!("layers.{layer}.second")),
        transition: own.is_hidden(layer).then(|| TransitionPlan {
            norm: norm_kind(own.norm()),
            affine: place(&format!("norms.{layer}.weight")),
            mean_scale: place(&format!("norms.{layer}.mean_scale")),
            running: place(&format!("norms.{layer}.mean")),
            activation: activation_of(own.activation()),
            slope: place(&format!("activations.{layer}.slope")),
        }),
    };
    Some(StackPlan {
        input: linear("input"),
        layers: (0..own.n_layers).map(layer).collect(),
        output: linear("output"),
        jumping: match own.jumping() {
            config::Jumping::None => Jumping::None,
            config::Jumping::Sum => Jumping::Sum,
            config::Jumping::Max => Jumping::Max,
            config::Jumping::Concat => Jumping::Concat,
        },
    })
}
