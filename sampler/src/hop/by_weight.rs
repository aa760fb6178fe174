//! Draws by weight.

use kith_draw::prefetch;
use kith_store::{Result, StoreError};

use super::{Bounds, PIECE, Pieces, Scratch, edge_data::EdgeOutput};
use crate::{drawn::Id, lanes::WordSource};

impl<I: Id, W: WordSource> Pieces<'_, I, W> {
    /// Draws by weight, node by node. Neighbors are read when all nodes of the piece have drawn: they are on their way then.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn sample_weighted(
        &mut self,
        nodes: &[u64],
        bounds: &[Bounds; PIECE],
        k: usize,
        counts: &mut Vec<u32>,
        out: &mut Vec<I>,
        data: &mut EdgeOutput<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let all = self.edges.weights.ok_or(StoreError::NoEdgeWeights)?;
        let keys = self.hop.keys();
        let Scratch { weighted, weighted_slots: slots, candidate_weights, places, .. } = scratch;
        places.clear();
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
            for slot in &*slots {
                let place = own.place(*slot as usize);
                prefetch(&self.ids[place]);
                places.push(place);
            }
        }
        let at = out.len();
        out.extend(places.iter().map(|place| self.ids[*place]));
        self.edges.make_room(out.len(), data);
        self.edges.put(places.iter().copied(), at, data)
    }
}
