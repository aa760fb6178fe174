//! Work of a mini-batch: the counts that the time of a step is made of.

use kith_client::{Batch, Found};
use kith_run::{
    choice::Choice, config::RunConfig, graph_size::LayerSize, memory_plan::BatchSize, model_kind::ModelKind,
};

use crate::constants::N_PARTS;

/// A count of what this host has, and of what servers on other hosts have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Split {
    pub(crate) local: f64,
    pub(crate) remote: f64,
}

impl Split {
    fn add(&mut self, is_remote: bool, n: f64) {
        *if is_remote { &mut self.remote } else { &mut self.local } += n;
    }
}

/// A layer of the model on a block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LayerWork {
    /// Numbers that are multiplied and added by the weight matrix, forward and backward.
    pub(crate) multiplies: f64,
    /// Numbers of the input, forward and backward.
    pub(crate) inputs: f64,
    /// Edges, self-loops included, times heads.
    pub(crate) edges: f64,
    /// Edges times heads and their features.
    pub(crate) features: f64,
    /// Pairs of the edge loss, times heads and their features.
    pub(crate) pairs: f64,
}

/// One mini-batch: the slice of a rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Work {
    pub(crate) seeds: f64,
    /// Nodes that are expanded, all hops together.
    pub(crate) frontier: Split,
    /// Edges that are drawn.
    pub(crate) drawn: Split,
    /// Feature vectors; those in a cache are local.
    pub(crate) vectors: Split,
    /// Pairs that are looked up, all attempts together.
    pub(crate) looked_up: Split,
    /// Rounds of calls, each of which needs the answers of the one before.
    pub(crate) rounds: f64,
    pub(crate) layers: Vec<LayerWork>,
    /// Sizes in memory.
    pub(super) size: BatchSize,
}

/// Widths of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LayerShape {
    input: f64,
    heads: f64,
    /// Heads times features per head.
    output: f64,
}

/// Widths of a model's layers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    /// Name of the model's constants.
    pub(crate) model: &'static str,
    layers: Vec<LayerShape>,
}

impl Shape {
    /// Shape of a run's model on a graph with features of `dim` and `n_classes`.
    pub(crate) fn new(config: &RunConfig, dim: usize, n_classes: usize) -> Shape {
        let model = &config.model;
        let heads = |n: usize| if model.kind.has_attention() { n } else { 1 };
        let hidden = heads(model.heads) * model.hidden;
        let has_linear = model.output_linear == Some(true);
        let layer = |layer: usize| {
            let input = if layer == 0 { dim } else { hidden } as f64;
            let (heads, output) = if layer + 1 == model.n_layers && !has_linear {
                (heads(model.out_heads), heads(model.out_heads) * n_classes)
            } else {
                (heads(model.heads), hidden)
            };
            LayerShape { input, heads: heads as f64, output: output as f64 }
        };
        Shape { model: model.kind.name(), layers: (0..model.n_layers).map(layer).collect() }
    }

    /// Weights of all layers; norms, biases and residuals are left out.
    pub(crate) fn n_weights(&self) -> f64 {
        let attention = if matches!(self.model, "gat" | "supergat") { 2.0 } else { 1.0 };
        let matrices = if self.model == ModelKind::Gin.name() { 2.0 } else { 1.0 };
        let of = |LayerShape { input, output, .. }: &LayerShape| input * output * matrices + attention * output;
        self.layers.iter().map(of).sum()
    }

    /// Work of a layer on a block with these sources, destinations, edges and pairs.
    fn layer(&self, place: usize, block: [f64; 4]) -> LayerWork {
        let LayerShape { input, heads, output } = self.layers[place];
        let [n_sources, n_destinations, n_edges, n_pairs] = block;
        // The gradients of the weights and of the input; the first layer has none of its input.
        let backward = if place == 0 { 1.0 } else { 2.0 };
        // In an MLP, each node has its self-loop alone.
        let n_edges = if self.model == ModelKind::Mlp.name() { n_destinations } else { n_edges };
        LayerWork {
            multiplies: (1.0 + backward) * n_sources * input * output,
            inputs: backward * n_sources * input,
            edges: n_edges * heads,
            features: n_edges * output,
            pairs: n_pairs * output,
        }
    }
}

/// Bytes of a drawn edge while its block is made.
const DRAWN_BYTES: u64 = 12;

