//! Imports a named dataset into a store, with the paper's preprocessing.

use std::path::{Path, PathBuf};

use kith_store::{Dtype, Manifest, NO_CLASS};

use crate::{
    csr::{EdgeOptions, StoreBuilder},
    dataset::{
        catalog,
        treatment::{SplitSource, Treatment},
    },
    error::{PartitionError, Result},
    pca::pca,
    progress::{Piece, Progress, Unit},
    raw::{RawGraph, RawLabels, RawRows},
    rows::GaussianRows,
    split::fixed_split,
    stats,
};

/// Dataset to import, and options.
#[derive(Clone, Debug)]
pub struct DatasetImport {
    /// The dataset's name in the catalog.
    pub name: String,
    /// The folder with its raw files.
    pub from: PathBuf,
    /// Features of the store.
    pub features: Features,
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
    /// Made up: a direction per class, and noise.
    Gaussian {
        /// Length of a row.
        dim: u32,
    },
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
    // The place is taken first: nobody wants to learn after a long import that it exists.
    let mut builder = StoreBuilder::create(out, *memory_bytes, progress)?;
    let mut graph = {
        let _work = Piece::begin(progress, &format!("reading {name}"), None, Unit::Files);
        (dataset.read)(from, *memory_bytes)?
    };
    make_rows(&mut graph, import, treatment, progress)?;
    make_split(&mut graph, treatment);
    describe(&mut builder, &graph, import, treatment);
    write(&mut builder, &graph, import, treatment)?;
    builder.finish()
}

fn make_rows(
    graph: &mut RawGraph,
    import: &DatasetImport,
    treatment: Treatment,
    progress: &dyn Progress,
) -> Result<()> {
    match (import.features, &mut graph.rows) {
        (Features::Gaussian { dim }, rows) => {
            let n_classes = match &graph.labels {
                Some(RawLabels::Classes { n_classes, .. } | RawLabels::Bits { n_classes, .. }) => *n_classes,
                None => 0,
            };
            let gaussian = GaussianRows::new(import.run_key, dim, n_classes)?;
            *rows = Some(gaussian.rows(graph.n_nodes, graph.labels.as_ref())?);
            graph.notes.push(format!(
                "THE FEATURES ARE MADE UP: {dim} gaussian numbers per node around a direction of its class. \
                 Accuracies on this store say nothing about {}",
                import.name
            ));
        }
        (_, None) => graph.notes.push(format!(
            "no features: the files of {} hold none; `--features gaussian:DIM` makes class-informed ones",
            import.name
        )),
        (Features::AsPublished, Some(rows)) => {
            if treatment.is_binarized {
                rows.binarize();
            }
            if let Some(n_components) = treatment.n_components {
                let _work = Piece::begin(progress, &format!("PCA to {n_components}"), None, Unit::Rows);
                *rows = pca(rows, n_components, import.run_key)?.rows;
            }
        }
        (Features::Raw, Some(_)) => {}
    }
    Ok(())
}

fn make_split(graph: &mut RawGraph, treatment: Treatment) {
    if let (SplitSource::FixedDraw, Some(RawLabels::Classes { n_classes, classes })) = (treatment.split, &graph.labels)
    {
        graph.splits.push(fixed_split(classes, *n_classes));
    }
}

fn describe(builder: &mut StoreBuilder<'_>, graph: &RawGraph, import: &DatasetImport, treatment: Treatment) {
    let features = match import.features {
        Features::AsPublished if graph.rows.is_none() => "none".to_owned(),
        Features::AsPublished => match (treatment.is_binarized, treatment.n_components) {
            (true, Some(n)) => format!("binarized, PCA to {n}"),
            (true, None) => "binarized".to_owned(),
            (false, Some(n)) => format!("PCA to {n}"),
            (false, None) => "as in the files".to_owned(),
        },
        Features::Raw => "as in the files".to_owned(),
        Features::Gaussian { dim } => format!("gaussian:{dim}"),
    };
    let provenance = builder.provenance();
    provenance.source = format!("{} (kith {})", import.name, env!("CARGO_PKG_VERSION"));
    provenance.run_key = Some(import.run_key);
    provenance.options.insert("features".into(), features);
    if treatment.counts_isolated {
        provenance.options.insert(stats::DEGREE_OVER.into(), stats::ALL_NODES.into());
    }
    provenance.notes.extend(graph.notes.iter().cloned());
}

fn write(builder: &mut StoreBuilder<'_>, graph: &RawGraph, import: &DatasetImport, treatment: Treatment) -> Result<()> {
    let options = EdgeOptions {
        symmetrize: treatment.edges.symmetrize || import.edges.symmetrize,
        drop_loops: treatment.edges.drop_loops || import.edges.drop_loops,
        merge_duplicates: treatment.edges.merge_duplicates || import.edges.merge_duplicates,
    };
    builder.lists(graph.n_nodes.into(), options, |lists| {
        let mut feeder = lists.feeder();
        for [source, destination] in &graph.edges {
            feeder.push((*source).into(), (*destination).into())?;
        }
        feeder.finish()
    })?;
    if let Some(rows) = &graph.rows {
        write_rows(builder, rows, import.dtype)?;
    }
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
