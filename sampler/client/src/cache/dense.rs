//! Dense features of remote nodes, as they are stored, in memory that processes of a host share. A slot is filled when a process has
//! fetched the features of its node.

use std::fmt::Write;

use half::{bf16, f16, slice::HalfFloatSliceExt};
use kith_draw::prefetch;
use kith_store::NodeRows;
use sha2::{Digest, Sha256};

use crate::{
    cache::{CacheFacts, host_memory::HostMemory, slots::Slots},
    error::{ClientError, Result},
    remote::FeatureDtype,
};

/// Identity of features: processes share the memory of equal ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredFeatures<'a> {
    /// Digest of the partitioned graph.
    pub(crate) graph: &'a str,
    /// Length of a feature vector.
    pub(crate) dim: usize,
    /// Type of stored values.
    pub(crate) dtype: FeatureDtype,
}

impl StoredFeatures<'_> {
    /// Memory of a feature vector in a cache.
    pub(crate) fn slot_bytes(&self) -> u64 {
        (self.dim * self.dtype.bytes()) as u64 + 1
    }
}

/// Features of some nodes.
#[derive(Debug)]
pub(crate) struct DenseCache {
    nodes: NodeRows,
    slots: Slots,
    dim: usize,
    dtype: FeatureDtype,
    memory: HostMemory,
}

/// Changes whenever the layout of the memory does: processes of several versions share nothing.
const LAYOUT: &str = "kith-cache-1";

/// Prefetch distance, in feature vectors.
const AHEAD: usize = 8;

impl DenseCache {
    /// A cache with a slot for each of these nodes.
    pub(crate) fn open(features: StoredFeatures<'_>, nodes: NodeRows) -> Result<DenseCache> {
        let StoredFeatures { graph, dim, dtype } = features;
        let mut name = Sha256::new();
        name.update(format!("{LAYOUT} {graph} {dim} {dtype:?} {}", rustix::process::geteuid().as_raw()));
        name.update(bytemuck::cast_slice(nodes.words()));
        let mut text = String::from("kith-cache-");
        name.finalize().iter().for_each(|byte| write!(text, "{byte:02x}").expect("texts can be written to"));
        let (n_slots, row_bytes) = (nodes.n_rows() as usize, dim * dtype.bytes());
        let no_memory = |source| ClientError::Cache { source };
        let n_bytes =
            Slots::file_bytes(n_slots, row_bytes).ok_or_else(|| no_memory(std::io::ErrorKind::OutOfMemory.into()))?;
        let memory = HostMemory::open(&text, n_bytes).map_err(no_memory)?;
        let slots = Slots::map(memory.file().try_clone().map_err(no_memory)?, n_slots, row_bytes).map_err(no_memory)?;
        Ok(DenseCache { nodes, slots, dim, dtype, memory })
    }

    /// Slot of a node, if it has one.
    #[inline]
    pub(crate) fn slot_of(&self, node: u64) -> Option<usize> {
        self.nodes.row_of(node).map(|row| row as usize)
    }

    /// True if a slot is filled.
    pub(crate) fn is_filled(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some()
    }

    /// Copies the features of filled slots: `(row, slot)`, each to its row of `values`.
    pub(crate) fn read(&self, found: &[(u32, usize)], values: &mut [f32]) {
        for (nth, (row, slot)) in found.iter().enumerate() {
            if let Some((_, slot)) = found.get(nth + AHEAD) {
                self.slots.get(*slot).and_then(|row| row.first()).inspect(|first| prefetch(*first));
            }
            let out = &mut values[*row as usize * self.dim..][..self.dim];
            let stored = self.slots.get(*slot).expect("filled slots stay filled");
            match self.dtype {
                FeatureDtype::F32 => bytemuck::cast_slice_mut(out).copy_from_slice(stored),
                FeatureDtype::F16 => bytemuck::cast_slice::<u8, f16>(stored).convert_to_f32_slice(out),
                FeatureDtype::Bf16 => bytemuck::cast_slice::<u8, bf16>(stored).convert_to_f32_slice(out),
            }
        }
    }