/// Sizes of a mini-batch that was sampled without features, of nodes that have `dim` of them.
fn size_of(batch: &Batch, dim: u64) -> BatchSize {
    let layers: Vec<LayerSize> = batch
        .blocks
        .iter()
        .map(|block| LayerSize {
            n_sources: block.n_sources() as u64,
            n_destinations: block.n_destinations() as u64,
            n_edges: block.n_edges() as u64,
        })
        .collect();
    let n_nodes = batch.nodes.len() as u64;
    BatchSize {
        bytes: batch.memory_bytes() + 4 * dim * n_nodes,
        scratch_bytes: DRAWN_BYTES * layers.iter().map(|layer| layer.n_edges).max().unwrap_or(0),
        n_nodes,
        layers,
        n_pairs: batch.pairs.iter().map(|pairs| pairs.n_pairs() as u64).sum(),
    }
}

impl Work {
    /// Counts a mini-batch. `looked_up` are the destinations of the pairs that were looked up in `attempts` rounds; `find` tells where
    /// a node is.
    pub(crate) fn of(
        batch: &Batch,
        shape: &Shape,
        (looked_up, attempts): (&[u64], usize),
        find: impl Fn(u64) -> Found,
    ) -> Work {
        let size = size_of(batch, shape.layers[0].input as u64);
        let mut work = Work { seeds: batch.seeds.len() as f64, size, ..Work::default() };
        // Hops, then features and pairs at the same time.
        work.rounds = (batch.blocks.len() + attempts.max(1)) as f64;
        for (place, block) in batch.blocks.iter().enumerate() {
            for (position, bounds) in block.indptr().windows(2).enumerate() {
                let is_remote = find(block.id(position)) != Found::Local;
                work.frontier.add(is_remote, 1.0);
                // Every destination has a self-loop, which is not drawn.
                work.drawn.add(is_remote, (bounds[1] - bounds[0]) as f64 - 1.0);
            }
            let n_pairs = batch.pairs.get(place).map_or(0, |pairs| pairs.n_pairs());
            let counts = [block.n_sources(), block.n_destinations(), block.n_edges(), n_pairs];
            work.layers.push(shape.layer(place, counts.map(|n| n as f64)));
        }
        batch.nodes.iter().for_each(|node| work.vectors.add(find(*node) == Found::Remote, 1.0));
        looked_up.iter().for_each(|node| work.looked_up.add(find(*node) != Found::Local, 1.0));
        work
    }

    /// Work beside the constants `local.…`: in a rank's own files.
    pub(crate) fn local(&self, vector_bytes: f64) -> [f64; 5] {
        let Work { drawn, vectors, looked_up, .. } = self;
        let any = if drawn.local > 0.0 { 1.0 } else { 0.0 };
        [any, drawn.local, vectors.local, vectors.local * vector_bytes, looked_up.local]
    }

    /// Work beside the constants `client.…` and `server.…`: calls to `n_servers` servers, all of them together.
    pub(crate) fn client(&self, vector_bytes: f64, n_servers: f64) -> [f64; 5] {
        let Work { drawn, vectors, looked_up, .. } = self;
        [self.calls(n_servers), drawn.remote, vectors.remote, vectors.remote * vector_bytes, looked_up.remote]
    }

    /// Work beside the constants of a model.
    pub(crate) fn compute(&self) -> [f64; N_PARTS] {
        let sum = |part: fn(&LayerWork) -> f64| self.layers.iter().map(part).sum();
        [
            1.0,
            sum(|layer| layer.multiplies),
            sum(|layer| layer.inputs),
            sum(|layer| layer.edges),
            sum(|layer| layer.features),
            sum(|layer| layer.pairs),
        ]
    }

    /// Calls to servers. Every round asks each of them.
    fn calls(&self, n_servers: f64) -> f64 {
        if self.drawn.remote + self.vectors.remote + self.looked_up.remote == 0.0 {
            0.0
        } else {
            self.rounds * n_servers
        }
    }

    /// Bytes of requests, and of answers, as `kith plan` counts them.
    pub(crate) fn remote_bytes(&self, vector_bytes: f64, id_bytes: f64) -> (f64, f64) {
        let Work { frontier, drawn, vectors, looked_up, .. } = self;
        let requests = (frontier.remote + vectors.remote + 2.0 * looked_up.remote) * id_bytes;
        // A bit for each pair.
        let answers = 4.0 * frontier.remote + drawn.remote * id_bytes + vectors.remote * vector_bytes;
        (requests, answers + looked_up.remote / 8.0)
    }
}
