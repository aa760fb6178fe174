//! A mini-batch on a GPU: filled on the host, and copied while the GPU computes the one before.

use std::sync::Arc;

use kith_block::{Block, PairConfig};

use super::{
    arena::{Arena, Places},
    error::GpuError,
    features::Features,
    graph::PlacedGraph,
    labeled::{LabelValues, Labels},
    losses::Losses,
    machine::{Gpu, Lane},
    memory::{Address, Array, Sink},
    pairs::{DrawnPairs, PlacedPairs},
    pinned::{Event, Pinned},
    program::ProgramPlan,
    rows::PlacedRows,
    sampled::SampledOnDevice,
};
use crate::rows::InputRows;

/// Inputs of one slice of a step.
#[derive(Clone, Copy, Debug)]
pub struct BatchParts<'a> {
    /// Weight updates so far.
    pub step: u64,
    /// From the input layer to the output layer.
    pub blocks: &'a [Arc<Block>],
    /// True if the blocks were sampled. Then each neighbor list is summed as a whole, as in blocks that the GPU
    /// samples: the bits are the same for both.
    pub are_sampled: bool,
    /// The pairs of each layer's edge loss; none without one.
    pub pairs: &'a [kith_block::Pairs],
    /// Features of the first block's sources.
    pub rows: BatchRows<'a>,
    /// Classes of the last block's destinations, −1 for those without a loss; with `values`, anything but that.
    pub classes: &'a [i32],
    /// Labels of the destinations that are not one class per node.
    pub values: &'a LabelValues,
    /// Number of classes.
    pub n_classes: usize,
    /// Divisor of the summed losses.
    pub n_terms: usize,
}

/// Features of a batch.
#[derive(Clone, Copy, Debug)]
pub enum BatchRows<'a> {
    /// Sent with it.
    Sent(&'a InputRows),
    /// Gathered by the GPU.
    Stored(&'a Features),
}

/// Inputs of one slice of a step that the GPU samples.
#[derive(Debug)]
pub struct SampledParts<'a> {
    /// Weight updates so far.
    pub step: u64,
    /// Names the draws of pairs.
    pub slice: u32,
    /// The blocks, with their lists by source.
    pub sampled: SampledOnDevice,
    /// Features of all nodes.
    pub features: &'a Features,
    /// See [`BatchParts`].
    pub classes: &'a [i32],
    /// See [`BatchParts`].
    pub values: &'a LabelValues,
    /// Number of classes.
    pub n_classes: usize,
    /// Divisor of the summed losses.
    pub n_terms: usize,
}

/// A batch on a machine, in memory that is used again.
#[derive(Debug)]
pub struct DeviceBatch {
    gpu: Gpu,
    arena: Arena,
    /// Features that the GPU gathers.
    rows: Array<f32>,
    /// Everything is there.
    filled: Event,
    /// Memory of the blocks, if the GPU sampled them.
    sampled: Option<SampledOnDevice>,
    /// Pairs of each layer, if they are drawn on the GPU.
    pub(super) drawn: Vec<DrawnPairs>,
    /// Everything is drawn.
    pub(super) is_drawn: Event,
    /// Losses, and then the numbers of pairs that were drawn, on their way to the host.
    pub(super) losses: Pinned,
    heads: Vec<usize>,
    pairs: Option<PairConfig>,
    edge_weight: f64,
    placed: Option<PlacedBatch>,
}

/// Addresses of the parts of a batch.
#[derive(Debug)]
pub(super) struct PlacedBatch {
    pub(super) step: Address,
    pub(super) graphs: Vec<PlacedGraph>,
    pub(super) pairs: Vec<PlacedPairs>,
    /// Slice that names the draws of pairs, if pairs are drawn on the GPU.
    pub(super) drawn_slice: Option<u32>,
    pub(super) rows: PlacedRows,
    pub(super) labels: Labels,
    pub(super) n_terms: usize,
    /// Share of the slice in the step's seed nodes.
    pub(super) share: f32,
    /// Pairs of each layer, and those that were left out in all.
    pub(super) n_pairs: Vec<u32>,
    pub(super) n_left_out: u64,
}

