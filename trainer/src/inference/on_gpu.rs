//! Inference over all nodes on a GPU: exact, as on the CPU, with neighbor lists and features on the GPU or sent to it chunk by
//! chunk.

use std::ops::Range;

use kith_client::{FetchedRows, Info, Seeds, Shards};
use kith_kernels::cuda::{EvaluationSets, Features, Gpu, GraphLists, Inference, LabeledNodes, ProgramPlan};
use kith_run::measured::Measured;
use kith_sampler::Drawn;

use crate::{
    data::{BatchInput, feed::rows_of_batch, input::Labels},
    error::TrainError,
    inference::{layerwise::ask_all_neighbors, tally::Tally},
};

/// Edges of a chunk of lists that come from the host, about.
const N_EDGES: u64 = 1 << 24;
/// Nodes of the first such chunk, and of any chunk at most.
const N_FIRST: u64 = 1 << 13;
const N_TOGETHER: u64 = 1 << 19;
/// Bytes of features that are sent together.
const N_BYTES_OF_ROWS: u64 = 64 << 20;

/// A model that a GPU evaluates on all validation and test nodes.
#[derive(Debug)]
pub(crate) struct GpuEvaluation {
    inference: Inference,
    sets: EvaluationSets,
    n_valid_terms: u64,
}

/// Features and neighbor lists of all nodes, as far as the GPU has them or reads them itself.
pub(crate) type Known<'a> = (Option<&'a Features>, Option<&'a GraphLists>);

/// Called again and again while something is computed that takes long; an error ends it.
pub(crate) type Beat<'a> = &'a mut dyn FnMut() -> Result<(), TrainError>;

impl GpuEvaluation {
    /// `None` if the hidden features of all nodes take more than three quarters of the free memory.
    pub(crate) fn new(gpu: &Gpu, plan: &ProgramPlan, input: &BatchInput) -> Result<Option<GpuEvaluation>, TrainError> {
        let Info { n_nodes, n_classes, .. } = *input.shards.info();
        // Kernels count (node, class) pairs in 32 bits.
        let n_pairs = n_classes as u64 * input.valid.len().max(input.test.len()) as u64;
        if n_pairs >= 1 << 32 || !fits(gpu, plan, n_nodes) {
            return Ok(None);
        }
        let sets = [labeled(&input.valid), labeled(&input.test)];
        let n_valid_terms = input.valid.len() * if sets[0].bits.is_some() { n_classes } else { 1 };
        Ok(Some(GpuEvaluation {
            inference: Inference::new(gpu, plan, n_nodes as usize)?,
            sets: EvaluationSets::new(gpu, &sets, n_classes)?,
            n_valid_terms: n_valid_terms as u64,
        }))
    }

    /// Losses and metrics with these weights.
    pub(crate) fn evaluate(
        &mut self,
        weights: &[f32],
        shards: &dyn Shards,
        known: Known<'_>,
        beat: Beat<'_>,
    ) -> Result<Measured, TrainError> {
        let GpuEvaluation { inference, sets, n_valid_terms } = self;
        inference.begin_sets(sets)?;
        let last = inference.n_layers() - 1;
        walk(inference, weights, shards, known, (beat, last), |inference, _| Ok(inference.measure(sets)?))?;
        let [valid, test] = inference.finish_sets(sets)?;
        inference.release()?;
        Ok(Tally::measured(Tally::of_counted(valid, *n_valid_terms), Tally::of_counted(test, 0)))
    }
}

/// True if the hidden features of all nodes take at most three quarters of the free memory.
pub(crate) fn fits(gpu: &Gpu, plan: &ProgramPlan, n_nodes: u64) -> bool {
    n_nodes < 1 << 31 && Inference::n_bytes(plan, n_nodes) <= gpu.free_bytes() / 4 * 3
}

fn labeled(seeds: &Seeds) -> LabeledNodes {
    let nodes: Vec<u32> = seeds.ids().iter().map(|id| *id as u32).collect();
    match seeds.labels() {
        Labels::Classes(classes) => {
            LabeledNodes { nodes, classes: classes.iter().map(|class| *class as i32).collect(), bits: None }
        }
        Labels::Bits { bits, .. } => LabeledNodes {
            classes: vec![0; nodes.len()],
            bits: Some(bits.iter().map(|bit| u8::from(*bit)).collect()),
            nodes,
        },
    }
}

