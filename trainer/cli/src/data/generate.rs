//! `kith data generate`.

use std::{path::PathBuf, time::Instant};

use kith_partition::{
    generate::{Communities, EdgeAmount, PartitionGraph, PowerLaw, partition_graph, power_law},
    split::Fractions,
};
use kith_store::Dtype;

use super::{
    memory,
    parsers::{dtype, shares},
    published::announce,
};
use crate::progress::Shown;

/// Generate a graph: a random partition graph as in the SuperGAT paper (ICLR 2021), or a power-law graph of any size.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    PartitionGraph(PartitionGraphArgs),
    PowerLaw(PowerLawArgs),
}

/// Generate a random partition graph as in the SuperGAT paper: classes of equal size, 2 features per node, and 20
/// training, 50 validation and 100 test nodes per class.
#[derive(clap::Args)]
struct PartitionGraphArgs {
    #[command(flatten)]
    common: Common,
    /// Number of classes (default: 10).
    #[arg(long, default_value_t = 10, hide_default_value = true)]
    classes: u32,
    /// Nodes per class (default: 500).
    #[arg(long, default_value_t = 500, hide_default_value = true)]
    nodes_per_class: u64,
    /// Expected degree of a node (default: 10).
    #[arg(long, default_value_t = 10.0, hide_default_value = true)]
    degree: f64,
    /// Expected fraction of a node's neighbors that have the same class as the node (default: 0.5).
    #[arg(long, default_value_t = 0.5, hide_default_value = true)]
    homophily: f64,
}

/// Generate a power-law graph of any size, with classes, communities and gaussian features that depend on the class.
#[derive(clap::Args)]
struct PowerLawArgs {
    #[command(flatten)]
    common: Common,
    /// Number of nodes.
    #[arg(long)]
    nodes: u64,
    /// Number of edges to draw (default: computed from --degree). Each edge is stored in both directions, or in one
    /// with --directed. Self-loops and duplicates are dropped.
    #[arg(long, conflicts_with = "degree")]
    edges: Option<u64>,
    /// Average degree (default: 14).
    #[arg(long, default_value_t = 14.0, hide_default_value = true)]
    degree: f64,
    /// Exponent of the degree distribution: the fraction of nodes with degree d falls as d^-exponent (default: 2.5).
    #[arg(long, default_value_t = 2.5, hide_default_value = true)]
    exponent: f64,
    /// Number of classes (default: 10).
    #[arg(long, default_value_t = 10, hide_default_value = true)]
    classes: u32,
    /// Expected fraction of edges that connect two nodes of the same class (default: 0.6).
    #[arg(long, default_value_t = 0.6, hide_default_value = true)]
    homophily: f64,
    /// Minimum number of nodes of a community, a group of nodes of one class; 0 means no communities (default: 0).
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    community: u64,
    /// Fraction of the edges between nodes of one class that stay within a community (default: 0.5).
    #[arg(long, default_value_t = 0.5, hide_default_value = true, requires = "community")]
    community_share: f64,
    /// Store each edge in the drawn direction only.
    #[arg(long)]
    directed: bool,
    /// Give edges random weights: exponential numbers of mean 1.
    #[arg(long)]
    edge_weights: bool,
    /// Number of features per node (default: 128); 0 generates a graph without features.
    #[arg(long, default_value_t = 128, hide_default_value = true)]
    dim: u32,
    /// Data type of the features: f32, f16 or bf16 (default: f32).
    #[arg(long, default_value = "f32", hide_default_value = true, value_parser = dtype)]
    dtype: Dtype,
    /// Fractions of nodes for training, validation and test (default: 0.6/0.2/0.2).
    #[arg(long, default_value = "0.6/0.2/0.2", hide_default_value = true, value_parser = shares,
        value_name = "TRAIN/VALID/TEST")]
    split: Fractions,
}

#[derive(clap::Args)]
struct Common {
    /// The store to write.
    #[arg(long, value_name = "STORE")]
    out: PathBuf,
    /// Seed of all random draws (default: 42).
    #[arg(long = "seed", alias = "run-key", value_name = "N", default_value_t = 42, hide_default_value = true)]
    run_key: u64,
    /// Memory limit (default: 2GiB).
    #[arg(long, value_name = "SIZE", default_value = "2GiB", hide_default_value = true,
        value_parser = crate::size::parse)]
    memory: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let started = Instant::now();
    let shown = Shown::new();
    let (manifest, common) = match args.kind {
        Kind::PartitionGraph(args) => {
            let PartitionGraphArgs { common, classes, nodes_per_class, degree, homophily } = args;
            let graph = PartitionGraph {
                n_classes: classes,
                nodes_per_class,
                average_degree: degree,
                homophily,
                run_key: common.run_key,
            };
            (partition_graph(&graph, &common.out, memory::for_data(common.memory)?, &shown)?, common)
        }
        Kind::PowerLaw(args) => {
            let graph = PowerLaw {
                n_nodes: args.nodes,
                edges: args.edges.map_or(EdgeAmount::AverageDegree(args.degree), EdgeAmount::Edges),
                exponent: args.exponent,
                n_classes: args.classes,
                homophily: args.homophily,
                communities: (args.community > 0)
                    .then_some(Communities { size: args.community, share: args.community_share }),
                is_directed: args.directed,
                has_weights: args.edge_weights,
                dim: args.dim,
                dtype: args.dtype,
                split: args.split,
                run_key: args.common.run_key,
            };
            (power_law(&graph, &args.common.out, memory::for_data(args.common.memory)?, &shown)?, args.common)
        }
    };
    announce(&manifest, &common.out, started, common.json)
}
