//! Models on a GPU: kernels in CUDA C++, compiled for the device found, and the order of their launches.
//!
//! A [`Program`] holds several runs over one graph: runs that differ only in numbers (see [`Settings`]) share every
//! launch. Nothing here needs libtorch. All sums have a fixed order: the same device gives the same bits.

mod arena;
mod args;
mod batch;
mod by_source;
mod cache;
mod compile;
mod driver;
mod error;
mod features;
mod graph;
mod graph_lists;
mod inference;
mod labeled;
mod layer;
mod losses;
mod machine;
mod memory;
mod nvrtc;
mod pairs;
mod pinned;
mod program;
mod rows;
mod sampled;
mod sampler;
mod sort;
mod sum;

pub use self::{
    batch::{BatchParts, BatchRows, DeviceBatch, SampledParts},
    cache::{Warmed, warm},
    compile::Constants,
    driver::open,
    error::GpuError,
    features::{FeatureType, Features},
    graph::DeviceGraph,
    graph_lists::GraphLists,
    inference::{EvaluationSets, Inference},
    labeled::{LabelValues, LabeledNodes, Measured, Regression},
    layer::{LayerKind, LayerPlan, LeftOut, TargetPlan},
    losses::Losses,
    machine::{EventId, Gpu, Lane, Machine, ModuleId, RecordingId},
    memory::DeviceNumbers,
    nvrtc::compiler_version,
    pairs::HostPairs,
    program::{
        AdditionPlan, Draws, Jumping, LinearPlan, Program, ProgramPlan, RankSlices, Settings, StackLayer, StackPlan,
        StepFactors, Targets, TrainingPlan, TransitionPlan, UpdateRule,
    },
    rows::DeviceRows,
    sampled::{HostBlocks, SampledHop, SampledOnDevice},
    sampler::{GraphSampler, weighted_keys},
};
