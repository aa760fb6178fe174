//! Models on a GPU: kernels in CUDA C++, compiled for the device found, and the order of their launches.
//!
//! A [`Program`] holds several runs over one graph: runs that differ only in numbers (see [`Settings`]) share every
//! launch. Nothing here needs libtorch. All sums have a fixed order: the same device gives the same bits.

mod arena;
mod args;
mod batch;
mod by_source;
mod compile;
mod driver;
mod error;
mod graph;
mod inference;
mod labeled;
mod layer;
mod machine;
mod memory;
mod nvrtc;
mod pairs;
mod program;
mod rows;
mod sampled;
mod sampler;
mod sort;
mod sum;

pub use self::{
    batch::{BatchParts, DeviceBatch, SampledParts},
    compile::Constants,
    driver::open,
    error::GpuError,
    graph::DeviceGraph,
    inference::{EvaluationSets, Inference},
    labeled::{LabeledNodes, Measured},
    layer::{LayerKind, LayerPlan},
    machine::{Gpu, Lane, Machine, ModuleId, RecordingId},
    nvrtc::compiler_version,
    pairs::HostPairs,
    program::{Draws, Losses, Program, ProgramPlan, Settings, Targets},
    rows::DeviceRows,
    sampled::{HostBlocks, SampledHop, SampledOnDevice},
    sampler::GraphSampler,
};
