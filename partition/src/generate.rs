//! Graph generators. Each graph is a function of its parameters and a seed; the number of threads and the memory limit
//! change nothing.

mod drawing;
mod partition_graph;
mod power_law;
mod split;
mod weights;

use std::path::Path;

use kith_store::Manifest;

pub use self::{
    partition_graph::PartitionGraph,
    power_law::{Communities, EdgeAmount, PowerLaw},
};
use crate::{error::Result, progress::Progress};

/// Makes one of the paper's random partition graphs, and publishes it as a store at `out`.
pub fn partition_graph(
    graph: &PartitionGraph,
    out: &Path,
    memory_bytes: u64,
    progress: &dyn Progress,
) -> Result<Manifest> {
    partition_graph::build(graph, out, memory_bytes, progress)
}

/// Makes a graph of any size with power-law degrees and homophily, and publishes it as a store at `out`.
pub fn power_law(graph: &PowerLaw, out: &Path, memory_bytes: u64, progress: &dyn Progress) -> Result<Manifest> {
    power_law::build(graph, out, memory_bytes, progress)
}

#[cfg(test)]
pub(crate) mod testing {
    //! Shared by the tests of the generators and of the modules that use generated graphs.

    use kith_store::{Dtype, Graph};

    use super::*;
    use crate::{progress::Quiet, split::Fractions};

    pub(super) const MEMORY_BYTES: u64 = 64 << 20;

    /// A small graph, to be changed where it matters.
    pub(crate) const PLAIN: PowerLaw = PowerLaw {
        n_nodes: 600,
        edges: EdgeAmount::AverageDegree(6.0),
        exponent: 2.5,
        n_classes: 4,
        homophily: 0.5,
        communities: None,
        is_directed: false,
        has_weights: false,
        dim: 0,
        dtype: Dtype::F32,
        split: Fractions { train: 0.3, valid: 0.2, test: 0.2 },
        run_key: 3,
    };

    /// Makes a store of a graph, and opens it.
    pub(crate) fn open(graph: &PowerLaw, out: &Path) -> Graph {
        power_law(graph, out, MEMORY_BYTES, &Quiet).unwrap();
        Graph::open(out).unwrap()
    }

    /// Makes a graph with a number of threads, and opens it.
    pub(super) fn made(
        n_threads: usize,
        make: impl FnOnce(&Path, u64, &dyn Progress) -> Result<Manifest> + Send,
    ) -> (Manifest, Graph) {
        let temp = tempfile::tempdir().unwrap();
        let out = temp.path().join("store");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        let manifest = pool.install(|| make(&out, MEMORY_BYTES, &Quiet)).unwrap();
        assert_eq!(kith_store::verify(&out, &|_| ()).unwrap().findings, []);
        let graph = Graph::open(&out).unwrap(); // stays readable when the folder is gone
        (manifest, graph)
    }

    /// Directed edges of the store inside a class, and between classes.
    pub(super) fn n_inside_and_between(graph: &Graph) -> (u64, u64) {
        let labels = graph.labels().unwrap();
        let (mut n_inside, mut n_between) = (0, 0);
        for node in 0..graph.n_nodes() {
            let class = labels.class(node).unwrap().unwrap();
            for neighbor in graph.lists().of(node).unwrap().iter() {
                let is_inside = labels.class(neighbor).unwrap() == Some(class);
                *(if is_inside { &mut n_inside } else { &mut n_between }) += 1;
            }
        }
        (n_inside, n_between)
    }

    /// Nodes of a split that train, validate and test.
    pub(super) fn part_sizes(graph: &Graph) -> [u64; 4] {
        let mut sizes = [0; 4];
        (0..graph.n_nodes()).for_each(|node| sizes[graph.splits()[0].part(node).unwrap() as usize] += 1);
        sizes
    }

    /// The sentence with which a graph is refused; nothing may be left behind.
    pub(super) fn refusal(make: impl FnOnce(&Path, u64, &dyn Progress) -> Result<Manifest>) -> String {
        let temp = tempfile::tempdir().unwrap();
        let error = make(&temp.path().join("store"), MEMORY_BYTES, &Quiet).unwrap_err();
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
        error.to_string()
    }
}
