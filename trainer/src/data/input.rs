//! Input of a model from a store: edges, features, labels and the split, one graph at a time.

use std::sync::Arc;

use kith_block::Block;
pub use kith_client::Labels;
use kith_kernels::InputRows;
use kith_run::config::{ModelConfig, Supervision};
use kith_sampler::EdgeData;
use kith_store::{Features, Graph, LabelKind, Split, SplitPart};

use crate::{
    data::{
        link_pairs::Links,
        target_scale::{TargetScale, standardize},
    },
    error::TrainError,
};

/// Input of a forward pass: the block of every layer, first layer first, and the features of the first block's sources.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The destinations of each are the sources of the next.
    pub blocks: Vec<Arc<Block>>,
    /// Rows of the store.
    pub rows: Arc<InputRows>,
}

/// Rows with a smaller share of values that are not zero are held sparse.
const SPARSE_BELOW: f64 = 0.25;

/// All graphs of a store in memory.
#[derive(Clone, Debug)]
pub struct Input {
    /// The graphs; usually one.
    pub graphs: Vec<GraphInput>,
    /// Length of a row.
    pub dim: usize,
    /// Classes are `0..n_classes`, or numbers of a node to predict; 0 where labels were not asked for. For link prediction, the width of outputs.
    pub n_classes: usize,
    /// Kind of the labels.
    pub label_kind: LabelKind,
    /// Scales of numbers to predict; empty for classes, and for numbers that are not standardized yet.
    pub scales: Vec<TargetScale>,
    /// Pairs that models are measured by instead of nodes; only for one graph.
    pub links: Option<Links>,
}

/// One graph in memory.
#[derive(Clone, Debug)]
pub struct GraphInput {
    /// Its edges; positions are in the order of the nodes' ids.
    pub block: Arc<Block>,
    /// Its features.
    pub rows: Arc<InputRows>,
    /// Its labels, by position; `None` where they were not asked for.
    pub labels: Option<Labels>,
    /// Positions that are trained on.
    pub train: Vec<u32>,
    /// Positions that choose settings and stop training.
    pub valid: Vec<u32>,
    /// Positions that are only measured.
    pub test: Vec<u32>,
    /// True if every edge has its reverse.
    pub is_symmetric: bool,
    /// True if it is one of a set of several graphs, where negatives avoid only edges, not their reverses.
    pub is_one_of_many: bool,
}

impl Input {
    /// Trains on the nodes that a kind of supervision says; the split's own parts stay what they are.
    pub fn supervise(&mut self, supervision: Supervision) {
        if supervision == Supervision::Split {
            return;
        }
        for graph in &mut self.graphs {
            let mut is_free: Vec<bool> = match &graph.labels {
                None => continue,
                Some(labels) => (0..graph.n_nodes()).map(|position| labels.has_label(position)).collect(),
            };
            let valid = if supervision == Supervision::Full { &graph.valid[..] } else { &[] };
            valid.iter().chain(&graph.test).for_each(|position| is_free[*position as usize] = false);
            graph.train = (0..graph.n_nodes() as u32).filter(|position| is_free[*position as usize]).collect();
        }
    }
}

impl Input {
    /// Turns numbers to predict into those that models learn, by the training nodes.
    pub fn standardize(&mut self) {
        let mut nodes: Vec<&[f32]> = Vec::new();
        for graph in &self.graphs {
            if let Some(Labels::Numbers { width, values }) = &graph.labels {
                nodes.extend(graph.train.iter().map(|position| &values[*position as usize * width..][..*width]));
            }
        }
        if self.label_kind == LabelKind::Targets {
            self.scales = TargetScale::of(self.n_classes, &nodes);
        }
        let scales = &self.scales;
        self.graphs.iter_mut().filter_map(|graph| graph.labels.as_mut()).for_each(|labels| standardize(labels, scales));
    }
}

impl Input {
    /// Reads the data of edges that a model needs; the store must have them.
    pub fn with_edge_data(mut self, store: &Graph, model: &ModelConfig) -> Result<Input, TrainError> {
        let wanted = edge_data_of(model);
        for graph in self.graphs.iter_mut().filter(|_| wanted != EdgeData::NONE) {
            graph.block = Arc::new(with_edge_data(&graph.block, store, wanted)?);
        }
        Ok(self)
    }
}

