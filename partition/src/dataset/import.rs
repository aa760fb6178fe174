//! Imports a named dataset into a store, with the paper's preprocessing.

use std::path::{Path, PathBuf};

use kith_store::{Dtype, Manifest, NO_CLASS, StoreError};

use crate::{
    csr::{EdgeOptions, ListsBuilder, MIN_MEMORY_BYTES, StoreBuilder, check_memory},
    dataset::{
        catalog::{self, Reader},
        streamed::{self, StreamedGraph},
        treatment::{SplitSource, Treatment},
    },
    error::{PartitionError, Result},
    pca::pca,
    progress::{Piece, Progress, Unit},
    raw::{RawGraph, RawLabels, RawRows, RawSplit, SplitPart, npz::Npz},
    rows::{GaussianRows, normalize},
    split::{FractionSplit, Fractions, fixed_split},
    stats,
};

/// Edges read between two reports of progress.
const EDGES_PER_REPORT: u64 = 1 << 16;

/// Dataset to import, and options.
#[derive(Clone, Debug)]
pub struct DatasetImport {
    /// The dataset's name in the catalog.
    pub name: String,
    /// The folder with its raw files.
    pub from: PathBuf,
    /// Features of the store.
    pub features: Features,
    /// Split that takes the place of the dataset's own.
    pub split: Option<GivenSplit>,
    /// Done to the edges besides what the paper does.
    pub edges: EdgeOptions,
    /// Type of dense rows.
    pub dtype: Dtype,
    /// The most memory to hold.
    pub memory_bytes: u64,
    /// Names what is drawn: the start of a PCA, gaussian rows.
    pub run_key: u64,
}

/// Features of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Features {
    /// As the paper treated them: binarized, shortened by PCA, or as they are.
    AsPublished,
    /// As the files hold them.
    Raw,
    /// As the files hold them, those of each node divided by their sum.
    Normalized,
    /// Made up: a direction per class, and noise.
    Gaussian {
        /// Length of a row.
        dim: u32,
    },
}

/// A split that takes the place of a dataset's own.
#[derive(Clone, Debug, PartialEq)]
pub enum GivenSplit {
    /// An npz file with the ids of the nodes of `train`, `valid` and `test`.
    File(PathBuf),
    /// Shares of the nodes.
    Fractions(Fractions),
}

impl GivenSplit {
    /// Reads or draws the split; nodes without a label are in no part.
    fn read(&self, n_nodes: u32, labels: Option<&RawLabels>, import: &DatasetImport) -> Result<RawSplit> {
        let name = "given".to_owned();
        let is_labeled = |node: u32| labels.is_none_or(|labels| labels.is_labeled(node));
        match self {
            GivenSplit::Fractions(fractions) => {
                let split = FractionSplit::new(*fractions, import.run_key)?;
                let part = |node: u32| if is_labeled(node) { split.part(node.into()) } else { SplitPart::None };
                Ok(RawSplit { name, parts: (0..n_nodes).map(part).collect() })
            }
            GivenSplit::File(path) => {
                let mut file = Npz::open(path, import.memory_bytes)?;
                let mut parts = vec![SplitPart::None; n_nodes as usize];
                let named = [("train", SplitPart::Train), ("valid", SplitPart::Valid), ("test", SplitPart::Test)];
                for (member, part) in named {
                    let nodes = file.required(member)?;
                    nodes.vector()?;
                    for (at, node) in nodes.to_ids(n_nodes.into())?.into_iter().enumerate() {
                        if !is_labeled(node) {
                            let problem = format!("node {node} is in {member}, but has no label");
                            return Err(nodes.error(format!("item {at}"), problem));
                        }
                        let before = std::mem::replace(&mut parts[node as usize], part);
                        if before != SplitPart::None {
                            return Err(nodes.error(
                                format!("node {node}"),
                                "already in train, valid or test: list each node once",
                            ));
                        }
                    }
                }
                Ok(RawSplit { name, parts })
            }
        }
    }
}

