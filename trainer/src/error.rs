//! Errors of a run.

pub(crate) mod device_code;

use std::{
    io,
    path::{Path, PathBuf},
};

use kith_block::BlockError;
use kith_client::ClientError;
use kith_run::{
    exit_code::{RETRY, WRONG, is_caused_by_passing},
    file_error::FileError,
    memory_plan::bytes,
    run_file::RunFileError,
    stop::Request,
};
use kith_store::StoreError;
use tch::TchError;

use crate::distributed::world::WorldError;

/// Errors of a run, one sentence each.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// Too few edges to hold some out.
    #[error(
        "link prediction needs edges for validation, test and training, and its fractions (links.valid, links.test, \
         links.disjoint_train_ratio) leave none of {n_edges} edges for one of them: change them"
    )]
    Links {
        /// Pairs of nodes with an edge.
        n_edges: usize,
    },
    /// Links of several graphs.
    #[error("link prediction (--task links) takes one graph, and this is a set of several: import them one by one")]
    LinksOfSet,
    /// More nodes or edges than pairs have room for.
    #[error("link prediction takes graphs of fewer than 2^32 {what}, and this one has {n}: train on a part of it")]
    LinksOfLarge {
        /// Number of nodes or edges.
        n: u64,
        /// `nodes` or `edges`.
        what: &'static str,
    },
    /// Nearly all pairs have an edge.
    #[error(
        "link prediction holds out pairs without an edge, and nearly all pairs of this graph have one: set `links.ranking` to exact"
    )]
    NoNonEdges,
    /// A file of pairs that cannot be used.
    #[error("{}: {problem}", path.display())]
    Pairs {
        /// The file.
        path: PathBuf,
        /// The problem, with its line.
        problem: String,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The graph is too large for full batches.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The ranks cannot go on together.
    #[error(transparent)]
    World(#[from] WorldError),
    /// There is no batch.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Something that only a whole store can give.
    #[error(
        "this needs the whole graph in one process: give a store with --graph, or train with train.mode = \"mini-batch\""
    )]
    NeedsStore,
    /// There is nothing to learn from.
    #[error("the store has no features: import it with --features")]
    NoRows,
    /// Weights are wanted, and edges have none.
    #[error("`{key}` needs edge weights, and the graph has none: import it with --edge-weights, or remove the key")]
    NoEdgeWeights {
        /// The key.
        key: &'static str,
    },
    /// Features of edges are wanted, and there are none.
    #[error(
        "expected {expected} features per edge (`model.edge_dim`), found none: import the graph with --edge-features, or remove the key"
    )]
    NoEdgeFeatures {
        /// By the run file.
        expected: usize,
    },
    /// Edges have another number of features.
    #[error("expected {expected} features per edge (`model.edge_dim`), found {found}: set model.edge_dim = {found}")]
    EdgeDim {
        /// By the run file.
        expected: usize,
        /// Of the graph.
        found: usize,
    },
    /// There is nothing to learn.
    #[error("the store has no labels: import it with --labels")]
    NoLabels,
    /// A limit of private memory that is too small.
    #[error("expected at most {} of private memory (--memory), {what} needs about {}: {remedy}", bytes(*limit), bytes(*needed))]
    Memory {
        /// The limit, in bytes.
        limit: u64,
        /// Bytes that are needed.
        needed: u64,
        /// Needs them.
        what: &'static str,
        /// Advice for needing less.
        remedy: &'static str,
    },
    /// Graph norm in parts of a set of several graphs.
    #[error(
        "graph norm is over the nodes of each graph, and parts of a set of graphs are not computed graph by graph: train full-batch and \
         predict without --memory, or set model.norm to layer or batch"
    )]
    GraphNorm,
    /// A setting that does not fit the labels.
    #[error("{0}")]
    Labels(String),
    /// Nobody said which nodes train.
    #[error("the store has no split: import it with --split")]
    NoSplit,
    /// The split that was asked for is not there.
    #[error("the store has no split {name:?}: it has {}", available.join(", "))]
    UnknownSplit {
        /// The name asked for.
        name: String,
        /// The names there are.
        available: Vec<String>,
    },
    /// A part of the split is empty.
    #[error("the split {split:?} has no {part} nodes")]
    EmptyPart {
        /// The split.
        split: String,
        /// Train, valid or test.
        part: &'static str,
    },
    /// A node that is trained on or evaluated has no label.
    #[error("node {node} is in the split {split:?} and has no label: leave it out of the split")]
    Unlabeled {
        /// The node.
        node: u64,
        /// The split.
        split: String,
    },
    /// A class that no node has can be a mistake in the labels, never something to learn.
    #[error("class {class} of {n_classes} never occurs: no node of the store has it")]
    ClassNeverOccurs {
        /// The class.
        class: u64,
        /// Classes by the store.
        n_classes: u64,
    },
    /// An edge of a set of graphs joins two of them.
    #[error("node {node} has an edge from node {source_node}, which belongs to another graph of the set")]
    EdgeBetweenGraphs {
        /// The destination.
        node: u64,
        /// The source.
        source_node: u64,
    },
    /// The run file is wrong.
    #[error(transparent)]
    RunFile(#[from] RunFileError),
    /// libtorch or a kernel refused.
    #[error("libtorch: {}", first_line(.0))]
    Torch(#[from] TchError),
    /// The system refused to read or write a file.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The fused kernels cannot compute there.
    #[error("the fused kernels run on the CPU: on another device train with --kernels reference")]
    KernelsOnCpu,
    /// A GPU's kernels cannot compute the run.
    #[error("{0}: train on the CPU, or with --kernels reference")]
    NotOnGpu(String),
    /// A GPU did not do what it was asked.
    #[error(transparent)]
    Gpu(kith_kernels::cuda::GpuError),
    /// A GPU has too little memory for a run.
    #[error("{error}; {advice}")]
    GpuMemory {
        /// The error, with the memory that was needed.
        error: kith_kernels::cuda::GpuError,
        /// Advice for needing less.
        advice: &'static str,
    },
    /// A loss is not a finite number any more: nothing good can follow.
    #[error("the loss is not finite at step {step} (epoch {epoch}): {place}; a smaller learning rate may help")]
    NotFinite {
        /// The step, counted from 0.
        step: u64,
        /// The epoch, counted from 0.
        epoch: u64,
        /// The first part that is not finite, in a sentence.
        place: String,
    },
    /// A run's folder cannot be kept where it should be.
    #[error("{problem}")]
    NotKept {
        /// The place and the problem.
        problem: String,
        /// True if a retry may succeed.
        is_passing: bool,
    },
    /// The folder holds a run, which is never overwritten.
    #[error("{path}: holds a run already: resume it with --resume, or choose another place")]
    RunExists {
        /// The folder.
        path: PathBuf,
    },
    /// Somebody else is training into the same folder.
    #[error("{path}: another process is training there")]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// A checkpoint cannot be used.
    #[error("{path}: {problem}")]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A file of weights does not fit the model.
    #[error("{path}: {problem}")]
    Weights {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A signal asked a rank to stop, and all ranks have stopped after the same step.
    #[error("stopped by {} after {step} steps{kept}", request.name())]
    Asked {
        /// The signal.
        request: Request,
        /// Weight updates so far.
        step: u64,
        /// Advice on going on.
        kept: &'static str,
    },
    /// A signal came while a model was evaluated.
    #[error("the evaluation was abandoned after {}", .0.name())]
    Abandoned(Request),
    /// A past step cannot be made again, or is not what it was.
    #[error("{0}")]
    Replay(String),
    /// The model or store does not have the requested output.
    #[error("{0}")]
    Predict(String),
}

impl TrainError {
    /// Exit code of a program that ends with it: 1 is for the user to fix, 75 may be tried again, 130 is Ctrl-C, 70 is a bug.
    pub fn code(&self) -> u8 {
        match self {
            TrainError::World(error) => error.code(),
            TrainError::Client(error) if error.may_be_tried_again() => RETRY,
            // An earlier process of the run may not have ended yet.
            TrainError::NotKept { is_passing: true, .. } | TrainError::Busy { .. } => RETRY,
            TrainError::Asked { request, .. } | TrainError::Abandoned(request) => request.code(),
            TrainError::Gpu(kith_kernels::cuda::GpuError::Driver { error, .. }) => device_code::of_driver(error),
            TrainError::Torch(error) => device_code::of_torch(error).unwrap_or(WRONG),
            other if is_caused_by_passing(other) => RETRY,
            _ => WRONG,
        }
    }

    /// An error of the system about one file.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> TrainError + '_ {
        move |source| TrainError::Io { path: path.to_owned(), source }
    }

    pub(crate) fn weights(path: &Path, problem: impl Into<String>) -> TrainError {
        TrainError::Weights { path: path.to_owned(), problem: problem.into() }
    }

    /// A problem of a line of a file of pairs.
    pub(crate) fn pairs_line(path: &Path, line: usize, problem: &str) -> TrainError {
        TrainError::Pairs { path: path.to_owned(), problem: format!("line {line}: {problem}") }
    }

    pub(crate) fn checkpoint(path: &Path, problem: impl Into<String>) -> TrainError {
        TrainError::Checkpoint { path: path.to_owned(), problem: problem.into() }
    }
}

/// libtorch says in its first line what is wrong, and then where in its own code.
fn first_line(error: &TchError) -> String {
    let text = match error {
        TchError::Torch(text) => text.clone(),
        other => other.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}

impl From<FileError> for TrainError {
    fn from(FileError { path, source }: FileError) -> TrainError {
        TrainError::Io { path, source }
    }
}

impl From<kith_kernels::cuda::GpuError> for TrainError {
    fn from(error: kith_kernels::cuda::GpuError) -> TrainError {
        TrainError::Gpu(error)
    }
}

impl TrainError {
    /// The same, and where a GPU's memory is too small, what would need less.
    pub(crate) fn advised(self, advice: &'static str) -> TrainError {
        match self {
            TrainError::Gpu(error @ kith_kernels::cuda::GpuError::NoMemory { .. }) => {
                TrainError::GpuMemory { error, advice }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use kith_kernels::cuda::GpuError;
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn storage_that_does_not_answer_is_worth_another_try_in_whatever_it_is_wrapped() {
        let path = Path::new("runs/a");
        for (errno, code) in [(Errno::IO, RETRY), (Errno::STALE, RETRY), (Errno::NOENT, 1), (Errno::NOSPC, 1)] {
            let store = || StoreError::io(path)(errno.into());
            let client = ClientError::Batch { step: 1, slice: 0, source: Box::new(ClientError::from(store())) };
            let wrapped = [TrainError::io(path)(errno.into()), store().into(), client.into()];
            assert_eq!(wrapped.map(|error| error.code()), [code; 3], "{errno}");
        }
    }

    #[test]
    fn a_folder_that_an_earlier_process_still_holds_is_worth_another_try() {
        assert_eq!(TrainError::Busy { path: "runs/a".into() }.code(), RETRY);
        assert_eq!(TrainError::RunExists { path: "runs/a".into() }.code(), 1);
        let driver = |error: &str| TrainError::Gpu(GpuError::Driver { what: "launch", error: error.to_owned() });
        assert_eq!(driver("CUDA_ERROR_ECC_UNCORRECTABLE").code(), RETRY);
    }
}
