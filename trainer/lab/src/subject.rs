//! Graphs of an experiment: named datasets from a folder, and generated graphs.

use std::path::{Path, PathBuf};

use kith_partition::{
    csr::EdgeOptions,
    dataset::import::{DatasetImport, Features, GivenSplit, import},
    generate::{PartitionGraph, partition_graph},
    progress::Progress,
};
use kith_store::{Dtype, make_folder};
use kith_trainer::data::opened::Opened;

use crate::error::LabError;

/// Memory for importing or generating a graph.
const MEMORY_BYTES: u64 = 2 << 30;

/// One graph of an experiment.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Name in tables.
    pub name: String,
    /// The graph.
    pub opened: Opened,
}

/// Datasets that were found, and reasons for the missing ones.
#[derive(Debug, Default)]
pub struct Found {
    /// Datasets that can be trained on, in the requested order.
    pub subjects: Vec<Subject>,
    /// Missing datasets, each with a reason.
    pub missing: Vec<(String, String)>,
}

impl Found {
    /// One note per missing dataset.
    pub fn notes(&self) -> Vec<String> {
        self.missing.iter().map(|(name, reason)| format!("{name} is left out: {reason}")).collect()
    }
}

/// Finds datasets in the folder `data`: `data/NAME` is a store, or raw files that are imported into `stores`.
pub fn find_datasets(names: &[&str], data: &Path, stores: &Path, progress: &dyn Progress) -> Result<Found, LabError> {
    find_datasets_by(names, data, stores, progress, &|_| Made {
        features: Features::AsPublished,
        split: None,
        is_undirected: false,
        tag: String::new(),
    })
}

/// Features and split of a dataset that is imported.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) features: Features,
    pub(crate) split: Option<GivenSplit>,
    /// True for both directions of every edge, each once, and no self-loops.
    pub(crate) is_undirected: bool,
    /// Behind the dataset's name in the name of the store.
    pub(crate) tag: String,
}

/// As [`find_datasets`], with features and split by `made`.
pub(crate) fn find_datasets_by(
    names: &[&str],
    data: &Path,
    stores: &Path,
    progress: &dyn Progress,
    made: &dyn Fn(&str) -> Made,
) -> Result<Found, LabError> {
    let mut found = Found::default();
    for name in names {
        match find_dataset(name, data, stores, progress, made(name)) {
            Ok(subject) => found.subjects.push(subject),
            Err(reason) => found.missing.push(((*name).to_owned(), reason)),
        }
    }
    if found.subjects.is_empty() {
        let reasons: Vec<String> = found.missing.iter().map(|(name, reason)| format!("{name} ({reason})")).collect();
        return Err(LabError::Wrong(format!("{}: no dataset was found: {}", data.display(), reasons.join(", "))));
    }
    Ok(found)
}

fn find_dataset(
    name: &str,
    data: &Path,
    stores: &Path,
    progress: &dyn Progress,
    Made { features, split, is_undirected, tag }: Made,
) -> Result<Subject, String> {
    let own = data.join(name);
    let store = match is_store(&own) {
        true => own,
        false if !own.is_dir() => return Err(format!("there is no folder {}", own.display())),
        false => made(&stores.join(format!("{name}{tag}")), |out| {
            let wanted = DatasetImport {
                name: name.to_owned(),
                from: own,
                features,
                split,
                edges: EdgeOptions {
                    symmetrize: is_undirected,
                    drop_loops: is_undirected,
                    merge_duplicates: is_undirected,
                },
                dtype: Dtype::F32,
                memory_bytes: MEMORY_BYTES,
                run_key: 42,
            };
            import(&wanted, out, progress).map(|_| ())
        })
        .map_err(|error| error.to_string())?,
    };
    let opened = Opened::open_store(&store).map_err(|error| error.to_string())?;
    match opened.info() {
        info if info.rows.is_none() => Err("it has no features".to_owned()),
        info if info.n_classes == 0 => Err("it has no labels".to_owned()),
        _ => Ok(Subject { name: name.to_owned(), opened }),
    }
}

/// The paper's random partition graph of a degree and homophily, generated in `stores` if missing.
pub fn synthetic(
    degree: f64,
    homophily: f64,
    run_key: u64,
    stores: &Path,
    progress: &dyn Progress,
) -> Result<Subject, LabError> {
    let name = format!("degree-{degree}-homophily-{homophily}");
    let graph = PartitionGraph::paper(degree, homophily, run_key);
    let store = made(&stores.join(format!("{name}-key-{run_key}")), |out| {
        partition_graph(&graph, out, MEMORY_BYTES, progress).map(|_| ())
    })?;
    Ok(Subject { name, opened: Opened::open_store(&store)? })
}

fn is_store(dir: &Path) -> bool {
    dir.join("manifest.json").is_file()
}

/// Makes a store if it is missing. A store appears complete or not at all.
fn made(
    store: &Path,
    make: impl FnOnce(&Path) -> Result<(), kith_partition::PartitionError>,
) -> Result<PathBuf, LabError> {
    if !is_store(store) {
        if let Some(parent) = store.parent() {
            make_folder(parent).map_err(LabError::io(parent))?;
        }
        make(store)?;
    }
    Ok(store.to_owned())
}

#[cfg(test)]
mod tests {
    use kith_partition::progress::Quiet;

    use super::*;

    #[test]
    fn datasets_that_are_not_there_are_told_of() {
        let temp = tempfile::tempdir().unwrap();
        let stores = temp.path().join("stores");
        let made = synthetic(5.0, 0.5, 1, &stores, &Quiet).unwrap();
        assert_eq!(made.name, "degree-5-homophily-0.5");
        // An existing store is not made again: the files are the same.
        let again = synthetic(5.0, 0.5, 1, &stores, &Quiet).unwrap();
        assert_eq!(made.opened.info().digest, again.opened.info().digest);

        std::fs::rename(stores.join("degree-5-homophily-0.5-key-1"), temp.path().join("cora")).unwrap();
        std::fs::create_dir(temp.path().join("pubmed")).unwrap();
        let found = find_datasets(&["cora", "pubmed", "cs"], temp.path(), &stores, &Quiet).unwrap();
        assert_eq!(found.subjects.len(), 1, "a store is taken as it is");
        let notes = found.notes();
        assert!(notes[0].starts_with("pubmed is left out: "), "{notes:?}");
        assert!(notes[1].starts_with("cs is left out: there is no folder "), "{notes:?}");
        let none = find_datasets(&["cs"], temp.path(), &stores, &Quiet).unwrap_err().to_string();
        assert!(none.contains("no dataset was found: cs (there is no folder"), "{none}");
    }
}
