//! Evaluation of a model over nodes of a graph: exact, layer by layer, in chunks of destinations.
//!
//! The hidden features of all nodes that a layer reads (the products with its weights) are on the GPU, for one layer and the
//! next; outputs exist for one chunk. Neighbor lists and features are on the GPU, or come chunk by chunk from the host. The size of
//! chunks changes no bit.

mod chunk;
mod layers;
mod nodes;

use std::ops::Range;

use self::{
    chunk::{Chunk, KnownChunk},
    nodes::Nodes,
};
use super::{
    arena::Arena,
    compile::Constants,
    error::GpuError,
    features::Features,
    graph_lists::GraphLists,
    labeled::{LabeledNodes, LabeledSet, Measured, Outputs},
    layer::{Layer, LayerKind, LayerPlan},
    machine::{Gpu, ModuleId},
    memory::Array,
    program::{ProgramPlan, RawSettings},
    rows::PlacedRows,
    sum::{N_PARTS, Sum},
};
use crate::rows::InputRows;

/// Bytes of features that are gathered together, about.
const GATHERED_BYTES: usize = 64 << 20;

/// Bytes that the outputs of a chunk and its lists take, about.
const CHUNK_BYTES: usize = 512 << 20;

const HIDDEN: &str = "hidden features";

/// A model over nodes of a graph.
#[derive(Debug)]
pub struct Inference {
    gpu: Gpu,
    layers: Vec<InferenceLayer>,
    /// Nodes of the graph.
    n_nodes: usize,
    /// First the nodes whose features are read, then the nodes that each layer computes.
    sets: Vec<Nodes>,
    chunk_bytes: usize,
    weights: Array<f32>,
    /// Of no use, as nothing is dropped; kernels read them all the same.
    settings: Array<RawSettings>,
    streams: Array<[u32; 12]>,
    /// Hidden features: of the layer that is computed, and of the next.
    hidden: [Array<f32>; 2],
    /// Products of the same nodes as targets of a dynamic attention.
    targets: [Array<f32>; 2],
    /// Edges from each node of the graph, for a GCN, and its factors of the nodes that a layer reads.
    out_degrees: Option<Array<u32>>,
    degree_factors: Array<f32>,
    /// Chunks of lists that are on the GPU, made once for each layer; those of layers that compute all nodes are the same.
    chunks: Vec<Vec<KnownChunk>>,
    chunk: Chunk,
    arena: Arena,
}

#[derive(Clone, Copy, Debug)]
struct InferenceLayer {
    plan: LayerPlan,
    layer: Layer,
    module: ModuleId,
}

/// Validation and test nodes on a GPU.
#[derive(Debug)]
pub struct EvaluationSets {
    sets: [LabeledSet; 2],
    parts: Array<f64>,
}

impl EvaluationSets {
    /// Copies both.
    pub fn new(gpu: &Gpu, sets: &[LabeledNodes; 2], n_classes: usize) -> Result<EvaluationSets, GpuError> {
        let [valid, test] = sets;
        Ok(EvaluationSets {
            sets: [LabeledSet::new(gpu, valid, n_classes, 1)?, LabeledSet::new(gpu, test, n_classes, 1)?],
            parts: Array::zeros(gpu, N_PARTS, "losses")?,
        })
    }
}

impl Inference {
    /// Bytes of the hidden features of two layers, and of what is known of nodes: ids, places, degrees and pieces of lists.
    /// `counts` are the numbers of nodes whose features are read, and that each layer computes, of a graph of `n_nodes`.
    pub fn n_bytes(plan: &ProgramPlan, counts: &[u64], n_nodes: u64) -> u64 {
        let n_products = |layer: &LayerPlan| 1 + u64::from(layer.targets.is_some());
        let strides = plan.layers.iter().map(|layer| n_products(layer) * u64::from(layer.layer(0, 0).stride));
        let mut largest = counts.to_vec();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        let n_hidden: u64 = largest.iter().take(2).sum();
        let of_nodes = 32 * counts.iter().sum::<u64>() + 4 * (counts.len() as u64 + 1) * n_nodes;
        4 * n_hidden * strides.max().unwrap_or(0) + of_nodes + CHUNK_BYTES as u64
    }