/// All graphs of a store, with labels and a split; the store's first if none is named.
pub fn load(store: &Graph, split: Option<&str>) -> Result<Input, TrainError> {
    let split = find_split(store, split)?;
    let labels = store.labels().ok_or(TrainError::NoLabels)?;
    let mut input = load_unlabeled(store)?;
    (input.n_classes, input.label_kind) = (labels.n_classes() as usize, labels.kind());

    let mut occurs = vec![labels.kind() == LabelKind::Targets; input.n_classes];
    for graph in &mut input.graphs {
        let n_nodes = graph.block.n_destinations();
        let nodes = (0..n_nodes).map(|position| graph.block.id(position));
        graph.labels = Some(read_labels(labels, nodes, &mut occurs)?);
        for position in 0..n_nodes {
            let node = graph.block.id(position);
            let part = match split.part(node)? {
                SplitPart::None => continue,
                SplitPart::Train => &mut graph.train,
                SplitPart::Valid => &mut graph.valid,
                SplitPart::Test => &mut graph.test,
            };
            if graph.labels.as_ref().is_some_and(|labels| !labels.has_label(position)) {
                return Err(TrainError::Unlabeled { node, split: split.name().to_owned() });
            }
            part.push(position as u32);
        }
    }
    check_classes(&occurs)?;
    type NodesOf = fn(&GraphInput) -> &Vec<u32>;
    let parts: [(&'static str, NodesOf); 3] =
        [("train", |graph| &graph.train), ("valid", |graph| &graph.valid), ("test", |graph| &graph.test)];
    for (part, of) in parts {
        if input.graphs.iter().all(|graph| of(graph).is_empty()) {
            return Err(TrainError::EmptyPart { split: split.name().to_owned(), part });
        }
    }
    Ok(input)
}

pub(crate) fn check_classes(occurs: &[bool]) -> Result<(), TrainError> {
    match occurs.iter().position(|occurs| !occurs) {
        Some(class) => Err(TrainError::ClassNeverOccurs { class: class as u64, n_classes: occurs.len() as u64 }),
        None => Ok(()),
    }
}

fn find_split<'a>(store: &'a Graph, name: Option<&str>) -> Result<&'a Split, TrainError> {
    let first = store.splits().first().ok_or(TrainError::NoSplit)?;
    let Some(name) = name else { return Ok(first) };
    store.splits().iter().find(|split| split.name() == name).ok_or_else(|| TrainError::UnknownSplit {
        name: name.to_owned(),
        available: store.splits().iter().map(|split| split.name().to_owned()).collect(),
    })
}

fn read_labels(
    labels: &kith_store::Labels,
    nodes: impl Iterator<Item = u64>,
    occurs: &mut [bool],
) -> Result<Labels, TrainError> {
    if labels.kind() == LabelKind::Targets {
        let mut values = Vec::new();
        for node in nodes {
            values.extend_from_slice(labels.numbers(node)?);
        }
        return Ok(Labels::Numbers { width: occurs.len(), values });
    }
    if labels.kind() == LabelKind::MultiLabel {
        let n_classes = occurs.len();
        let mut bits = Vec::with_capacity(nodes.size_hint().0 * n_classes);
        for node in nodes {
            let words = labels.bits(node)?;
            bits.extend((0..n_classes).map(|class| words[class / 64] >> (class % 64) & 1 == 1));
            let own = &bits[bits.len() - n_classes..];
            occurs.iter_mut().zip(own).for_each(|(occurs, has)| *occurs |= has);
        }
        return Ok(Labels::Bits { n_classes, bits });
    }
    let read = |node| -> Result<i64, TrainError> {
        let class = labels.class(node)?;
        class.inspect(|class| occurs[*class as usize] = true);
        Ok(class.map_or(-1, i64::from))
    };
    Ok(Labels::Classes(nodes.map(read).collect::<Result<_, _>>()?))
}

/// All graphs of a store without labels and splits: enough to predict.
pub fn load_unlabeled(store: &Graph) -> Result<Input, TrainError> {
    let rows = store.features().ok_or(TrainError::NoRows)?;
    let graphs = match store.graphs() {
        None => vec![load_whole(store, rows)?],
        Some(set) => {
            let mut nodes = vec![Vec::new(); set.n_graphs() as usize];
            let mut positions = Vec::with_capacity(store.n_nodes() as usize);
            for node in 0..store.n_nodes() {
                let own = &mut nodes[set.of(node)? as usize];
                positions.push(own.len() as u32);
                own.push(node);
            }
            let nodes = nodes.into_iter().filter(|nodes| !nodes.is_empty());
            nodes.map(|nodes| load_part(store, rows, nodes, &positions)).collect::<Result<_, _>>()?
        }
    };
    Ok(Input { graphs, dim: rows.dim(), n_classes: 0, label_kind: LabelKind::Classes, scales: Vec::new(), links: None })
}

fn load_whole(store: &Graph, rows: &Features) -> Result<GraphInput, TrainError> {
    let n_nodes = store.n_nodes();
    let block = Block::full(n_nodes, store.n_edges(), |node| {
        // Values are checked where they are used, and from here on they are positions.
        let sources = store.lists().of(node)?;
        match sources.iter().find(|source| *source >= n_nodes) {
            None => Ok::<_, TrainError>(sources.iter()),
            Some(_) => Err(kith_store::StoreError::damaged("indices", node).into()),
        }
    })?;
    Ok(GraphInput::unlabeled(
        block,
        read_rows(rows, n_nodes as usize, |position| position as u64)?,
        store.is_symmetric(),
        false,
    ))
}