/// Computes the layers up to `last` for all nodes, chunk by chunk; `see` gets the nodes of each chunk of that layer.
pub(crate) fn walk(
    inference: &mut Inference,
    weights: &[f32],
    shards: &dyn Shards,
    (rows, lists): Known<'_>,
    (beat, last): (Beat<'_>, usize),
    mut see: impl FnMut(&Inference, Range<u64>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    inference.begin(weights)?;
    match rows {
        Some(rows) => inference.multiply_known(rows)?,
        None => multiply_stored(inference, shards, beat)?,
    }
    let mut see = |inference: &Inference, layer, nodes| if layer == last { see(inference, nodes) } else { Ok(()) };
    match lists {
        Some(lists) => {
            let n_chunks = inference.known_chunks(lists)?;
            for layer in 0..=last {
                inference.begin_layer(layer)?;
                for chunk in 0..n_chunks {
                    beat()?;
                    let nodes = inference.compute_known(layer, lists, chunk)?;
                    see(inference, layer, nodes)?;
                }
            }
        }
        None => {
            if inference.needs_out_degrees() {
                inference.set_out_degrees(&out_degrees(shards, beat)?)?;
            }
            for layer in 0..=last {
                inference.begin_layer(layer)?;
                each_chunk(shards, beat, |first, counts, neighbors| {
                    let nodes = inference.compute_given(layer, first, counts, neighbors)?;
                    see(inference, layer, nodes)
                })?;
            }
        }
    }
    Ok(())
}

/// Sends the features of all nodes, and multiplies them with the first layer's weights.
fn multiply_stored(inference: &mut Inference, shards: &dyn Shards, beat: Beat<'_>) -> Result<(), TrainError> {
    let Info { n_nodes, dim, .. } = *shards.info();
    let n_together = (N_BYTES_OF_ROWS / (4 * dim as u64)).clamp(1, N_TOGETHER);
    for first in (0..n_nodes).step_by(n_together as usize) {
        beat()?;
        let nodes: Vec<u64> = (first..n_nodes.min(first + n_together)).collect();
        let mut fetched = FetchedRows::default();
        shards.fetch_rows(&nodes, &mut fetched)?;
        inference.multiply_rows(first as usize, &rows_of_batch(fetched))?;
    }
    Ok(())
}

/// Edges from each node, self-loops left out.
fn out_degrees(shards: &dyn Shards, beat: Beat<'_>) -> Result<Vec<u32>, TrainError> {
    let mut degrees = vec![0; shards.info().n_nodes as usize];
    each_chunk(shards, beat, |_, _, neighbors| {
        neighbors.iter().for_each(|id| degrees[*id as usize] += 1);
        Ok(())
    })?;
    Ok(degrees)
}

/// All nodes with all their neighbors, in chunks: the first node, the numbers of neighbors, and the neighbors.
fn each_chunk(
    shards: &dyn Shards,
    beat: Beat<'_>,
    mut take: impl FnMut(u64, &[u32], &[u32]) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let n_nodes = shards.info().n_nodes;
    let (mut first, mut n_together) = (0, N_FIRST);
    let (mut drawn, mut narrow) = (Drawn::default(), Vec::new());
    while first < n_nodes {
        beat()?;
        let end = n_nodes.min(first + n_together);
        ask_all_neighbors(shards, first..end, &mut drawn)?;
        narrow.clear();
        narrow.extend(drawn.neighbors.iter().map(|id| id as u32));
        let n_edges = (narrow.len() as u64 + end - first).max(1);
        n_together = ((end - first).saturating_mul(N_EDGES) / n_edges).clamp(1, N_TOGETHER);
        // Nodes with many more neighbors than those before come in parts.
        let (mut counts, mut neighbors) = (&drawn.counts[..], &narrow[..]);
        while !counts.is_empty() {
            let mut n_own = 0;
            let is_more = |count: &&u32| {
                let is_first = n_own == 0;
                n_own += u64::from(**count) + 1;
                is_first || n_own <= 2 * N_EDGES
            };
            let n_nodes = counts.iter().take_while(is_more).count();
            let n_neighbors = counts[..n_nodes].iter().map(|count| *count as usize).sum();
            take(first, &counts[..n_nodes], &neighbors[..n_neighbors])?;
            (counts, neighbors) = (&counts[n_nodes..], &neighbors[n_neighbors..]);
            first += n_nodes as u64;
        }
    }
    Ok(())
}