impl DeviceBatch {
    /// Of a plan with one run; nothing is in it yet. `is_sampled`: the machine samples it.
    pub fn new(gpu: &Gpu, plan: &ProgramPlan, is_sampled: bool) -> Result<DeviceBatch, GpuError> {
        assert_eq!(plan.runs.len(), 1, "every run has its own batches");
        let n_layers = plan.layers.len();
        let filling = gpu.in_lane(if is_sampled { Lane::Sample } else { Lane::Send });
        let draws = is_sampled && plan.pairs.is_some();
        let drawn = (0..n_layers).filter(|_| draws).map(|_| DrawnPairs::new(gpu));
        Ok(DeviceBatch {
            arena: Arena::new(&filling, "a batch")?,
            rows: Array::zeros(&filling, 0, "features of a batch")?,
            filled: Event::new(gpu)?,
            gpu: filling,
            sampled: None,
            drawn: drawn.collect::<Result<_, _>>()?,
            is_drawn: Event::new(gpu)?,
            losses: Pinned::new(gpu, size_of::<f64>() * (1 + 2 * n_layers) + size_of::<u32>() * n_layers)?,
            heads: plan.layers.iter().map(|layer| layer.heads).collect(),
            pairs: plan.pairs,
            edge_weight: plan.runs[0].edge_weight,
            placed: None,
        })
    }

    /// Fills it. The copy is under way when this returns. Nothing may still compute with what was in it.
    pub fn fill(&mut self, parts: &BatchParts<'_>) -> Result<(), GpuError> {
        assert_eq!(parts.blocks.len(), self.heads.len(), "a block for each layer");
        let n_rows = parts.blocks[0].n_sources();
        self.fit_rows(parts.rows.features(), n_rows)?;
        let DeviceBatch { gpu, arena, rows, heads, pairs, edge_weight, .. } = self;
        let placed = arena.fill(|sink| PlacedBatch::place(sink, (parts, rows.at()), heads, (*pairs, *edge_weight)))?;
        if let Some(features) = parts.rows.features() {
            features.gather(gpu, (placed.graphs[0].ids(), 0), n_rows, rows)?;
        }
        self.placed = Some(placed);
        self.filled.record(self.gpu.lane())
    }

    /// Fills it with what was sampled on the machine; otherwise as above. Pairs are drawn when it is computed.
    pub fn fill_sampled(&mut self, parts: SampledParts<'_>) -> Result<(), GpuError> {
        let SampledParts { step, slice, sampled, features, classes, values, n_classes, n_terms } = parts;
        self.fit_rows(Some(features), sampled.n_nodes())?;
        features.gather(&self.gpu, (sampled.ids.at(), 0), sampled.n_nodes(), &self.rows)?;
        let rows = self.rows.at();
        let place = |sink: &mut Places<'_>| {
            Ok(PlacedBatch {
                step: sink.copy(&[step])?,
                graphs: sampled.graphs(),
                pairs: Vec::new(),
                drawn_slice: Some(slice),
                rows: PlacedRows::Dense(rows),
                labels: place_labels(sink, classes, values, n_classes)?,
                n_terms,
                share: share_of(classes, n_terms / values.n_terms(n_classes)),
                n_pairs: Vec::new(),
                n_left_out: 0,
            })
        };
        self.placed = Some(self.arena.fill(place)?);
        self.sampled = Some(sampled);
        self.filled.record(self.gpu.lane())
    }

    /// Makes room for features that are gathered.
    fn fit_rows(&mut self, features: Option<&Features>, n_rows: usize) -> Result<(), GpuError> {
        self.rows.fit(features.map_or(0, |features| n_rows * features.dim()))?;
        Ok(())
    }

    /// Takes out the sampled blocks, once nothing computes with them any more.
    pub fn take_sampled(&mut self) -> Option<SampledOnDevice> {
        self.sampled.take()
    }

    pub(super) fn sampled(&self) -> &SampledOnDevice {
        self.sampled.as_ref().expect("a batch that was sampled on the machine")
    }

    /// Makes a lane wait until all of it is there.
    pub(super) fn hold(&self, lane: Lane) -> Result<(), GpuError> {
        self.filled.hold(lane)
    }

    /// True if a batch that was started is computed.
    pub fn is_computed(&self) -> Result<bool, GpuError> {
        self.losses.is_there()
    }

    /// Waits for the losses of a batch that was started.
    pub fn losses(&mut self) -> Result<Losses, GpuError> {
        let (n_layers, placed) = (self.heads.len(), self.placed.as_ref().expect("a batch is filled"));
        let (mut n_pairs, mut n_left_out) = (placed.n_pairs.clone(), placed.n_left_out);
        let (losses, counts) = self.losses.bytes()?.split_at(size_of::<f64>() * (1 + 2 * n_layers));
        let (losses, counts): (&[f64], &[u32]) = (bytemuck::cast_slice(losses), bytemuck::cast_slice(counts));
        for (drawn, count) in self.drawn.iter().zip(counts) {
            n_pairs.push(*count);
            n_left_out += u64::from(drawn.most_pairs() - count);
        }
        let edge = |(layer, n_pairs): (usize, &u32)| {
            (losses[1 + 2 * layer] + losses[2 + 2 * layer]) / f64::from((*n_pairs).max(1))
        };
        Ok(Losses { node: losses[0], edges: n_pairs.iter().enumerate().map(edge).collect(), n_left_out })
    }

    pub(super) fn placed(&self) -> &PlacedBatch {
        self.placed.as_ref().expect("a batch is filled before it is computed")
    }
}