    /// A model without weights yet, over all nodes of a graph.
    pub fn new(gpu: &Gpu, plan: &ProgramPlan, n_nodes: usize) -> Result<Inference, GpuError> {
        Inference::of_nodes(gpu, plan, n_nodes, vec![None; plan.layers.len() + 1])
    }

    /// The same over some nodes of a graph: ids, ascending, of the nodes whose features are read and of those that each layer
    /// computes, or `None` for all. A layer reads what the one before it computes, and computes no other nodes.
    pub fn of_nodes(
        gpu: &Gpu,
        plan: &ProgramPlan,
        n_nodes: usize,
        sets: Vec<Option<Vec<u32>>>,
    ) -> Result<Inference, GpuError> {
        assert_eq!(sets.len(), plan.layers.len() + 1, "features, and every layer");
        assert!(plan.stack.is_none(), "graph layers alone");
        let is_within = |pair: &[Option<Vec<u32>>]| match (&pair[0], &pair[1]) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(read), Some(computed)) => computed.iter().all(|id| read.binary_search(id).is_ok()),
        };
        assert!(sets.windows(2).all(is_within), "a layer computes only nodes that it reads");
        let layer = |(index, own): (usize, &LayerPlan)| {
            let layer = own.layer(index, plan.n_weights);
            let module = gpu.machine().compile(&[Constants::of(&layer)])?[0];
            Ok(InferenceLayer { plan: *own, layer, module })
        };
        let hidden = || Array::zeros(gpu, 0, HIDDEN);
        Ok(Inference {
            layers: plan.layers.iter().enumerate().map(layer).collect::<Result<_, GpuError>>()?,
            n_nodes,
            sets: sets.into_iter().map(|ids| Nodes::new(gpu, n_nodes, ids)).collect::<Result<_, _>>()?,
            chunk_bytes: CHUNK_BYTES,
            weights: Array::zeros(gpu, plan.n_weights, "weights")?,
            settings: Array::zeros(gpu, 1, "settings")?,
            streams: Array::zeros(gpu, plan.layers.len(), "streams")?,
            hidden: [hidden()?, hidden()?],
            targets: [hidden()?, hidden()?],
            out_degrees: None,
            degree_factors: Array::zeros(gpu, 0, "factors of neighbors")?,
            chunks: Vec::new(),
            chunk: Chunk::new(gpu)?,
            arena: Arena::new(gpu, "a chunk of nodes")?,
            gpu: gpu.clone(),
        })
    }

    /// The same in chunks of about `n_bytes`, where neighbor lists are on the GPU.
    pub fn with_chunk_bytes(self, n_bytes: usize) -> Inference {
        Inference { chunk_bytes: n_bytes, ..self }
    }

    /// Layers of the model.
    pub fn n_layers(&self) -> usize {
        self.layers.len()
    }

    /// Begins with these weights.
    pub fn begin(&mut self, weights: &[f32]) -> Result<(), GpuError> {
        self.make_room(0)?;
        self.weights.write(weights)
    }

    /// True if a layer needs the edges from each node in the whole graph.
    pub fn needs_out_degrees(&self) -> bool {
        self.out_degrees.is_none() && self.layers.iter().any(|layer| layer.plan.kind == LayerKind::Convolution)
    }

    /// Takes the number of edges from each node, self-loops left out.
    pub fn set_out_degrees(&mut self, degrees: &[u32]) -> Result<(), GpuError> {
        assert_eq!(degrees.len(), self.n_nodes, "the degrees of all nodes");
        self.out_degrees = Some(Array::of(&self.gpu, degrees, "degrees")?);
        Ok(())
    }

    /// Multiplies features, which the GPU reads itself, with the weights of the first layer.
    pub fn multiply_known(&mut self, features: &Features) -> Result<(), GpuError> {
        assert_eq!(features.n_nodes(), self.n_nodes, "the features of all nodes");
        let (read, dim) = (&self.sets[0], features.dim());
        if let Some(values) = features.on_device().filter(|_| read.are_all()) {
            return self.multiply(0, 0, self.stored(read.len(), values));
        }
        let n_together = (GATHERED_BYTES / (4 * dim.max(1))).clamp(1, read.len().max(1));
        let rows = Array::zeros(&self.gpu, n_together * dim, "features of a chunk")?;
        for first in (0..read.len()).step_by(n_together) {
            let n = n_together.min(read.len() - first);
            features.gather(&self.gpu, (read.ids_on_gpu(first), first as u64), n, &rows)?;
            self.multiply(0, first, self.stored(n, rows.at()))?;
        }
        Ok(())
    }

    /// Multiplies the features of the nodes that are read, from place `first` on, with the weights of the first layer.
    pub fn multiply_rows(&mut self, first: usize, rows: &InputRows) -> Result<(), GpuError> {
        assert!(first + rows.n_rows() <= self.sets[0].len(), "features of nodes that are read");
        let placed = self.arena.fill(|sink| PlacedRows::place(sink, rows))?;
        match placed {
            PlacedRows::Dense(values) => self.multiply(0, first, self.stored(rows.n_rows(), values)),
            PlacedRows::Sparse(sparse) => self.multiply_sparse(first, sparse),
        }
    }

    /// Begins a layer: the hidden features of the next get room.
    pub fn begin_layer(&mut self, layer: usize) -> Result<(), GpuError> {
        if layer > 0 {
            self.hidden.swap(0, 1);
            self.targets.swap(0, 1);
        }
        self.make_factors(layer)?;
        if layer + 1 < self.layers.len() { self.make_room(layer + 1) } else { Ok(()) }
    }

    /// Makes chunks of lists that are on the GPU, once, before the first layer.
    pub fn make_chunks(&mut self, lists: &GraphLists) -> Result<(), GpuError> {
        if self.needs_out_degrees() {
            let counts = Array::zeros(&self.gpu, self.n_nodes, "degrees")?;
            lists.count_sources(&self.gpu, &counts)?;
            self.out_degrees = Some(counts);
        }
        if self.chunks.is_empty() {
            let (n_read, stride) = (self.layers.len(), self.stride());
            self.sets[..n_read].iter_mut().try_for_each(|read| read.make_places(&self.gpu, self.n_nodes))?;
            let chunks = |nodes| KnownChunk::all(&self.gpu, lists.bounds(), nodes, stride, self.chunk_bytes);
            // Layers that compute all nodes come first: of their chunks the first layer's are enough.
            let is_again = |layer: usize| layer > 0 && self.sets[layer + 1].are_all();
            let of_layer = |layer| if is_again(layer) { Ok(Vec::new()) } else { chunks(&self.sets[layer + 1]) };
            self.chunks = (0..n_read).map(of_layer).collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// Number of chunks of a layer.
    pub fn n_chunks(&self, layer: usize) -> usize {
        self.chunks[self.layer_of_chunks(layer)].len()
    }

    fn layer_of_chunks(&self, layer: usize) -> usize {
        if self.sets[layer + 1].are_all() { 0 } else { layer }
    }

    /// Computes a layer for a chunk of lists that are on the GPU; places of the chunk's nodes.
    pub fn compute_known(&mut self, layer: usize, lists: &GraphLists, chunk: usize) -> Result<Range<u64>, GpuError> {
        let known = &self.chunks[self.layer_of_chunks(layer)][chunk];
        self.chunk.take(&self.gpu, known, lists, [&self.sets[layer], &self.sets[layer + 1]])?;
        self.compute(layer)
    }

    /// Computes a layer for nodes from place `first` on, with the neighbors of each; their places. Neighbors, and the nodes
    /// themselves in `own`, are places among the nodes that the layer reads; if it computes all nodes, there is no `own`.
    pub fn compute_given(
        &mut self,
        layer: usize,
        (first, own): (u64, Option<&[u32]>),
        counts: &[u32],
        neighbors: &[u32],
    ) -> Result<Range<u64>, GpuError> {
        assert_eq!(own.is_none(), self.sets[layer + 1].are_all(), "places of some nodes");
        self.chunk.place(&mut self.arena, first as u32, own, counts, neighbors)?;
        self.compute(layer)
    }

    /// Outputs of a layer for the nodes of the chunk, with bias: heads side by side, or their mean.
    pub fn outputs(&self, layer: usize) -> Result<Vec<f32>, GpuError> {
        let InferenceLayer { plan, layer: shape, .. } = &self.layers[layer];
        let bias = match plan.bias {
            Some(bias) => self.weights.read_part(bias..bias + plan.n_outputs())?,
            None => vec![0.0; plan.n_outputs()],
        };
        let mut outputs = Vec::with_capacity(self.chunk.n_nodes() * bias.len());
        for output in self.chunk.outputs.read()?.chunks_exact(shape.stride as usize) {
            let heads = || output.chunks_exact(shape.padded as usize);
            for (place, bias) in bias.iter().enumerate() {
                let (head, feature) = (place / plan.features, place % plan.features);
                outputs.push(match plan.is_mean {
                    true => heads().map(|head| head[feature]).sum::<f32>() / plan.heads as f32 + bias,
                    false => output[head * shape.padded as usize + feature] + bias,
                });
            }
        }
        Ok(outputs)
    }

    /// Gives back the memory of hidden features and of chunks: training needs it.
    pub fn release(&mut self) -> Result<(), GpuError> {
        let hidden = || Array::zeros(&self.gpu, 0, HIDDEN);
        self.hidden = [hidden()?, hidden()?];
        self.targets = [hidden()?, hidden()?];
        self.chunk = Chunk::new(&self.gpu)?;
        self.arena = Arena::new(&self.gpu, "a chunk of nodes")?;
        Ok(())
    }

    /// Begins an evaluation of labeled nodes.
    pub fn begin_sets(&self, sets: &EvaluationSets) -> Result<(), GpuError> {
        sets.sets.iter().try_for_each(LabeledSet::begin)
    }

    /// Evaluates the labeled nodes of the chunk by the outputs of the last layer.
    pub fn measure(&self, sets: &EvaluationSets) -> Result<(), GpuError> {
        let InferenceLayer { layer, module, .. } = self.layers.last().expect("a model has layers");
        let outputs = Outputs {
            layer: *layer,
            module: *module,
            weights: self.weights.at(),
            outputs: self.chunk.outputs.at(),
            first: self.chunk.first(),
            n_nodes: self.chunk.n_nodes() as u32,
        };
        sets.sets.iter().try_for_each(|set| set.measure(&self.gpu, 1, &outputs))
    }

    /// The results for validation and test nodes, after all chunks.
    pub fn finish_sets(&self, sets: &EvaluationSets) -> Result<[Measured; 2], GpuError> {
        let module = self.layers[0].module;
        let sum = Sum { gpu: &self.gpu, module, n_runs: 1, parts: sets.parts.at() };
        let [valid, test] = &sets.sets;
        Ok([valid.finish(&sum)?[0], test.finish(&sum)?[0]])
    }

    /// Room for the hidden features of any layer: those of the first, or of the next.
    fn make_room(&mut self, layer: usize) -> Result<(), GpuError> {
        let (n_nodes, stride) = (self.sets[layer].len(), self.stride());
        let place = usize::from(layer > 0);
        if self.layers[layer].plan.targets.is_some() {
            self.targets[place].fit(n_nodes * stride)?;
        }
        self.hidden[place].fit(n_nodes * stride).map(drop)
    }

    /// Numbers of a node in the widest layer.
    fn stride(&self) -> usize {
        self.layers.iter().map(|layer| layer.layer.stride as usize).max().unwrap_or(0)
    }
}
