//! Merges equal edges with weights: one edge whose weight is the sum of theirs.

use kith_store::{MAX_WEIGHT, is_weight};

use crate::{
    csr::keys::EdgeKey,
    error::{PartitionError, Result},
};

/// Sorted edges, merged as they come. Weights are added in their order, so that sums depend on nothing else.
pub(super) struct MergedEdges<K> {
    id_bits: u32,
    /// The last edge, which may go on, and the sum of its weights.
    last: Option<(K, f64)>,
    merged: Vec<K>,
}

impl<K: EdgeKey> MergedEdges<K> {
    pub(super) fn new(id_bits: u32) -> MergedEdges<K> {
        MergedEdges { id_bits, last: None, merged: Vec::new() }
    }

    /// Takes the next edges, and gives those that are complete.
    pub(super) fn add(&mut self, keys: &[K]) -> Result<&[K]> {
        self.merged.clear();
        for key in keys {
            let ends = |key: K| (key.destination(self.id_bits), key.source(self.id_bits));
            match &mut self.last {
                Some((last, sum)) if ends(*last) == ends(*key) => *sum += f64::from(key.weight()),
                last => {
                    let complete = last.replace((*key, key.weight().into()));
                    if let Some((edge, sum)) = complete {
                        self.merged.push(weighted(edge, sum, self.id_bits)?);
                    }
                }
            }
        }
        Ok(&self.merged)
    }

    /// The last edge, if there is one.
    pub(super) fn finish(self) -> Result<Vec<K>> {
        self.last.map(|(edge, sum)| weighted(edge, sum, self.id_bits)).into_iter().collect()
    }
}

fn weighted<K: EdgeKey>(edge: K, sum: f64, id_bits: u32) -> Result<K> {
    let weight = sum as f32;
    if is_weight(weight) {
        return Ok(edge.with_weight(weight));
    }
    let (source, destination) = (edge.source(id_bits), edge.destination(id_bits));
    Err(PartitionError::Option(format!(
        "--merge-duplicates: the weights of the edges from node {source} to {destination} add up to {sum:.1e}, more than {MAX_WEIGHT:e}: scale the weights"
    )))
}
