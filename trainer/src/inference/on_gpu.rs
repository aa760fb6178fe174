//! Inference on a GPU: exact, as on the CPU, with neighbor lists and features on the GPU or sent to it chunk by chunk.

use std::ops::Range;

use kith_client::{FetchedRows, Info, Seeds, Shards};
use kith_kernels::cuda::{EvaluationSets, Features, Gpu, GraphLists, Inference, LabeledNodes, ProgramPlan};
use kith_run::{
    measured::{Measured, Metric},
    report::Confusion,
};
use kith_sampler::{Drawn, EdgeData};
use rayon::prelude::*;

use crate::{
    data::{
        BatchInput,
        all_neighbors::ask_all_neighbors,
        device_labels::{classes_of, values_of},
        feed::rows_of_batch,
        matrix::Matrix,
    },
    error::TrainError,
    inference::{
        evaluate::{measure_nodes, needs_scores},
        receptive::{NodeSet, ReceptiveSets},
        tally::Tally,
        wanted_logits::{WantedLogits, wanted},
    },
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
    receptive: ReceptiveSets,
    sets: EvaluationSets,
    n_valid_terms: u64,
}

/// Features and neighbor lists of all nodes, as far as the GPU has them or reads them itself.
pub(crate) type Known<'a> = (Option<&'a Features>, Option<&'a GraphLists>);

/// Called again and again while something is computed that takes long; an error ends it.
pub(crate) type Beat<'a> = &'a mut dyn FnMut() -> Result<(), TrainError>;

impl GpuEvaluation {
    /// `None` if the hidden features of all nodes that are computed take more than three quarters of the free memory.
    pub(crate) fn new(
        gpu: &Gpu,
        plan: &ProgramPlan,
        input: &BatchInput,
        beat: Beat<'_>,
    ) -> Result<Option<GpuEvaluation>, TrainError> {
        let Info { n_nodes, n_classes, .. } = *input.shards.info();
        // Kernels count (node, class) pairs in 32 bits, and nodes in 31.
        let n_pairs = n_classes as u64 * input.valid.len().max(input.test.len()) as u64;
        let n_wanted = input.valid.len().max(input.test.len()) as u64;
        let least = Inference::n_bytes(plan, &[n_wanted], n_nodes);
        if n_pairs >= 1 << 32 || n_nodes >= 1 << 31 || least > gpu.free_bytes() / 4 * 3 {
            return Ok(None);
        }
        let receptive = ReceptiveSets::find(n_nodes, wanted(input), plan.layers.len(), |nodes, marks| {
            each_chunk(&*input.shards, nodes, beat, |chunk| {
                marks.add(chunk.neighbors.iter().map(|id| u64::from(*id)));
                Ok(())
            })
        })?;
        if !fits(gpu, plan, n_nodes, &receptive) {
            return Ok(None);
        }
        let last = receptive.computed_by(plan.layers.len() - 1);
        let sets = [labeled(&input.valid, last), labeled(&input.test, last)];
        let n_valid_terms = input.valid.len() * sets[0].values.n_terms(n_classes);
        Ok(Some(GpuEvaluation {
            inference: inference_of(gpu, plan, n_nodes, &receptive)?,
            receptive,
            sets: EvaluationSets::new(gpu, &sets, n_classes)?,
            n_valid_terms: n_valid_terms as u64,
        }))
    }

    /// Nodes of the evaluation.
    pub(crate) fn receptive(&self) -> &ReceptiveSets {
        &self.receptive
    }

    /// Losses and metrics with these weights.
    pub(crate) fn evaluate(
        &mut self,
        weights: &[f32],
        (input, metric): (&BatchInput, Metric),
        known: Known<'_>,
        beat: Beat<'_>,
    ) -> Result<Measured, TrainError> {
        if needs_scores(metric) {
            let logits = self.logits(weights, input, known, beat)?;
            return Ok(measure_nodes(&logits, input, self.computed(), metric));
        }
        let GpuEvaluation { inference, receptive, sets, n_valid_terms } = self;
        inference.begin_sets(sets)?;
        walk(
            inference,
            weights,
            &*input.shards,
            known,
            (beat, receptive),
            |inference, _| Ok(inference.measure(sets)?),
        )?;
        let [valid, test] = inference.finish_sets(sets)?;
        inference.release()?;
        Ok(Tally::measured(Tally::of_counted(valid, *n_valid_terms), Tally::of_counted(test, 0)))
    }

