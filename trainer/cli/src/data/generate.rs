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

/// Make a graph: the paper's random partition graphs, or power-law graphs of any size.
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

/// The paper's random partition graph: classes of one size, two-dimensional rows, 20/50/100 nodes per class in the split.
#[derive(clap::Args)]
struct PartitionGraphArgs {
    #[command(flatten)]
    common: Common,
    /// Classes.
    #[arg(long, default_value_t = 10)]
    classes: u32,
    /// Nodes of each class.
    #[arg(long, default_value_t = 500)]
    nodes_per_class: u64,
    /// Expected neighbors of a node.
    #[arg(long, default_value_t = 10.0)]
    degree: f64,
    /// Expected share of neighbors of the same class.
    #[arg(long, default_value_t = 0.5)]
    homophily: f64,
}

/// A graph of any size with power-law degrees, classes and communities, gaussian rows that know their class.
#[derive(clap::Args)]
struct PowerLawArgs {
    #[command(flatten)]
    common: Common,
    /// Nodes.
    #[arg(long)]
    nodes: u64,
    /// Edges to draw, each stored in both directions unless --directed; loops and duplicates among them are dropped.
    #[arg(long, conflicts_with = "degree")]
    edges: Option<u64>,
    /// Neighbors of a node, on average.
    #[arg(long, default_value_t = 14.0)]
    degree: f64,
    /// The share of nodes with degree d falls as d^-exponent.
    #[arg(long, default_value_t = 2.5)]
    exponent: f64,
    /// Classes.
    #[arg(long, default_value_t = 10)]
    classes: u32,
    /// Expected share of edges inside a class.
    #[arg(long, default_value_t = 0.6)]
    homophily: f64,
    /// Nodes of a community inside a class; 0 for none.
    #[arg(long, default_value_t = 0)]
    community: u64,
    /// Of the edges inside a class, the share that stays inside a community.
    #[arg(long, default_value_t = 0.5, requires = "community")]
    community_share: f64,
    /// Leave edges as drawn instead of storing both directions.
    #[arg(long)]
    directed: bool,
    /// Length of a row; 0 for a graph without rows.
    #[arg(long, default_value_t = 128)]
    dim: u32,
    /// Type of a row's values: f32, f16 or bf16.
    #[arg(long, default_value = "f32", value_parser = dtype)]
    dtype: Dtype,
    /// Shares of nodes that train, validate and test.
    #[arg(long, default_value = "0.6/0.2/0.2", value_parser = shares, value_name = "TRAIN/VALID/TEST")]
    split: Fractions,
}

#[derive(clap::Args)]
struct Common {
    /// The store to make.
    #[arg(long, value_name = "STORE")]
    out: PathBuf,
    /// Names everything that is drawn.
    #[arg(long, default_value_t = 42)]
    run_key: u64,
    /// The most memory to hold.
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = crate::size::parse)]
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
