//! Weights of drawn edges, and draws by weight.

use kith_store::{Result, StoreError, check_weight};

use super::{Bounds, PIECE, Pieces, Scratch};
use crate::{drawn::Id, lanes::WordSource};

impl<I: Id, W: WordSource> Pieces<'_, I, W> {
    /// Writes the weights of the edges at these places from `at` on, where they are wanted.
    #[inline]
    pub(super) fn put_weights(
        &self,
        places: impl Iterator<Item = usize>,
        at: usize,
        weights: &mut [f32],
    ) -> Result<()> {
        let (Some(all), true) = (self.edge_weights, self.hop.with_weights) else { return Ok(()) };
        for (place, weight) in places.zip(&mut weights[at..]) {
            *weight = check_weight(all.items()[place], place)?;
        }
        Ok(())
    }

    /// Draws by weight, node by node.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn sample_weighted(
        &mut self,
        nodes: &[u64],
        bounds: &[Bounds; PIECE],
        k: usize,
        counts: &mut Vec<u32>,
        out: &mut Vec<I>,
        weights: &mut Vec<f32>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let all = self.edge_weights.ok_or(StoreError::NoEdgeWeights)?;
        let keys = self.hop.keys();
        let Scratch { weighted, weighted_slots: slots, candidate_weights, .. } = scratch;
        for (node, bounds) in nodes.iter().zip(bounds) {
            let own = self.candidates(*node, *bounds);
            u32::try_from(own.n).map_err(|_| StoreError::damaged("indptr", *node))?;
            let stored = all.get(bounds.start, bounds.end)?;
            let own_weights = match own.n_loops {
                0 => stored,
                _ => {
                    let before = own.loop_at.min(own.n);
                    candidate_weights.clear();
                    candidate_weights.extend_from_slice(&stored[..before]);
                    candidate_weights.extend_from_slice(&stored[before + own.n_loops..]);
                    &candidate_weights[..]
                }
            };
            weighted.draw(keys, *node, own_weights, k, slots);
            counts.push(slots.len() as u32);
            out.extend(slots.iter().map(|slot| self.ids[own.place(*slot as usize)]));
            if self.hop.with_weights {
                weights.extend(slots.iter().map(|slot| own_weights[*slot as usize]));
            }
        }
        Ok(())
    }
}
