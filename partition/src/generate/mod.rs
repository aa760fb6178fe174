//! Graphs that are made, not read. Each is a function of its parameters and a run key, whatever the number of threads
//! and the memory limit.

mod partition_graph;
mod power_law;
mod split;
mod weights;

use std::{
    fmt::Display,
    ops::Range,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use kith_draw::{Name, Purpose, Stream};
use kith_store::{Manifest, Provenance};
use rayon::prelude::*;

pub use self::{
    partition_graph::PartitionGraph,
    power_law::{Communities, EdgeAmount, PowerLaw},
};
use crate::{
    build::{EdgeFeeder, ListsBuilder, MAX_NODES},
    error::{PartitionError, Result},
    progress::{Piece, Progress},
};

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

/// What a generator draws, told apart by the layer of the name. Other makers of rows use 16 and above.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
enum Drawn {
    PairsInside = 0,
    PairsBetween = 1,
    Points = 2,
    Ranks = 3,
    Edges = 4,
}

impl Drawn {
    fn stream(self, run_key: u64) -> Stream {
        Name { run_key, purpose: Purpose::Generator, step: 0, layer: self as u32 }.stream()
    }
}

/// Calls `push` for pieces of `0..n_items` from all threads, each with a feeder of its own. Which thread takes which
/// piece changes nothing, because lists are sorted.
fn feed(
    lists: &ListsBuilder<'_>,
    n_items: u64,
    piece_len: u64,
    work: &Piece<'_>,
    push: impl Fn(Range<u64>, &mut EdgeFeeder<'_, '_>) -> Result<()> + Sync,
) -> Result<()> {
    let n_pieces = n_items.div_ceil(piece_len);
    let next = AtomicU64::new(0);
    let feed_some = |_| {
        let mut feeder = lists.feeder();
        loop {
            let piece = next.fetch_add(1, Relaxed);
            if piece >= n_pieces {
                return feeder.finish();
            }
            let range = piece * piece_len..n_items.min((piece + 1) * piece_len);
            let n_done = range.end - range.start;
            // One failure stops all threads.
            push(range, &mut feeder).inspect_err(|_| next.store(n_pieces, Relaxed))?;
            work.advance(n_done);
        }
    };
    (0..rayon::current_num_threads()).into_par_iter().try_for_each(feed_some)
}

/// States what a graph was made from.
fn record(provenance: &mut Provenance, source: &str, run_key: u64, options: &[(&str, &dyn Display)]) {
    provenance.source = source.to_owned();
    provenance.run_key = Some(run_key);
    provenance.options.extend(options.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())));
}

fn refuse(problem: String) -> PartitionError {
    PartitionError::Option(problem)
}

/// Refuses a share that is none.
fn check_share(what: &str, share: f64) -> Result<()> {
    if (0.0..=1.0).contains(&share) { Ok(()) } else { Err(refuse(format!("{what} {share}: a share is from 0 to 1"))) }
}

#[cfg(test)]
pub(crate) mod testing {
    //! What the tests of generators, and of what is done with their graphs, share.

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