/// Reads a named dataset and publishes it as a store.
pub fn import(import: &DatasetImport, out: &Path, progress: &dyn Progress) -> Result<Manifest> {
    let DatasetImport { name, from, memory_bytes, .. } = import;
    let dataset = catalog::get(name)?;
    if !from.is_dir() {
        return Err(PartitionError::Option(format!(
            "{}: not a folder: `kith data fetch {name} --out {0}` fills it, or name the folder with its files",
            from.display()
        )));
    }
    let treatment = dataset.treatment;
    let read = match dataset.read {
        Reader::Whole(read) => read,
        Reader::Streamed(open) => return import_streamed(import, treatment, open, out, progress),
    };
    // The place is taken first: nobody wants to learn after a long import that it exists.
    let mut builder = StoreBuilder::create(out, *memory_bytes, progress)?;
    let mut graph = {
        let _work = Piece::begin(progress, &format!("reading {name}"), None, Unit::Files);
        read(from, *memory_bytes)?
    };
    make_rows(&mut graph, import, treatment, progress)?;
    match &import.split {
        Some(split) => graph.splits = vec![split.read(graph.n_nodes, graph.labels.as_ref(), import)?],
        None => make_split(&mut graph, treatment),
    }
    describe(&mut builder, &graph, graph.rows.is_some(), import, treatment);
    write(&mut builder, &graph, import, treatment)?;
    builder.finish()
}

/// The same for a dataset that does not fit in memory.
fn import_streamed(
    import: &DatasetImport,
    treatment: Treatment,
    open: fn(&Path, u64) -> Result<StreamedGraph>,
    out: &Path,
    progress: &dyn Progress,
) -> Result<Manifest> {
    let DatasetImport { name, from, memory_bytes, dtype, .. } = import;
    if out.exists() {
        return Err(StoreError::Exists { path: out.to_owned() }.into());
    }
    check_memory(*memory_bytes)?;
    let mut graph = {
        let _work = Piece::begin(progress, &format!("reading the nodes of {name}"), None, Unit::Files);
        open(from, *memory_bytes)?
    };
    if let Some(split) = &import.split {
        graph.nodes.splits = vec![split.read(graph.nodes.n_nodes, graph.nodes.labels.as_ref(), import)?];
    }
    let left_bytes = memory_bytes.saturating_sub(graph.held_bytes()).max(MIN_MEMORY_BYTES);
    let StreamedGraph { mut nodes, mut edges, mut rows } = graph;
    let mut builder = StoreBuilder::create(out, left_bytes, progress)?;
    match (import.features, &rows) {
        (Features::Gaussian { dim }, _) => nodes.notes.push(made_up(dim, name)),
        (_, None) => nodes.notes.push(no_features(name)),
        _ => {}
    }
    describe(&mut builder, &nodes, rows.is_some(), import, treatment);
    let options = edge_options(import, treatment);
    let is_weighted = edges.is_weighted();
    let feed = |lists: &ListsBuilder<'_>| {
        let work = Piece::begin(progress, "reading edges", None, Unit::Edges);
        let (mut feeder, mut n_read) = (lists.feeder(), 0u64);
        while let Some(([source, destination], weight)) = edges.next_edge()? {
            feeder.push_weighted(source.into(), destination.into(), weight)?;
            n_read += 1;
            if n_read.is_multiple_of(EDGES_PER_REPORT) {
                work.advance(EDGES_PER_REPORT);
            }
        }
        work.advance(n_read % EDGES_PER_REPORT);
        feeder.finish()
    };
    match is_weighted {
        true => builder.weighted_lists(nodes.n_nodes.into(), options, feed)?,
        false => builder.lists(nodes.n_nodes.into(), options, feed)?,
    };
    match (import.features, &mut rows) {
        (Features::Gaussian { dim }, _) => write_gaussian(&mut builder, &nodes, dim, import)?,
        (_, None) => {}
        (Features::Normalized, Some(rows)) => streamed::write_rows(&mut builder, &mut **rows, *dtype, normalize)?,
        (_, Some(rows)) => streamed::write_rows(&mut builder, &mut **rows, *dtype, |_| ())?,
    }
    write_nodes(&mut builder, &nodes)?;
    builder.finish()
}

fn made_up(dim: u32, name: &str) -> String {
    format!(
        "THE FEATURES ARE MADE UP: {dim} gaussian numbers per node around a direction of its class. \
         Accuracies on this store say nothing about {name}"
    )
}

fn no_features(name: &str) -> String {
    format!("no features: the files of {name} hold none; `--features gaussian:DIM` makes class-informed ones")
}

fn gaussian_rows(graph: &RawGraph, dim: u32, import: &DatasetImport) -> Result<GaussianRows> {
    let n_classes = match &graph.labels {
        Some(RawLabels::Classes { n_classes, .. } | RawLabels::Bits { n_classes, .. }) => *n_classes,
        None => 0,
    };
    GaussianRows::new(import.run_key, dim, n_classes)
}

