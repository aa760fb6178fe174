//! Labels as GPU kernels read them.

use kith_client::Labels;
use kith_kernels::cuda::LabelValues;

/// The classes of nodes; 0 where labels are others.
pub(crate) fn classes_of(labels: &Labels) -> Vec<i32> {
    match labels {
        Labels::Classes(classes) => classes.iter().map(|class| *class as i32).collect(),
        Labels::Bits { n_classes, bits } => vec![0; bits.len() / (*n_classes).max(1)],
        Labels::Numbers { width, values } => vec![0; values.len() / (*width).max(1)],
    }
}

/// Labels that are not one class per node.
pub(crate) fn values_of(labels: &Labels) -> LabelValues {
    match labels {
        Labels::Classes(_) => LabelValues::None,
        Labels::Bits { bits, .. } => LabelValues::Bits(bits.iter().map(|bit| u8::from(*bit)).collect()),
        Labels::Numbers { values, .. } => LabelValues::Numbers(values.clone()),
    }
}