    /// Fills slots with rows of `values` that were fetched: `(row, slot)`. Their values are those of the stored type.
    pub(crate) fn fill(&self, fetched: &[(u32, usize)], values: &[f32]) {
        let mut halves = vec![0u16; if self.dtype == FeatureDtype::F32 { 0 } else { self.dim }];
        for (row, slot) in fetched {
            let row = &values[*row as usize * self.dim..][..self.dim];
            let stored = match self.dtype {
                FeatureDtype::F32 => bytemuck::cast_slice(row),
                FeatureDtype::F16 => {
                    bytemuck::cast_slice_mut::<u16, f16>(&mut halves).convert_from_f32_slice(row);
                    bytemuck::cast_slice(&halves)
                }
                FeatureDtype::Bf16 => {
                    bytemuck::cast_slice_mut::<u16, bf16>(&mut halves).convert_from_f32_slice(row);
                    bytemuck::cast_slice(&halves)
                }
            };
            self.slots.fill(*slot, stored);
        }
    }

    pub(crate) fn facts(&self) -> CacheFacts {
        let n_nodes = self.nodes.n_rows();
        let n_bytes = n_nodes * (self.dim * self.dtype.bytes()) as u64;
        CacheFacts { n_nodes, n_bytes, is_shared: self.memory.is_shared() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(graph: &str, dtype: FeatureDtype, nodes: &[u64]) -> DenseCache {
        let graph = &format!("{graph}-{}", std::process::id());
        let nodes = NodeRows::new(200, |node| nodes.contains(&node));
        DenseCache::open(StoredFeatures { graph, dim: 3, dtype }, nodes).unwrap()
    }

    #[test]
    fn features_are_those_that_were_fetched_in_every_process() {
        for dtype in [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16] {
            let graph = format!("{dtype:?}");
            let [one, other] = [(); 2].map(|()| open(&graph, dtype, &[3, 64, 65, 130]));
            let slots = [65, 3].map(|node| one.slot_of(node).unwrap());
            assert_eq!(one.slot_of(4), None);
            assert!(slots.iter().all(|slot| !other.is_filled(*slot)));
            // Row 1 is node 65's, row 0 node 3's. All types have these values.
            let values = [1.5, -0.0, 2.0, 0.25, f32::MIN_POSITIVE * 0.0, -3.0];
            one.fill(&[(1, slots[0]), (0, slots[1])], &values);
            let mut found = [7.0; 9];
            other.read(&[(2, slots[1]), (0, slots[0])], &mut found);
            assert_eq!(found, [0.25, 0.0, -3.0, 7.0, 7.0, 7.0, 1.5, -0.0, 2.0]);
            assert!(found[7].is_sign_negative(), "every bit is kept");
        }
    }

    #[test]
    fn opening_and_closing_leaves_no_descriptor() {
        let n_open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        drop(open("first", FeatureDtype::F32, &[1]));
        let before = n_open();
        for _ in 0..100 {
            drop([(); 2].map(|()| open("again", FeatureDtype::F32, &[1])));
        }
        // Other tests of this process have some open.
        assert!(n_open() < before + 50, "{} after {before}", n_open());
    }

    #[test]
    fn other_graphs_types_and_nodes_are_other_memory() {
        let first = open("memory", FeatureDtype::F32, &[1, 2]);
        first.fill(&[(0, 0), (0, 1)], &[1.0, 2.0, 3.0]);
        assert!(open("memory", FeatureDtype::F32, &[1, 2]).is_filled(0));
        assert!(!open("another", FeatureDtype::F32, &[1, 2]).is_filled(0));
        assert!(!open("memory", FeatureDtype::F32, &[1, 3]).is_filled(0));
        assert!(!open("memory", FeatureDtype::F16, &[1, 2]).is_filled(0));
    }
}