/// Writes made-up features, node by node.
fn write_gaussian(builder: &mut StoreBuilder<'_>, nodes: &RawGraph, dim: u32, import: &DatasetImport) -> Result<()> {
    let gaussian = gaussian_rows(nodes, dim, import)?;
    builder.dense_rows(dim.into(), import.dtype, |node, row| {
        let class = match &nodes.labels {
            Some(RawLabels::Classes { classes, .. }) => Some(classes[node as usize]).filter(|class| *class != NO_CLASS),
            _ => None,
        };
        gaussian.fill(node, class, row);
        Ok(())
    })
}

fn make_rows(
    graph: &mut RawGraph,
    import: &DatasetImport,
    treatment: Treatment,
    progress: &dyn Progress,
) -> Result<()> {
    if let Features::Gaussian { dim } = import.features {
        graph.rows = Some(gaussian_rows(graph, dim, import)?.rows(graph.n_nodes, graph.labels.as_ref())?);
        graph.notes.push(made_up(dim, &import.name));
        return Ok(());
    }
    match (import.features, &mut graph.rows) {
        (_, None) => graph.notes.push(no_features(&import.name)),
        (Features::AsPublished, Some(rows)) => {
            if treatment.is_binarized {
                rows.binarize();
            }
            if let Some(n_components) = treatment.n_components {
                let _work = Piece::begin(progress, &format!("PCA to {n_components}"), None, Unit::Rows);
                *rows = pca(rows, n_components, import.run_key)?.rows;
            }
        }
        (Features::Normalized, Some(rows)) => rows.normalize(),
        (Features::Raw | Features::Gaussian { .. }, Some(_)) => {}
    }
    Ok(())
}

fn make_split(graph: &mut RawGraph, treatment: Treatment) {
    if let (SplitSource::FixedDraw, Some(RawLabels::Classes { n_classes, classes })) = (treatment.split, &graph.labels)
    {
        graph.splits.push(fixed_split(classes, *n_classes));
    }
}

