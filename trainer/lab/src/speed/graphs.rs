//! Random graphs with heavy-tailed degrees, in the sizes of real datasets.

use std::{path::Path, sync::Arc};

use kith_block::{Block, BlockError};
use kith_draw::{Name, Purpose, Stream};
use kith_kernels::InputRows;
use kith_store::{Contents, Dtype, FeatureLayout, FeaturesEntry, LabelKind, LabelsEntry, Provenance, StoreWriter};
use kith_trainer::{
    data::input::{GraphInput, Labels},
    error::TrainError,
};
use rayon::prelude::*;

/// Size of a graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Number of nodes.
    pub n_nodes: usize,
    /// Directed edges, both directions counted.
    pub n_edges: usize,
    /// Width of the features.
    pub dim: usize,
    /// Share of nonzero features; below 0.5, features are sparse.
    pub density: f64,
    /// Number of classes.
    pub n_classes: usize,
}

impl Size {
    /// Size of Cora.
    pub const CORA: Size = Size { n_nodes: 2708, n_edges: 10_556, dim: 1433, density: 0.0127, n_classes: 7 };
    /// Size of Pubmed.
    pub const PUBMED: Size = Size { n_nodes: 19_717, n_edges: 88_648, dim: 500, density: 0.1, n_classes: 3 };
    /// Size of Flickr.
    pub const FLICKR: Size = Size { n_nodes: 89_250, n_edges: 899_756, dim: 500, density: 1.0, n_classes: 7 };
    /// Size of ogbn-arxiv, symmetrized.
    pub const ARXIV: Size = Size { n_nodes: 169_343, n_edges: 2_315_598, dim: 128, density: 1.0, n_classes: 40 };
    /// Size of ogbn-products.
    pub const PRODUCTS: Size = Size { n_nodes: 2_449_029, n_edges: 123_718_280, dim: 100, density: 1.0, n_classes: 47 };
    /// Size of a synthetic graph of the paper's grid, with degree 10.
    pub const GRID: Size = Size { n_nodes: 5000, n_edges: 50_000, dim: 500, density: 0.0127, n_classes: 10 };
}

/// A graph as plain arrays, which other frameworks read as well.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrays {
    /// The size.
    pub size: Size,
    /// Edges (source, destination), by destination and then by source, both directions.
    pub edges: Vec<[u32; 2]>,
    /// Dense features.
    pub rows: Vec<f32>,
    /// The class of each node.
    pub classes: Vec<i64>,
}

fn stream(layer: u32) -> Stream {
    Name { run_key: 42, purpose: Purpose::Generator, step: 0, layer }.stream()
}

impl Arrays {
    /// Random graph of a size: both ends of an edge are drawn by a heavy-tailed popularity.
    pub fn new(size: Size) -> Arrays {
        let Size { n_nodes, n_edges, dim, density, n_classes } = size;
        let mut popularity = Vec::with_capacity(n_nodes);
        let mut sum = 0.0;
        for node in 0..n_nodes as u64 {
            sum += stream(0).draws(node, 0, 0).uniform().powf(-1.0 / 1.8);
            popularity.push(sum);
        }
        let wanted = n_edges / 2;
        let mut pairs = Vec::with_capacity(wanted + wanted / 2);
        for pass in 0.. {
            let n_missing = wanted - pairs.len();
            pairs.par_extend((0..n_missing as u64).into_par_iter().map(|index| {
                let mut draws = stream(1).draws(index, pass, 0);
                let mut end = || popularity.partition_point(|bound| *bound < draws.uniform() * sum) as u32;
                let (a, b) = (end().min(n_nodes as u32 - 1), end().min(n_nodes as u32 - 1));
                [a.min(b), a.max(b)]
            }));
            pairs.par_sort_unstable();
            pairs.dedup();
            pairs.retain(|[a, b]| a != b);
            if pairs.len() == wanted {
                break;
            }
        }
        let mut edges: Vec<[u32; 2]> = pairs.iter().flat_map(|[a, b]| [[*a, *b], [*b, *a]]).collect();
        edges.par_sort_unstable_by_key(|[source, destination]| (*destination, *source));
        let value = |place: usize| {
            let mut draws = stream(2).draws(place as u64, 0, 0);
            match density < 1.0 {
                true => f32::from(u8::from(draws.uniform() < density)),
                false => (draws.uniform() * 2.0 - 1.0) as f32,
            }
        };
        Arrays {
            size,
            edges,
            rows: (0..n_nodes * dim).into_par_iter().map(value).collect(),
            classes: (0..n_nodes as u64)
                .map(|node| stream(3).draws(node, 0, 0).below(n_classes as u64) as i64)
                .collect(),
        }
    }

