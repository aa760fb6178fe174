//! Small stores for tests.
#![allow(dead_code)] // Every test uses another part.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use half::{bf16, f16};
use kith_draw::{Name, Purpose};
use kith_partition::{
    csr::EdgeOptions,
    dataset::import::{DatasetImport, Features},
    progress::Quiet,
};
use kith_store::{
    Contents, Dtype, FeatureLayout, FeaturesEntry, Graph, LabelKind, LabelsEntry, Provenance, StoreWriter,
};

/// Edges as (source, destination), and the nodes that are trained on.
#[derive(Clone, Debug)]
pub(crate) struct Edges {
    pub(crate) n_nodes: u64,
    pub(crate) edges: Vec<(u64, u64)>,
    pub(crate) train: Vec<u64>,
    pub(crate) is_symmetric: bool,
    pub(crate) rows: StoredRows,
    pub(crate) is_multi_label: bool,
    /// Weights of edges, and numbers to predict instead of classes.
    pub(crate) has_numbers: bool,
}

/// Storage layout of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredRows {
    F32,
    F16,
    Bf16,
    Sparse,
}

impl Edges {
    pub(crate) fn directed(n_nodes: u64, edges: &[(u64, u64)]) -> Edges {
        Edges {
            n_nodes,
            edges: edges.to_vec(),
            train: vec![0],
            is_symmetric: false,
            rows: StoredRows::F32,
            is_multi_label: false,
            has_numbers: false,
        }
    }

    pub(crate) fn ring(n_nodes: u64) -> Edges {
        let edges: Vec<(u64, u64)> = (0..n_nodes).map(|node| (node, (node + 1) % n_nodes)).collect();
        Edges::directed(n_nodes, &edges).symmetric()
    }

    /// With loops, parallel edges and some nodes of many neighbors.
    pub(crate) fn random(n_nodes: u64, n_edges: u64, key: u64) -> Edges {
        let stream = Name { run_key: key, purpose: Purpose::Generator, step: 0, layer: 0 }.stream();
        let edge = |index| {
            let mut draws = stream.draws(index, 0, 0);
            let n_popular = draws.below(n_nodes) + 1;
            (draws.below(n_popular), draws.below(n_nodes))
        };
        Edges::directed(n_nodes, &(0..n_edges).map(edge).collect::<Vec<_>>())
    }

    pub(crate) fn symmetric(mut self) -> Edges {
        let reverses: Vec<_> = self.edges.iter().filter(|(u, v)| u != v).map(|(u, v)| (*v, *u)).collect();
        self.edges.extend(reverses);
        self.is_symmetric = true;
        self
    }

    pub(crate) fn train(mut self, nodes: &[u64]) -> Edges {
        self.train = nodes.to_vec();
        self
    }

    pub(crate) fn rows(mut self, rows: StoredRows) -> Edges {
        self.rows = rows;
        self
    }

    pub(crate) fn multi_label(mut self) -> Edges {
        self.is_multi_label = true;
        self
    }

    pub(crate) fn numbers(mut self) -> Edges {
        self.has_numbers = true;
        self
    }

    /// (bounds, neighbors, which edge) by destination or by source.
    fn lists(edges: &[(u64, u64)], n_nodes: u64) -> (Vec<u64>, Vec<u32>, Vec<u32>) {
        let mut order: Vec<usize> = (0..edges.len()).collect();
        order.sort_by_key(|edge| (edges[*edge].1, edges[*edge].0, *edge));
        let mut indptr = vec![0; n_nodes as usize + 1];
        edges.iter().for_each(|(_, row)| indptr[*row as usize + 1] += 1);
        (0..n_nodes as usize).for_each(|node| indptr[node + 1] += indptr[node]);
        (indptr, order.iter().map(|edge| edges[*edge].0 as u32).collect(), order.iter().map(|e| *e as u32).collect())
    }
}

