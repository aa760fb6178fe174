//! Evaluation of a model over all nodes of a graph: exact, layer by layer, in chunks of destinations.
//!
//! The hidden features of all nodes (the products with a layer's weights) are on the GPU, for one layer and the next;
//! outputs exist for one chunk. Neighbor lists and features are on the GPU, or come chunk by chunk from the host. The size of
//! chunks changes no bit.

mod chunk;

use std::ops::Range;

use bytemuck::Zeroable;

use self::chunk::{Chunk, KnownChunk};
use super::{
    arena::Arena,
    args::args,
    compile::Constants,
    error::GpuError,
    features::Features,
    graph::Items,
    labeled::{LabeledNodes, LabeledSet, Measured, Outputs},
    layer::{Layer, LayerKind, LayerPlan, N_THREADS, WARPS},
    machine::{Gpu, ModuleId},
    memory::{Address, Array},
    program::{Input, ProgramPlan, RawSettings, TILE_COLUMNS, TILE_ROWS, TILE_THREADS},
    rows::{PlacedRows, SparseRows},
    sampler::GraphLists,
    sum::{N_PARTS, Sum},
};
use crate::rows::InputRows;

/// Bytes of features that are gathered together, about.
const GATHERED_BYTES: usize = 64 << 20;

/// Bytes that the outputs of a chunk and its lists take, about.
const CHUNK_BYTES: usize = 512 << 20;

const HIDDEN: &str = "hidden features of all nodes";

/// A model over all nodes.
#[derive(Debug)]
pub struct Inference {
    gpu: Gpu,
    layers: Vec<InferenceLayer>,
    n_nodes: usize,
    chunk_bytes: usize,
    weights: Array<f32>,
    /// Of no use, as nothing is dropped; kernels read them all the same.
    settings: Array<RawSettings>,
    streams: Array<[u32; 8]>,
    /// Hidden features of all nodes: of the layer that is computed, and of the next.
    hidden: [Array<f32>; 2],
    /// Factors of a GCN, for all nodes.
    degree_factors: Option<Array<f32>>,
    /// Chunks of lists that are on the GPU, made once.
    chunks: Vec<KnownChunk>,
    chunk: Chunk,
    arena: Arena,
}

