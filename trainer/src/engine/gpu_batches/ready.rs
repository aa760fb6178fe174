//! Slices on their way to the GPU.

use kith_client::{BatchDigest, Roots};
use kith_kernels::cuda::{DeviceBatch, HostBlocks, HostPairs, LabelValues};

use crate::{
    data::{
        device_labels::{classes_of, values_of},
        feed::Slice,
        input::Labels,
    },
    distributed::exchange::SliceRecord,
};

/// A slice that is on its way to the GPU; one without roots never goes there.
#[derive(Debug)]
pub(super) struct Ready<'a> {
    pub(super) batch: Option<DeviceBatch>,
    /// Counts, known before it is computed.
    pub(super) record: SliceRecord,
    pub(super) drawn: Drawn<'a>,
}

/// A slice, by the device that sampled it.
#[derive(Debug)]
pub(super) enum Drawn<'a> {
    OnHost(Box<Slice<'a>>),
    OnGpu(Sampled),
}

/// A slice that the GPU samples: what its digest is made of beside what was drawn.
#[derive(Debug)]
pub(super) struct Sampled {
    /// Step and slice.
    pub(super) name: (u64, u64),
    pub(super) roots: Roots,
}

impl Sampled {
    pub(super) fn digest(&self, drawn: &(HostBlocks, Vec<HostPairs>)) -> String {
        let (HostBlocks { nodes, blocks }, pairs) = drawn;
        let mut digest = BatchDigest::new(self.name, &self.roots.ids, &self.roots.seeds, nodes);
        for (indptr, sources, n_sources) in blocks {
            digest.add_block(indptr.windows(2).map(|bounds| bounds[1] - bounds[0]), *n_sources, sources);
        }
        for HostPairs { sources, destinations, kept, n_pairs, n_left_out } in pairs {
            digest.add_pairs((sources, destinations), kept, *n_pairs, *n_left_out);
        }
        digest.text()
    }
}

/// Labels of the roots of a slice, as the GPU reads them.
pub(super) struct Targets {
    pub(super) classes: Vec<i32>,
    pub(super) values: LabelValues,
}

impl Targets {
    pub(super) fn of(labels: &Labels, seeds: &[u32], n_roots: usize) -> Targets {
        let mut classes = vec![-1; n_roots];
        let all = classes_of(labels);
        seeds.iter().for_each(|seed| classes[*seed as usize] = all[*seed as usize]);
        Targets { classes, values: values_of(labels) }
    }

    pub(super) fn n_terms(&self, n_step_seeds: usize, n_classes: usize) -> usize {
        n_step_seeds * self.values.n_terms(n_classes)
    }
}