    /// Counts the valid and test nodes by true and predicted class, with these weights.
    pub(crate) fn confusion(
        &mut self,
        weights: &[f32],
        input: &BatchInput,
        known: Known<'_>,
        beat: Beat<'_>,
    ) -> Result<Confusion, TrainError> {
        Ok(self.logits(weights, input, known, beat)?.confusion(input, self.computed()))
    }

    /// Logits of the valid and test nodes with these weights.
    fn logits(
        &mut self,
        weights: &[f32],
        input: &BatchInput,
        known: Known<'_>,
        beat: Beat<'_>,
    ) -> Result<WantedLogits, TrainError> {
        let mut logits = WantedLogits::new(input, self.computed());
        let GpuEvaluation { inference, receptive, .. } = self;
        let (shards, last) = (&*input.shards, receptive.n_layers() - 1);
        walk(inference, weights, shards, known, (beat, receptive), |inference, nodes| {
            let rows = Matrix { values: inference.outputs(last)?, width: shards.info().n_classes };
            logits.take(&nodes.collect::<Vec<_>>(), &rows);
            Ok(())
        })?;
        inference.release()?;
        Ok(logits)
    }

    /// Nodes that the last layer computes.
    fn computed(&self) -> &NodeSet {
        self.receptive.computed_by(self.receptive.n_layers() - 1)
    }
}

/// True if the hidden features of the nodes that are computed take at most three quarters of the free memory.
pub(crate) fn fits(gpu: &Gpu, plan: &ProgramPlan, n_nodes: u64, sets: &ReceptiveSets) -> bool {
    Inference::n_bytes(plan, &sets.counts(), n_nodes) <= gpu.free_bytes() / 4 * 3
}

/// Inference of the nodes in some sets.
pub(crate) fn inference_of(
    gpu: &Gpu,
    plan: &ProgramPlan,
    n_nodes: u64,
    sets: &ReceptiveSets,
) -> Result<Inference, TrainError> {
    let ids = |set: &NodeSet| match set {
        NodeSet::All(_) => None,
        some => Some(some.ids(0..some.len()).iter().map(|id| *id as u32).collect()),
    };
    let ids = sets.each().map(ids).collect();
    Ok(Inference::of_nodes(gpu, plan, n_nodes as usize, ids)?)
}

/// Nodes by place among those that the last layer computes.
fn labeled(seeds: &Seeds, computed: &NodeSet) -> LabeledNodes {
    let nodes: Vec<u32> = seeds.ids().iter().map(|id| computed.place(*id) as u32).collect();
    let labels = seeds.labels();
    LabeledNodes { classes: classes_of(labels), values: values_of(labels), nodes }
}