#[derive(Debug)]
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
    /// Bytes of the hidden features of all nodes, of two layers.
    pub fn n_bytes(plan: &ProgramPlan, n_nodes: u64) -> u64 {
        let strides = plan.layers.iter().map(|layer| layer.layer(0, 0).stride.into());
        2 * 4 * n_nodes * strides.max().unwrap_or(0) + CHUNK_BYTES as u64
    }

    /// A model without weights yet.
    pub fn new(gpu: &Gpu, plan: &ProgramPlan, n_nodes: usize) -> Result<Inference, GpuError> {
        let layer = |(index, own): (usize, &LayerPlan)| {
            let layer = own.layer(index, plan.n_weights);
            let module = gpu.machine().compile(&[Constants::of(&layer)])?[0];
            Ok(InferenceLayer { plan: *own, layer, module })
        };
        let hidden = || Array::zeros(gpu, 0, HIDDEN);
        Ok(Inference {
            layers: plan.layers.iter().enumerate().map(layer).collect::<Result<_, GpuError>>()?,
            n_nodes,
            chunk_bytes: CHUNK_BYTES,
            weights: Array::zeros(gpu, plan.n_weights, "weights")?,
            settings: Array::zeros(gpu, 1, "settings")?,
            streams: Array::zeros(gpu, plan.layers.len(), "streams")?,
            hidden: [hidden()?, hidden()?],
            degree_factors: None,
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
        self.degree_factors.is_none() && self.layers.iter().any(|layer| layer.plan.kind == LayerKind::Convolution)
    }

    /// Takes the number of edges from each node, self-loops left out.
    pub fn set_out_degrees(&mut self, degrees: &[u32]) -> Result<(), GpuError> {
        let counts = Array::of(&self.gpu, degrees, "degrees")?;
        self.take_degrees(&counts)
    }

    /// Multiplies the features of all nodes, which the GPU reads, with the weights of the first layer.
    pub fn multiply_known(&mut self, features: &Features) -> Result<(), GpuError> {
        assert_eq!(features.n_nodes(), self.n_nodes, "the features of all nodes");
        if let Some(values) = features.on_device() {
            return self.multiply(0, 0, self.stored(self.n_nodes, values));
        }
        let n_together = (GATHERED_BYTES / (4 * features.dim().max(1))).clamp(1, self.n_nodes.max(1));
        let rows = Array::zeros(&self.gpu, n_together * features.dim(), "features of a chunk")?;
        for first in (0..self.n_nodes).step_by(n_together) {
            let n = n_together.min(self.n_nodes - first);
            features.gather(&self.gpu, (Address::NONE, first as u64), n, &rows)?;
            self.multiply(0, first, self.stored(n, rows.at()))?;
        }
        Ok(())
    }

    /// Multiplies the features of nodes from `first` on with the weights of the first layer.
    pub fn multiply_rows(&mut self, first: usize, rows: &InputRows) -> Result<(), GpuError> {
        assert!(first + rows.n_rows() <= self.n_nodes, "features of nodes of the graph");
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
        }
        if layer + 1 < self.layers.len() { self.make_room(layer + 1) } else { Ok(()) }
    }

    /// Chunks of lists that are on the GPU, in order.
    pub fn known_chunks(&mut self, lists: &GraphLists) -> Result<usize, GpuError> {
        if self.needs_out_degrees() {
            let counts = Array::zeros(&self.gpu, self.n_nodes, "degrees")?;
            lists.count_sources(&self.gpu, &counts)?;
            self.take_degrees(&counts)?;
        }
        if self.chunks.is_empty() {
            self.chunks = KnownChunk::all(&self.gpu, lists.bounds(), self.stride(), self.chunk_bytes)?;
        }
        Ok(self.chunks.len())
    }

    /// Computes a layer for a chunk of lists that are on the GPU; the nodes of the chunk.
    pub fn compute_known(&mut self, layer: usize, lists: &GraphLists, chunk: usize) -> Result<Range<u64>, GpuError> {
        self.chunk.take(&self.gpu, &self.chunks[chunk], lists)?;
        self.compute(layer)
    }

    /// Computes a layer for nodes from `first` on, with the neighbors of each; the nodes.
    pub fn compute_given(
        &mut self,
        layer: usize,
        first: u64,
        counts: &[u32],
        neighbors: &[u32],
    ) -> Result<Range<u64>, GpuError> {
        self.chunk.place(&mut self.arena, first as u32, counts, neighbors)?;
        self.compute(layer)
    }

    /// Outputs of a layer for the nodes of the chunk, with bias: heads side by side, or their mean.
    pub fn outputs(&self, layer: usize) -> Result<Vec<f32>, GpuError> {
        let InferenceLayer { plan, layer: shape, .. } = &self.layers[layer];
        let bias = self.weights.read_part(plan.bias..plan.bias + plan.n_outputs())?;
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
        let stride = self.stride();
        self.hidden[usize::from(layer > 0)].fit(self.n_nodes * stride).map(drop)
    }

    /// Numbers of a node in the widest layer.
    fn stride(&self) -> usize {
        self.layers.iter().map(|layer| layer.layer.stride as usize).max().unwrap_or(0)
    }

    fn take_degrees(&mut self, counts: &Array<u32>) -> Result<(), GpuError> {
        assert_eq!(counts.len(), self.n_nodes, "the degrees of all nodes");
        let factors = Array::zeros(&self.gpu, self.n_nodes, "factors of neighbors")?;
        let n_nodes = self.n_nodes as u32;
        let mut args = args![counts.at(), n_nodes, factors.at()];
        let grid = [n_nodes.div_ceil(N_THREADS), 1, 1];
        self.gpu.launch(self.layers[0].module, "kith_degree_factors", grid, N_THREADS, &mut args)?;
        self.degree_factors = Some(factors);
        Ok(())
    }

    fn stored(&self, n_rows: usize, values: Address) -> Input {
        Input { n_rows: n_rows as u32, dim: self.layers[0].layer.dim, stored: values, ..Input::zeroed() }
    }

    /// Hidden features of a layer for nodes from `first` on.
    fn multiply(&self, layer: usize, first: usize, input: Input) -> Result<(), GpuError> {
        let InferenceLayer { layer: shape, module, .. } = &self.layers[layer];
        let n_tiles = input.n_rows.div_ceil(TILE_ROWS) * shape.stride.div_ceil(TILE_COLUMNS);
        let (weights, settings, streams) = (self.weights.at(), self.settings.at(), self.streams.at());
        let mut args =
            args![*shape, input, weights, settings, streams, self.layers.len() as u32, 0u32, self.to(layer, first)];
        self.gpu.launch(*module, "kith_multiply", [n_tiles, 1, 1], TILE_THREADS, &mut args)
    }

    fn multiply_sparse(&self, first: usize, sparse: SparseRows) -> Result<(), GpuError> {
        let InferenceLayer { layer: shape, module, .. } = &self.layers[0];
        let (weights, settings, streams) = (self.weights.at(), self.settings.at(), self.streams.at());
        let mut args =
            args![*shape, sparse, weights, settings, streams, self.layers.len() as u32, 0u32, self.to(0, first)];
        let grid = [sparse.n_rows().div_ceil(WARPS), 1, 1];
        self.gpu.launch(*module, "kith_multiply_sparse", grid, N_THREADS, &mut args)
    }

    /// Address of a node's hidden features.
    fn to(&self, layer: usize, node: usize) -> Address {
        let stride = self.layers[layer].layer.stride as usize;
        Address(self.hidden[usize::from(layer > 0)].at().0 + (4 * node * stride) as u64)
    }

    /// Computes a layer for the chunk, and the hidden features of the next layer.
    fn compute(&mut self, layer: usize) -> Result<Range<u64>, GpuError> {
        let InferenceLayer { plan, layer: shape, module } = &self.layers[layer];
        self.chunk.fit(plan, shape)?;
        match plan.kind {
            LayerKind::Attention(_) => self.attend(shape, *module)?,
            LayerKind::Convolution | LayerKind::Mean | LayerKind::Own => self.aggregate(plan.kind, shape, *module)?,
        }
        let first = self.chunk.first() as usize;
        if layer + 1 < self.layers.len() {
            let input = Input {
                n_rows: self.chunk.n_nodes() as u32,
                dim: self.layers[layer + 1].layer.dim,
                hidden: self.chunk.outputs.at(),
                hidden_features: shape.features,
                hidden_padded: shape.padded,
                hidden_stride: shape.stride,
                hidden_bias: shape.bias,
                ..Input::zeroed()
            };
            self.multiply(layer + 1, first, input)?;
        }
        Ok(first as u64..(first + self.chunk.n_nodes()) as u64)
    }

    fn attend(&self, shape: &Layer, module: ModuleId) -> Result<(), GpuError> {
        let Chunk { outputs, records, slot_sums, slot_totals, .. } = &self.chunk;
        let (graph, Items { items, n_items, split, n_split, n_slots }) = self.chunk.graph(self.n_nodes);
        let mut args = args![
            *shape,
            graph,
            items,
            n_items,
            self.weights.at(),
            self.hidden[0].at(),
            Address::NONE,
            self.settings.at(),
            outputs.at(),
            records.at(),
            slot_sums.at(),
            slot_totals.at(),
            n_slots as u32
        ];
        self.gpu.launch(module, "kith_attend", [n_items.div_ceil(WARPS), 1, 1], N_THREADS, &mut args)?;
        let mut args = args![
            *shape,
            graph.n_destinations,
            split,
            n_split,
            outputs.at(),
            records.at(),
            slot_sums.at(),
            slot_totals.at(),
            n_slots as u32
        ];
        self.gpu.launch(module, "kith_attend_join", [n_split.div_ceil(WARPS), 1, 1], N_THREADS, &mut args)
    }

    fn aggregate(&self, kind: LayerKind, shape: &Layer, module: ModuleId) -> Result<(), GpuError> {
        let Chunk { outputs, factors, slot_sums, .. } = &self.chunk;
        let (graph, Items { items, n_items, split, n_split, n_slots }) = self.chunk.graph(self.n_nodes);
        let factors = match (kind, &self.degree_factors) {
            (LayerKind::Convolution, Some(factors)) => factors.at(),
            (LayerKind::Convolution, None) => unreachable!("degrees come before the first layer"),
            _ => factors.at(),
        };
        if kind == LayerKind::Mean {
            let grid = [graph.n_destinations.div_ceil(N_THREADS), 1, 1];
            self.gpu.launch(module, "kith_factors", grid, N_THREADS, &mut args![*shape, graph, factors])?;
        }
        let (hidden, slots, n_slots) = (self.hidden[0].at(), slot_sums.at(), n_slots as u32);
        let mut args = args![*shape, graph, 1u32, items, n_items, factors, hidden, outputs.at(), slots, n_slots];
        self.gpu.launch(module, "kith_aggregate", [n_items.div_ceil(WARPS), 1, 1], N_THREADS, &mut args)?;
        let (n_nodes, first) = (graph.n_destinations, graph.first);
        let mut args = args![*shape, n_nodes, first, 1u32, split, n_split, factors, outputs.at(), slots, n_slots];
        self.gpu.launch(module, "kith_aggregate_join", [n_split.div_ceil(WARPS), 1, 1], N_THREADS, &mut args)
    }
}