    /// A graph with a size and no data.
    pub fn empty(size: Size) -> Arrays {
        Arrays { size, edges: Vec::new(), rows: Vec::new(), classes: Vec::new() }
    }

    /// Writes a store with dense features. The share of training nodes is that of ogbn-arxiv, or of ogbn-products.
    pub(super) fn write_store(&self, dir: &Path) -> Result<(), TrainError> {
        let Size { n_nodes, dim, n_classes, .. } = self.size;
        let mut indptr = vec![0u64; n_nodes + 1];
        self.edges.iter().for_each(|[_, destination]| indptr[*destination as usize + 1] += 1);
        for node in 0..n_nodes {
            indptr[node + 1] += indptr[node];
        }
        let sources: Vec<u32> = self.edges.iter().map(|[source, _]| *source).collect();
        let labels: Vec<u32> = self.classes.iter().map(|class| *class as u32).collect();
        let n_train = if self.size == Size::PRODUCTS { 196_615 } else { n_nodes * 90_941 / 169_343 };
        let part = |node: usize| if node < n_train { 1 } else { 2 + (node % 2) as u8 };
        let mut writer = StoreWriter::create(dir)?;
        writer.write("indptr", &indptr)?;
        writer.write("indices", &sources)?;
        writer.write("features", &self.rows)?;
        writer.write("labels", &labels)?;
        writer.write("split.measured", &(0..n_nodes).map(part).collect::<Vec<u8>>())?;
        let contents = Contents {
            n_nodes: n_nodes as u64,
            n_edges: sources.len() as u64,
            is_symmetric: true,
            features: Some(FeaturesEntry { dim: dim as u64, layout: FeatureLayout::Dense, dtype: Dtype::F32 }),
            labels: Some(LabelsEntry { kind: LabelKind::Classes, n_classes: n_classes as u64 }),
            splits: vec!["measured".to_owned()],
            ..Contents::default()
        };
        writer.finish(contents, Provenance::default())?;
        Ok(())
    }

    pub(super) fn graph(&self) -> GraphInput {
        let Size { n_nodes, dim, density, .. } = self.size;
        let start = |node: u64| self.edges.partition_point(|[_, destination]| u64::from(*destination) < node);
        let sources = |node: u64| {
            Ok::<_, BlockError>(self.edges[start(node)..start(node + 1)].iter().map(|[source, _]| u64::from(*source)))
        };
        let block = Block::full(n_nodes as u64, self.edges.len() as u64, sources).expect("edges between nodes");
        let rows = match density < 0.5 {
            true => InputRows::sparse_of(dim, &self.rows),
            false => InputRows::Dense { dim, values: self.rows.clone() },
        };
        let part = |kind: u32| (0..n_nodes as u32).filter(|node| node % 5 == kind).collect::<Vec<u32>>();
        GraphInput {
            block: Arc::new(block),
            rows: Arc::new(rows),
            labels: Some(Labels::Classes(self.classes.clone())),
            train: (0..n_nodes as u32).filter(|node| node % 5 < 3).collect(),
            valid: part(3),
            test: part(4),
            is_symmetric: true,
            is_one_of_many: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_has_its_size() {
        let size = Size { n_nodes: 500, n_edges: 3000, dim: 7, density: 0.3, n_classes: 4 };
        let arrays = Arrays::new(size);
        assert_eq!((arrays.edges.len(), arrays.rows.len(), arrays.classes.len()), (3000, 3500, 500));
        let graph = arrays.graph();
        assert_eq!((graph.block.n_sources(), graph.block.n_edges()), (500, 3500), "with loops");
        let longest = (0..500).map(|node| graph.block.edges_into(node).len()).max().unwrap();
        assert!(longest > 50, "there are hubs: {longest}");
        let share = arrays.rows.iter().filter(|value| **value != 0.0).count() as f64 / 3500.0;
        assert!((share - 0.3).abs() < 0.05, "{share}");
        assert!(arrays.edges.iter().all(|[a, b]| graph.block.has_edge(*a, *b) && graph.block.has_edge(*b, *a)));
    }
}