impl<'a> BatchRows<'a> {
    fn features(self) -> Option<&'a Features> {
        match self {
            BatchRows::Sent(_) => None,
            BatchRows::Stored(features) => Some(features),
        }
    }
}

impl PlacedBatch {
    fn place(
        sink: &mut impl Sink,
        (parts, gathered): (&BatchParts<'_>, Address),
        heads: &[usize],
        (config, edge_weight): (Option<PairConfig>, f64),
    ) -> Result<PlacedBatch, GpuError> {
        let BatchParts { step, blocks, are_sampled, pairs, rows, classes, values, n_classes, n_terms } = *parts;
        // The nodes of every block are the first of these.
        let ids = blocks.first().and_then(|block| block.ids()).map(|ids| sink.copy(ids)).transpose()?;
        let graphs = blocks
            .iter()
            .map(|block| PlacedGraph::place(sink, block, ids, !are_sampled))
            .collect::<Result<Vec<_>, _>>()?;
        let of_layer = |((pairs, block), heads): ((&kith_block::Pairs, &Arc<Block>), &usize)| {
            let config = config.expect("pairs come with their config");
            PlacedPairs::place(sink, pairs, (block, config), *heads, edge_weight)
        };
        let placed_pairs = pairs.iter().zip(blocks).zip(heads).map(of_layer).collect::<Result<Vec<_>, _>>()?;
        Ok(PlacedBatch {
            step: sink.copy(&[step])?,
            graphs,
            pairs: placed_pairs,
            drawn_slice: None,
            rows: match rows {
                BatchRows::Sent(rows) => PlacedRows::place(sink, rows)?,
                BatchRows::Stored(_) => PlacedRows::Dense(gathered),
            },
            labels: place_labels(sink, classes, values, n_classes)?,
            n_terms,
            share: share_of(classes, n_terms / values.n_terms(n_classes)),
            n_pairs: pairs.iter().map(|pairs| pairs.n_pairs() as u32).collect(),
            n_left_out: pairs.iter().map(|pairs| pairs.negatives().n_left_out as u64).sum(),
        })
    }
}

fn place_labels(
    sink: &mut impl Sink,
    classes: &[i32],
    values: &LabelValues,
    n_classes: usize,
) -> Result<Labels, GpuError> {
    let classes = sink.copy(classes)?;
    let values = match values {
        LabelValues::None => (Address::NONE, Address::NONE),
        LabelValues::Bits(bits) => (sink.copy(bits)?, Address::NONE),
        LabelValues::Numbers(numbers) => (Address::NONE, sink.copy(numbers)?),
    };
    Ok(Labels::new(classes, values, n_classes))
}

/// Share of a slice in the seed nodes of its step, as in the node loss.
fn share_of(classes: &[i32], n_step_seeds: usize) -> f32 {
    let n_own = classes.iter().filter(|class| **class >= 0).count();
    (n_own as f64 / n_step_seeds as f64) as f32
}