/// Data of edges that a model reads.
pub(crate) fn edge_data_of(model: &ModelConfig) -> EdgeData {
    EdgeData { weights: model.has_edge_weights(), features: model.edge_dim() > 0, ids: false }
}

/// A graph's block with the wanted data of its edges; the store must have them.
fn with_edge_data(block: &Block, store: &Graph, wanted: EdgeData) -> Result<Block, TrainError> {
    let weights = store.edge_weights().filter(|_| wanted.weights);
    let features = store.edge_features().filter(|_| wanted.features);
    let dim = features.map_or(0, Features::dim);
    let n_others = block.n_edges() - block.n_destinations();
    let mut data = Vec::with_capacity(n_others * wanted.width(dim));
    for position in 0..block.n_destinations() {
        let node = block.id(position);
        let (start, end) = store.lists().bounds(node)?;
        let own = weights.map_or(Ok(&[][..]), |all| all.get(start, end))?;
        for (slot, source) in store.lists().of(node)?.iter().enumerate() {
            if source == node {
                continue; // A block has its own self-loops.
            }
            data.extend(own.get(slot));
            if let Some(features) = features {
                let len = data.len();
                data.resize(len + dim, 0.0);
                features.read((start + slot) as u64, &mut data[len..])?;
            }
        }
    }
    Ok(block.clone().with_data(&data, (weights.is_some(), dim)))
}

/// The graph of a set that these nodes make; `positions` are those of all nodes of the store in their graphs.
fn load_part(store: &Graph, rows: &Features, nodes: Vec<u64>, positions: &[u32]) -> Result<GraphInput, TrainError> {
    let mut n_edges = 0;
    for node in &nodes {
        n_edges += store.lists().of(*node)?.len() as u64;
    }
    let block = Block::full(nodes.len() as u64, n_edges, |position| {
        let node = nodes[position as usize];
        let sources = store.lists().of(node)?;
        let inside = |source: u64| {
            let position = *positions.get(source as usize)?;
            (nodes.get(position as usize) == Some(&source)).then_some(u64::from(position))
        };
        if let Some(source_node) = sources.iter().find(|source| inside(*source).is_none()) {
            return Err(TrainError::EdgeBetweenGraphs { node, source_node });
        }
        Ok(sources.iter().map(move |source| u64::from(positions[source as usize])))
    })?;
    let rows = read_rows(rows, nodes.len(), |position| nodes[position])?;
    Ok(GraphInput::unlabeled(block.with_ids(nodes), rows, store.is_symmetric(), true))
}

/// The rows of `n` nodes, by position; what is not a number was refused by import, and is damage here.
fn read_rows(rows: &Features, n: usize, node_at: impl Fn(usize) -> u64) -> Result<InputRows, TrainError> {
    let dim = rows.dim();
    let mut row = vec![0.0; dim];
    let mut n_not_zero = 0;
    for position in 0..n {
        n_not_zero += match rows.sparse(node_at(position))? {
            Some(sparse) => sparse.values.iter().filter(|value| **value != 0.0).count(),
            None => {
                rows.read(node_at(position), &mut row)?;
                row.iter().filter(|value| **value != 0.0).count()
            }
        };
    }
    if n_not_zero as f64 >= SPARSE_BELOW * (n * dim) as f64 {
        let mut values = vec![0.0; n * dim];
        for (position, out) in values.chunks_mut(dim.max(1)).enumerate() {
            rows.read(node_at(position), out)?;
        }
        return Ok(InputRows::Dense { dim, values });
    }
    let mut indptr = Vec::with_capacity(n + 1);
    let (mut columns, mut values) = (Vec::with_capacity(n_not_zero), Vec::with_capacity(n_not_zero));
    indptr.push(0);
    for position in 0..n {
        rows.read(node_at(position), &mut row)?;
        for (column, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            columns.push(column as u32);
            values.push(*value);
        }
        indptr.push(values.len());
    }
    Ok(InputRows::sparse(dim, indptr, columns, values))
}

impl GraphInput {
    fn unlabeled(block: Block, rows: InputRows, is_symmetric: bool, is_one_of_many: bool) -> GraphInput {
        GraphInput {
            block: Arc::new(block),
            rows: Arc::new(rows),
            labels: None,
            train: Vec::new(),
            valid: Vec::new(),
            test: Vec::new(),
            is_symmetric,
            is_one_of_many,
        }
    }

    /// Nodes of the graph.
    pub fn n_nodes(&self) -> usize {
        self.block.n_destinations()
    }

    /// True if a node may have several classes.
    pub fn has_several_classes(&self) -> bool {
        matches!(self.labels, Some(Labels::Bits { .. }))
    }

    /// Input of a forward pass over the whole graph, without labels.
    pub fn sample(&self, n_layers: usize) -> Sample {
        Sample { blocks: vec![Arc::clone(&self.block); n_layers], rows: Arc::clone(&self.rows) }
    }
}

#[cfg(test)]
mod tests;
