//! Weights, features and ids of drawn edges.

use std::ops::Range;

use kith_draw::prefetch;
use kith_store::{EdgeWeights, Features, Neighbors, Result, StoreError, check_weight};

use crate::{fanout::EdgeData, graph::SampledGraph};

/// Columns of edges that a hop reads.
#[derive(Clone, Copy)]
pub(super) struct EdgeColumns<'a> {
    /// `None` if weights are neither wanted nor drawn by.
    pub(super) weights: Option<&'a EdgeWeights>,
    features: Option<&'a Features>,
    /// True if weights are wanted.
    with_weights: bool,
    /// True if ids are wanted.
    with_ids: bool,
}

/// Vectors for the wanted data of edges.
pub(super) struct EdgeOutput<'a> {
    /// Weight and features, edge by edge.
    pub(super) numbers: &'a mut Vec<f32>,
    pub(super) ids: &'a mut Vec<u64>,
}

impl<'a> EdgeColumns<'a> {
    pub(super) fn of(graph: SampledGraph<'a>, needs_weights: bool, wanted: EdgeData) -> Result<EdgeColumns<'a>> {
        let weights = match graph.edge_weights {
            _ if !needs_weights => None,
            None => return Err(StoreError::NoEdgeWeights),
            weights => weights,
        };
        let features = match graph.edge_features {
            _ if !wanted.features => None,
            None => return Err(StoreError::NoEdgeFeatures),
            features => features,
        };
        Ok(EdgeColumns { weights, features, with_weights: wanted.weights, with_ids: wanted.ids })
    }

    /// Numbers of one edge.
    pub(super) fn width(&self) -> usize {
        usize::from(self.with_weights) + self.features.map_or(0, Features::dim)
    }

    /// Compares the blocks of weights under a range of edges with their checksums; features do that as they are read.
    #[inline]
    pub(super) fn touch(&self, start: usize, end: usize) -> Result<()> {
        self.weights.map_or(Ok(()), |weights| weights.touch(start, end))
    }

    /// Asks for the first weights of a list that will be read as a whole; the machine sees where the others are.
    #[inline]
    pub(super) fn ask_for_weights(&self, start: usize, end: usize) {
        const LINE: usize = 16;
        const N_LINES: usize = 8;
        if let Some(list) = self.weights.and_then(|weights| weights.items().get(start..end)) {
            list.iter().step_by(LINE).take(N_LINES).for_each(prefetch);
        }
    }

    /// Makes room for the data of this many edges.
    pub(super) fn make_room(&self, n_edges: usize, data: &mut EdgeOutput<'_>) {
        data.numbers.resize(n_edges * self.width(), 0.0);
        if self.with_ids {
            data.ids.resize(n_edges, 0);
        }
    }

    /// Writes the data of the edges at these places, for the drawn edges from `at` on.
    #[inline]
    pub(super) fn put(
        &self,
        places: impl Iterator<Item = usize> + Clone,
        at: usize,
        data: &mut EdgeOutput<'_>,
    ) -> Result<()> {
        if self.with_ids {
            data.ids[at..].iter_mut().zip(places.clone()).for_each(|(id, place)| *id = place as u64);
        }
        let width = self.width();
        if width == 0 {
            return Ok(());
        }
        for (place, data) in places.zip(data.numbers[at * width..].chunks_exact_mut(width)) {
            let mut own = &mut data[..];
            if let (Some(all), true) = (self.weights, self.with_weights) {
                own[0] = check_weight(all.items()[place], place)?;
                own = &mut own[1..];
            }
            if let Some(features) = self.features {
                features.read(place as u64, own)?;
            }
        }
        Ok(())
    }
}

/// Data of some of a node's edges, by their places in its list without self-loops: a part of what a hop that takes all of them gives.
pub(crate) fn data_of_list(
    graph: SampledGraph<'_>,
    (node, row): (u64, u64),
    slots: Range<usize>,
    wanted: EdgeData,
) -> Result<Vec<f32>> {
    let (start, end) = graph.lists.bounds(row)?;
    graph.lists.touch(start, end)?;
    let damaged = || StoreError::damaged("indptr", row);
    let (loop_at, loop_end) = match graph.lists.indices() {
        Neighbors::Narrow(ids) => {
            let list = ids.get(start..end).ok_or_else(damaged)?;
            (list.partition_point(|id| u64::from(*id) < node), list.partition_point(|id| u64::from(*id) <= node))
        }
        Neighbors::Wide(ids) => {
            let list = ids.get(start..end).ok_or_else(damaged)?;
            (list.partition_point(|id| *id < node), list.partition_point(|id| *id <= node))
        }
    };
    let columns = EdgeColumns::of(graph, wanted.weights, wanted)?;
    columns.touch(start, end)?;
    let (mut numbers, mut ids) = (Vec::new(), Vec::new());
    let mut data = EdgeOutput { numbers: &mut numbers, ids: &mut ids };
    columns.make_room(slots.len(), &mut data);
    let place = |slot: usize| start + slot + if slot >= loop_at { loop_end - loop_at } else { 0 };
    columns.put(slots.map(place), 0, &mut data)?;
    Ok(numbers)
}