/// Computes layers for the nodes of each, chunk by chunk; `see` gets the places of each chunk's nodes of the last.
pub(crate) fn walk(
    inference: &mut Inference,
    weights: &[f32],
    shards: &dyn Shards,
    (rows, lists): Known<'_>,
    (beat, sets): (Beat<'_>, &ReceptiveSets),
    mut see: impl FnMut(&Inference, Range<u64>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    inference.begin(weights)?;
    match rows {
        Some(rows) => inference.multiply_known(rows)?,
        None => multiply_stored(inference, shards, sets.first(), beat)?,
    }
    let last = sets.n_layers() - 1;
    let mut see = |inference: &Inference, layer, nodes| if layer == last { see(inference, nodes) } else { Ok(()) };
    match lists {
        Some(lists) => {
            inference.make_chunks(lists)?;
            for layer in 0..=last {
                inference.begin_layer(layer)?;
                for chunk in 0..inference.n_chunks(layer) {
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
                let (read, computed) = (sets.read_by(layer), sets.computed_by(layer));
                each_chunk(shards, computed, beat, |mut chunk| {
                    let own = chunk.name_by(read, computed);
                    let first = (chunk.first, own.as_deref());
                    let nodes = inference.compute_given(layer, first, chunk.counts, chunk.neighbors)?;
                    see(inference, layer, nodes)
                })?;
            }
        }
    }
    Ok(())
}

/// Sends the features of nodes, and multiplies them with the first layer's weights.
fn multiply_stored(
    inference: &mut Inference,
    shards: &dyn Shards,
    read: &NodeSet,
    beat: Beat<'_>,
) -> Result<(), TrainError> {
    let n_together = (N_BYTES_OF_ROWS / (4 * shards.info().dim as u64)).clamp(1, N_TOGETHER);
    for first in (0..read.len()).step_by(n_together as usize) {
        beat()?;
        let nodes = read.ids(first..read.len().min(first + n_together));
        let mut fetched = FetchedRows::default();
        shards.fetch_features(&nodes, &mut fetched)?;
        inference.multiply_rows(first as usize, &rows_of_batch(fetched))?;
    }
    Ok(())
}

/// Edges from each node, self-loops left out.
fn out_degrees(shards: &dyn Shards, beat: Beat<'_>) -> Result<Vec<u32>, TrainError> {
    let n_nodes = shards.info().n_nodes;
    let mut degrees = vec![0; n_nodes as usize];
    each_chunk(shards, &NodeSet::All(n_nodes), beat, |chunk| {
        chunk.neighbors.iter().for_each(|id| degrees[*id as usize] += 1);
        Ok(())
    })?;
    Ok(degrees)
}

/// Some nodes with all their neighbors.
struct ListChunk<'a> {
    /// Place of the first among the nodes that are asked for, and ids of all of them.
    first: u64,
    ids: &'a [u64],
    counts: &'a [u32],
    /// By id.
    neighbors: &'a mut [u32],
}

impl ListChunk<'_> {
    /// Names neighbors by their places among the nodes that are read, and returns the places of the nodes themselves; `None` if
    /// all nodes of the graph are computed.
    fn name_by(&mut self, read: &NodeSet, computed: &NodeSet) -> Option<Vec<u32>> {
        if let NodeSet::Some(read) = read {
            self.neighbors.par_iter_mut().for_each(|id| *id = read.place(u64::from(*id)) as u32);
        }
        match computed {
            NodeSet::All(_) => None,
            NodeSet::Some(_) => Some(self.ids.iter().map(|id| read.place(*id) as u32).collect()),
        }
    }
}

/// Nodes with all their neighbors, in chunks.
fn each_chunk(
    shards: &dyn Shards,
    nodes: &NodeSet,
    beat: Beat<'_>,
    mut take: impl FnMut(ListChunk<'_>) -> Result<(), TrainError>,
) -> Result<(), TrainError> {
    let (mut first, mut n_together) = (0, N_FIRST);
    let (mut drawn, mut narrow) = (Drawn::default(), Vec::new());
    while first < nodes.len() {
        beat()?;
        let ids = nodes.ids(first..nodes.len().min(first + n_together));
        ask_all_neighbors(shards, &ids, EdgeData::NONE, &mut drawn)?;
        narrow.clear();
        narrow.extend(drawn.neighbors.iter().map(|id| id as u32));
        let n_edges = (narrow.len() + ids.len()).max(1) as u64;
        n_together = (ids.len() as u64).saturating_mul(N_EDGES) / n_edges;
        n_together = n_together.clamp(1, N_TOGETHER);
        // Nodes with many more neighbors than those before come in parts.
        let (mut ids, mut counts, mut neighbors) = (&ids[..], &drawn.counts[..], &mut narrow[..]);
        while !counts.is_empty() {
            let mut n_own = 0;
            let is_more = |count: &&u32| {
                let is_first = n_own == 0;
                n_own += u64::from(**count) + 1;
                is_first || n_own <= 2 * N_EDGES
            };
            let n_nodes = counts.iter().take_while(is_more).count();
            let n_neighbors = counts[..n_nodes].iter().map(|count| *count as usize).sum();
            let (own, others) = neighbors.split_at_mut(n_neighbors);
            take(ListChunk { first, ids: &ids[..n_nodes], counts: &counts[..n_nodes], neighbors: own })?;
            (ids, counts, neighbors) = (&ids[n_nodes..], &counts[n_nodes..], others);
            first += n_nodes as u64;
        }
    }
    Ok(())
}