/// Writes a store below a folder and opens it: two values per row (node, node + 1/2), classes by node % 3, one split.
/// Sparse rows leave the second value out for nodes that 3 divides; with many labels every node has class 69.
pub(crate) fn open(folder: &Path, edges: &Edges) -> Graph {
    let path = folder.join("store");
    let n_nodes = edges.n_nodes;
    let mut writer = StoreWriter::create(&path).unwrap();
    let (indptr, indices, order) = Edges::lists(&edges.edges, n_nodes);
    writer.write("indptr", &indptr).unwrap();
    writer.write("indices", &indices).unwrap();
    if edges.has_numbers {
        // Some weigh nothing.
        let weight = |edge: &u32| (edges.edges[*edge as usize].0 ^ edges.edges[*edge as usize].1) % 7;
        writer.write("edge_weights", &order.iter().map(|edge| weight(edge) as f32 / 4.0).collect::<Vec<_>>()).unwrap();
        let features = order.iter().map(|edge| edges.edges[*edge as usize]).flat_map(|(u, v)| {
            let (low, high) = (u.min(v) % 1000, u.max(v) % 1000);
            [low as f32, high as f32 / 2.0, (low ^ high) as f32 - 9.0].map(f16::from_f32)
        });
        writer.write("edge_features", &features.collect::<Vec<f16>>()).unwrap();
    }
    if !edges.is_symmetric {
        let reversed: Vec<(u64, u64)> = order.iter().map(|e| edges.edges[*e as usize]).map(|(u, v)| (v, u)).collect();
        let (out_indptr, out_indices, out_edges) = Edges::lists(&reversed, n_nodes);
        writer.write("out_indptr", &out_indptr).unwrap();
        writer.write("out_indices", &out_indices).unwrap();
        writer.write("out_edges", &out_edges).unwrap();
    }
    let rows: Vec<f32> = (0..n_nodes).flat_map(|node| [node as f32, node as f32 + 0.5]).collect();
    match edges.rows {
        StoredRows::F32 => writer.write("features", &rows).unwrap(),
        StoredRows::F16 => {
            writer.write("features", &rows.iter().map(|v| f16::from_f32(*v)).collect::<Vec<_>>()).unwrap()
        }
        StoredRows::Bf16 => {
            writer.write("features", &rows.iter().map(|v| bf16::from_f32(*v)).collect::<Vec<_>>()).unwrap()
        }
        StoredRows::Sparse => {
            let n_stored = |node: u64| if node.is_multiple_of(3) { 1 } else { 2 };
            let mut indptr = vec![0u64];
            (0..n_nodes).for_each(|node| indptr.push(indptr[node as usize] + n_stored(node)));
            writer.write("feature_indptr", &indptr).unwrap();
            let columns: Vec<u32> = (0..n_nodes).flat_map(|node| 0..n_stored(node) as u32).collect();
            writer.write("feature_indices", &columns).unwrap();
            let values = (0..n_nodes).flat_map(|node| rows[2 * node as usize..][..n_stored(node) as usize].to_vec());
            writer.write("feature_values", &values.collect::<Vec<f32>>()).unwrap();
        }
    }
    let (form, dtype) = match edges.rows {
        StoredRows::F32 => (FeatureLayout::Dense, Dtype::F32),
        StoredRows::F16 => (FeatureLayout::Dense, Dtype::F16),
        StoredRows::Bf16 => (FeatureLayout::Dense, Dtype::Bf16),
        StoredRows::Sparse => (FeatureLayout::Sparse, Dtype::F32),
    };
    let n_classes = if edges.has_numbers {
        writer.write("labels", &rows.iter().map(|value| value - 9.0).collect::<Vec<f32>>()).unwrap();
        2
    } else if edges.is_multi_label {
        let bits = |node: u64| [u64::from(node % 70 < 64) << (node % 64), 1 << 5 | u64::from(node % 70 == 64)];
        writer.write("label_bits", &(0..n_nodes).flat_map(bits).collect::<Vec<_>>()).unwrap();
        70
    } else {
        writer.write("labels", &(0..n_nodes).map(|node| (node % 3) as u32).collect::<Vec<_>>()).unwrap();
        3
    };
    let kind = match (edges.is_multi_label, edges.has_numbers) {
        (_, true) => LabelKind::Targets,
        (true, _) => LabelKind::MultiLabel,
        _ => LabelKind::Classes,
    };
    let train: HashSet<u64> = edges.train.iter().copied().collect();
    let part = |node: u64| u8::from(train.contains(&node));
    writer.write("split.main", &(0..n_nodes).map(part).collect::<Vec<u8>>()).unwrap();
    let contents = Contents {
        n_nodes,
        n_edges: edges.edges.len() as u64,
        is_symmetric: edges.is_symmetric,
        edge_weights: edges.has_numbers,
        edge_features: edges.has_numbers.then_some(FeaturesEntry {
            dim: 3,
            layout: FeatureLayout::Dense,
            dtype: Dtype::F16,
        }),
        features: Some(FeaturesEntry { dim: 2, layout: form, dtype }),
        labels: Some(LabelsEntry { kind, n_classes }),
        splits: vec!["main".into()],
        ..Contents::default()
    };
    writer.finish(contents, Provenance::default()).unwrap();
    Graph::open(&path).unwrap()
}

/// Cora as a store; it goes when this does.
pub(crate) struct Cora {
    pub(crate) path: PathBuf,
    _temp: tempfile::TempDir,
}

/// Cora from its raw files; says so where they are absent.
#[allow(clippy::print_stderr)]
pub(crate) fn cora() -> Option<Cora> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/datasets");
    let from = std::env::var_os("KITH_DATASETS").map_or(beside, PathBuf::from).join("cora");
    if !from.is_dir() {
        eprintln!("skipped: no real files of cora (set KITH_DATASETS to the folder that holds them)");
        return None;
    }
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("cora");
    let import = DatasetImport {
        name: "cora".into(),
        from,
        features: Features::AsPublished,
        split: None,
        edges: EdgeOptions::default(),
        dtype: Dtype::F32,
        memory_bytes: 1 << 30,
        run_key: 42,
    };
    kith_partition::dataset::import::import(&import, &path, &Quiet).unwrap();
    Some(Cora { path, _temp: temp })
}
