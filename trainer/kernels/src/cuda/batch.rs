//! A mini-batch on a GPU: filled on the host, and copied while the GPU computes the one before.

use std::sync::Arc;

use kith_block::Block;

use super::{
    arena::{Arena, Places},
    error::GpuError,
    graph::PlacedGraph,
    labeled::Labels,
    machine::Gpu,
    memory::{Address, Sink},
    pairs::PlacedPairs,
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
    /// Rows of the first block's sources; `None` where the program has the rows of all nodes.
    pub rows: Option<&'a InputRows>,
    /// Classes of the last block's destinations, −1 for those without a loss; with `bits`, anything but that.
    pub classes: &'a [i32],
    /// If nodes have several classes: one byte for each destination and class.
    pub bits: Option<&'a [u8]>,
    /// Number of classes.
    pub n_classes: usize,
    /// Divisor of the summed losses.
    pub n_terms: usize,
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
    /// See [`BatchParts`].
    pub classes: &'a [i32],
    /// See [`BatchParts`].
    pub bits: Option<&'a [u8]>,
    /// Number of classes.
    pub n_classes: usize,
    /// Divisor of the summed losses.
    pub n_terms: usize,
}

/// A batch on a machine, in memory that is used again.
#[derive(Debug)]
pub struct DeviceBatch {
    arena: Arena,
    /// Memory of the blocks, if the GPU sampled them.
    sampled: Option<SampledOnDevice>,
    heads: Vec<usize>,
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
    /// Pairs of each layer, and those that were left out in all.
    pub(super) n_pairs: Vec<u32>,
    pub(super) n_left_out: u64,
}

impl DeviceBatch {
    /// Of a plan with one run; nothing is in it yet.
    pub fn new(gpu: &Gpu, plan: &ProgramPlan) -> Result<DeviceBatch, GpuError> {
        assert_eq!(plan.runs.len(), 1, "every run has its own batches");
        Ok(DeviceBatch {
            arena: Arena::new(gpu, "a batch")?,
            sampled: None,
            heads: plan.layers.iter().map(|layer| layer.heads).collect(),
            edge_weight: plan.runs[0].edge_weight,
            placed: None,
        })
    }

    /// Fills it. The copy is under way when this returns. Nothing may still compute with what was in it.
    pub fn fill(&mut self, parts: &BatchParts<'_>) -> Result<(), GpuError> {
        let DeviceBatch { arena, heads, edge_weight, placed, .. } = self;
        assert_eq!(parts.blocks.len(), heads.len(), "a block for each layer");
        *placed = Some(arena.fill(|sink| PlacedBatch::place(sink, parts, heads, *edge_weight))?);
        Ok(())
    }

    /// Fills it with what was sampled on the machine; otherwise as above. Pairs are drawn when it is computed.
    pub fn fill_sampled(&mut self, parts: SampledParts<'_>) -> Result<(), GpuError> {
        let SampledParts { step, slice, sampled, classes, bits, n_classes, n_terms } = parts;
        let place = |sink: &mut Places<'_>| {
            Ok(PlacedBatch {
                step: sink.copy(&[step])?,
                graphs: sampled.graphs(),
                pairs: Vec::new(),
                drawn_slice: Some(slice),
                rows: PlacedRows::Known,
                labels: place_labels(sink, classes, bits, n_classes)?,
                n_terms,
                n_pairs: Vec::new(),
                n_left_out: 0,
            })
        };
        self.placed = Some(self.arena.fill(place)?);
        self.sampled = Some(sampled);
        Ok(())
    }

    /// Takes out the sampled blocks, once nothing computes with them any more.
    pub fn take_sampled(&mut self) -> Option<SampledOnDevice> {
        self.sampled.take()
    }

    pub(super) fn sampled(&self) -> &SampledOnDevice {
        self.sampled.as_ref().expect("a batch that was sampled on the machine")
    }

    /// Waits until all of it has arrived.
    pub(super) fn arrived(&self) -> Result<&PlacedBatch, GpuError> {
        self.arena.wait()?;
        Ok(self.placed.as_ref().expect("a batch is filled before it is computed"))
    }

    pub(super) fn placed(&self) -> &PlacedBatch {
        self.placed.as_ref().expect("a batch is filled before it is computed")
    }
}

impl PlacedBatch {
    fn place(
        sink: &mut impl Sink,
        parts: &BatchParts<'_>,
        heads: &[usize],
        edge_weight: f64,
    ) -> Result<PlacedBatch, GpuError> {
        let BatchParts { step, blocks, are_sampled, pairs, rows, classes, bits, n_classes, n_terms } = *parts;
        // The nodes of every block are the first of these.
        let ids = blocks.first().and_then(|block| block.ids()).map(|ids| sink.copy(ids)).transpose()?;
        let graphs = blocks
            .iter()
            .map(|block| PlacedGraph::place(sink, block, ids, !are_sampled))
            .collect::<Result<Vec<_>, _>>()?;
        let of_layer = |((pairs, block), heads): ((&kith_block::Pairs, &Arc<Block>), &usize)| {
            PlacedPairs::place(sink, pairs, block.n_edges(), *heads, edge_weight)
        };
        let placed_pairs = pairs.iter().zip(blocks).zip(heads).map(of_layer).collect::<Result<Vec<_>, _>>()?;
        Ok(PlacedBatch {
            step: sink.copy(&[step])?,
            graphs,
            pairs: placed_pairs,
            drawn_slice: None,
            rows: rows.map_or(Ok(PlacedRows::Known), |rows| PlacedRows::place(sink, rows))?,
            labels: place_labels(sink, classes, bits, n_classes)?,
            n_terms,
            n_pairs: pairs.iter().map(|pairs| pairs.n_pairs() as u32).collect(),
            n_left_out: pairs.iter().map(|pairs| pairs.negatives().n_left_out as u64).sum(),
        })
    }
}

fn place_labels(
    sink: &mut impl Sink,
    classes: &[i32],
    bits: Option<&[u8]>,
    n_classes: usize,
) -> Result<Labels, GpuError> {
    Ok(Labels {
        classes: sink.copy(classes)?,
        bits: bits.map_or(Ok(Address::NONE), |bits| sink.copy(bits))?,
        n_classes: n_classes as u32,
        unused: 0,
    })
}
