//! Arguments of kernels, in the memory layout of the kernels.

use bytemuck::{Pod, Zeroable};

use super::plan::Settings;
use crate::{cuda::memory::Address, dropout::Dropout};

/// As `struct Settings` in layer.cuh.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct RawSettings {
    run_key: u64,
    learning_rate: f64,
    edge_weight: f64,
    clip_norm: f64,
    weight_decay: f32,
    threshold: u32,
    scale: f32,
    rule: u32,
    momentum: f32,
    input_threshold: u32,
    input_scale: f32,
    attention_threshold: u32,
    attention_scale: f32,
    edge_threshold: u32,
}

impl From<Settings> for RawSettings {
    fn from(settings: Settings) -> RawSettings {
        let [dropout, of_input, of_attention, of_edges] =
            [settings.dropout, settings.input_dropout, settings.attention_dropout, settings.edge_dropout]
                .map(Dropout::new);
        RawSettings {
            run_key: settings.run_key,
            learning_rate: settings.learning_rate,
            edge_weight: settings.edge_weight,
            weight_decay: settings.weight_decay as f32,
            threshold: dropout.threshold(),
            scale: dropout.scale(),
            rule: settings.rule as u32,
            momentum: settings.momentum as f32,
            clip_norm: settings.clip_norm.unwrap_or(0.0),
            input_threshold: of_input.threshold(),
            input_scale: of_input.scale(),
            attention_threshold: of_attention.threshold(),
            attention_scale: of_attention.scale(),
            edge_threshold: of_edges.threshold(),
        }
    }
}

/// As `struct Input` in multiply.cu.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct Input {
    pub(in crate::cuda) n_rows: u32,
    pub(in crate::cuda) dim: u32,
    pub(in crate::cuda) stored: Address,
    pub(in crate::cuda) run_stride: u64,
    pub(in crate::cuda) hidden: Address,
    pub(in crate::cuda) hidden_features: u32,
    pub(in crate::cuda) hidden_padded: u32,
    pub(in crate::cuda) hidden_stride: u32,
    pub(in crate::cuda) hidden_bias: u32,
    pub(in crate::cuda) ids: Address,
}

/// As `struct Targets` in layer.cuh.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct RawTargets {
    pub(super) rows: Address,
    pub(super) gradients: Address,
    pub(super) values: Address,
    pub(super) slot_values: Address,
}

impl RawTargets {
    /// Without gradients.
    pub(in crate::cuda) fn of_rows(rows: Address) -> RawTargets {
        RawTargets { rows, gradients: Address::NONE, values: Address::NONE, slot_values: Address::NONE }
    }
}