fn describe(
    builder: &mut StoreBuilder<'_>,
    graph: &RawGraph,
    has_rows: bool,
    import: &DatasetImport,
    treatment: Treatment,
) {
    let features = match import.features {
        Features::AsPublished if !has_rows => "none".to_owned(),
        Features::AsPublished => match (treatment.is_binarized, treatment.n_components) {
            (true, Some(n)) => format!("binarized, PCA to {n}"),
            (true, None) => "binarized".to_owned(),
            (false, Some(n)) => format!("PCA to {n}"),
            (false, None) => "as in the files".to_owned(),
        },
        Features::Raw => "as in the files".to_owned(),
        Features::Normalized => "divided by their sum".to_owned(),
        Features::Gaussian { dim } => format!("gaussian:{dim}"),
    };
    let provenance = builder.provenance();
    provenance.source = format!("{} (kith {})", import.name, env!("CARGO_PKG_VERSION"));
    provenance.seed = Some(import.run_key);
    provenance.options.insert("features".into(), features);
    if let Some(split) = &import.split {
        let rule = match split {
            GivenSplit::File(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            GivenSplit::Fractions(Fractions { train, valid, test }) => format!("{train}/{valid}/{test}"),
        };
        provenance.options.insert("split".into(), rule);
    }
    if treatment.counts_isolated {
        provenance.options.insert(stats::DEGREE_OVER.into(), stats::ALL_NODES.into());
    }
    provenance.notes.extend(graph.notes.iter().cloned());
}

fn edge_options(import: &DatasetImport, treatment: Treatment) -> EdgeOptions {
    EdgeOptions {
        symmetrize: treatment.edges.symmetrize || import.edges.symmetrize,
        drop_loops: treatment.edges.drop_loops || import.edges.drop_loops,
        merge_duplicates: treatment.edges.merge_duplicates || import.edges.merge_duplicates,
    }
}

fn write(builder: &mut StoreBuilder<'_>, graph: &RawGraph, import: &DatasetImport, treatment: Treatment) -> Result<()> {
    builder.lists(graph.n_nodes.into(), edge_options(import, treatment), |lists| {
        let mut feeder = lists.feeder();
        for [source, destination] in &graph.edges {
            feeder.push((*source).into(), (*destination).into())?;
        }
        feeder.finish()
    })?;
    if let Some(rows) = &graph.rows {
        write_rows(builder, rows, import.dtype)?;
    }
    write_nodes(builder, graph)
}

/// Writes labels, splits, ids and graphs.
fn write_nodes(builder: &mut StoreBuilder<'_>, graph: &RawGraph) -> Result<()> {
    match &graph.labels {
        Some(RawLabels::Classes { n_classes, classes }) => builder.classes((*n_classes).into(), |first, places| {
            places.copy_from_slice(&classes[first as usize..][..places.len()]);
            Ok(())
        })?,
        Some(RawLabels::Bits { n_classes, words }) => builder.label_bits((*n_classes).into(), words)?,
        None => {}
    }
    for split in &graph.splits {
        builder.split(&split.name, |node| Ok(split.parts[node as usize]))?;
    }
    if !graph.ids.is_empty() {
        builder.text_ids(graph.ids.iter().map(String::as_str))?;
    }
    if let Some(last) = graph.graph_of_node.iter().max() {
        builder.graphs(&graph.graph_names, u64::from(*last) + 1, &graph.graph_of_node)?;
    }
    Ok(())
}

/// Writes rows in the smaller of the two forms; a sparse value takes 8 bytes, its column included.
fn write_rows(builder: &mut StoreBuilder<'_>, rows: &RawRows, dtype: Dtype) -> Result<()> {
    let dim = rows.dim() as usize;
    let is_sparse_smaller = rows.density() * 8.0 < dtype.n_bytes() as f64;
    match rows {
        RawRows::Sparse { indptr, indices, values, .. } if is_sparse_smaller => {
            let bounds = indptr.windows(2).map(|bounds| bounds[0] as usize..bounds[1] as usize);
            builder.sparse_rows(dim as u64, bounds.map(|row| Ok((&indices[row.clone()], &values[row]))))
        }
        RawRows::Sparse { indptr, indices, values, .. } => builder.dense_rows(dim as u64, dtype, |node, row| {
            row.fill(0.0);
            for place in indptr[node as usize] as usize..indptr[node as usize + 1] as usize {
                row[indices[place] as usize] = values[place];
            }
            Ok(())
        }),
        RawRows::Dense { values, .. } => builder.dense_rows(dim as u64, dtype, |node, row| {
            row.copy_from_slice(&values[node as usize * dim..][..dim]);
            Ok(())
        }),
    }
}

const _: () = assert!(NO_CLASS == u32::MAX, "raw labels mark a missing class as the store does");

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::raw::samples::{npy, npz};

    fn import_of(split: Option<GivenSplit>) -> DatasetImport {
        DatasetImport {
            name: "cora".to_owned(),
            from: PathBuf::new(),
            features: Features::Normalized,
            split,
            edges: EdgeOptions::default(),
            dtype: Dtype::F32,
            memory_bytes: 1 << 20,
            run_key: 42,
        }
    }

    fn read(members: &[(&str, &[i64])]) -> Result<Vec<SplitPart>> {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("split.npz");
        let members: Vec<(&str, Vec<u8>)> = members.iter().map(|(name, ids)| (*name, npy(&[ids.len()], ids))).collect();
        fs::write(&path, npz(&members)).unwrap();
        GivenSplit::File(path).read(5, None, &import_of(None)).map(|split| split.parts)
    }

    #[test]
    fn a_split_is_read_from_an_npz() {
        use SplitPart::{None, Test, Train, Valid};
        let parts = read(&[("train", &[4, 0]), ("valid", &[2]), ("test", &[1])]).unwrap();
        assert_eq!(parts, [Train, Test, Valid, None, Train]);
        for (members, problem) in [
            (&[("train", &[0i64][..]), ("valid", &[2]), ("test", &[0])][..], "already in train, valid or test"),
            (&[("train", &[0]), ("valid", &[5]), ("test", &[1])], "5"),
            (&[("train", &[0]), ("valid", &[2])], "test"),
        ] {
            let error = read(members).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn a_split_is_drawn_by_fractions() {
        let fractions = Fractions { train: 0.6, valid: 0.2, test: 0.2 };
        let parts = GivenSplit::Fractions(fractions).read(10_000, None, &import_of(None)).unwrap().parts;
        let share = |part| parts.iter().filter(|own| **own == part).count() as f64 / 1e4;
        for (part, expected) in [(SplitPart::Train, 0.6), (SplitPart::Valid, 0.2), (SplitPart::Test, 0.2)] {
            assert!((share(part) - expected).abs() < 0.02, "{part:?}: {}", share(part));
        }
    }
}
