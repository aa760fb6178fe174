//! `kith partition`: partitions a store into shards.

pub(crate) mod fanouts;
mod verify;

use std::{path::PathBuf, time::Instant};

use anyhow::bail;
use kith_partition::{
    assign::{self, AssignOptions, Balance, CutReport, Method, check_memory, choose_method, needed_bytes},
    cluster::{PartitionOptions, Partitioned, partition},
    inclusion::InclusionOptions,
};
use kith_store::{Contents, Graph, memory::available_bytes};
use serde_json::json;

use self::fanouts::Fanouts;
use crate::{
    answer::{print_fields, print_json},
    progress::{Shown, bytes, grouped, say},
};

/// Partition a store into shards, for sampling servers and for ranks; or verify a partitioned graph.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Four shards:         kith partition stores/arxiv --shards 4 --out graphs/arxiv-4.shards
In bounded memory:   kith partition stores/huge --shards 64 --method stream --out graphs/huge-64.shards
Verify the result:   kith partition verify graphs/arxiv-4.shards --graph stores/arxiv"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    cut: Option<CutArgs>,
}

#[derive(clap::Subcommand)]
enum Command {
    Verify(verify::Args),
}

#[derive(clap::Args)]
struct CutArgs {
    /// The store to partition.
    store: PathBuf,
    /// Number of shards, 1 to 65,536. Some are empty if there are fewer nodes.
    #[arg(long, value_name = "K")]
    shards: u32,
    /// Partitioning method: metis (smallest edge cut), stream (bounded memory), hash or range (default: metis if it fits in
    /// memory, else stream).
    #[arg(long)]
    method: Option<Method>,
    /// The partitioned graph to write.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Balance of the shards, to within 5%: nodes, or all (nodes, edges and training nodes) (default: all).
    #[arg(long, default_value = "all", hide_default_value = true, value_parser = balance)]
    balance: Balance,
    /// Seed of all random draws (default: 42).
    #[arg(long = "seed", alias = "run-key", value_name = "N", default_value_t = 42, hide_default_value = true)]
    run_key: u64,
    /// Fanouts of the mini-batches that feature caches are chosen for, from the seed nodes outwards (default: 10,10).
    #[arg(long, default_value = "10,10", hide_default_value = true, value_name = "N,N|all")]
    fanouts: Fanouts,
    /// Seed nodes of these mini-batches, all ranks together (default: 1024).
    #[arg(long = "batch-size", alias = "seeds-per-step", default_value_t = 1024, hide_default_value = true, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..))]
    seeds_per_step: u64,
    /// Memory limit, memory-mapped files excluded, as in 4GiB (default: the available memory).
    #[arg(long, value_name = "SIZE", value_parser = crate::size::parse)]
    memory: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match (args.command, args.cut) {
        (Some(Command::Verify(args)), _) => verify::run(args),
        (None, Some(args)) => cut(args),
        (None, None) => bail!("give a store and --shards, or `verify` and a partitioned graph"),
    }
}

fn cut(args: CutArgs) -> anyhow::Result<()> {
    let started = Instant::now();
    let graph = Graph::open(&args.store)?;
    let method = method_for(args.method, &graph.manifest().contents, args.shards, args.memory)?;
    let options = PartitionOptions {
        assign: AssignOptions { n_shards: args.shards, method, balance: args.balance, run_key: args.run_key },
        inclusion: Some(InclusionOptions { fanouts: args.fanouts.0, seeds_per_step: args.seeds_per_step }),
    };
    let made = partition(&graph, &args.out, &options, &Shown::new())?;
    made.report.notes.iter().for_each(|note| say(&format!("note: {note}")));
    let findings: Vec<String> = made.verified.findings.iter().map(ToString::to_string).collect();
    if args.json {
        print_json(&json!({
            "cluster": args.out,
            "digest": made.manifest.digest,
            "n_bytes": made.verified.n_bytes,
            "report": made.report,
            "findings": findings,
            "seconds": started.elapsed().as_secs_f64(),
        }))?;
    } else {
        print_fields(&readable(&made, started))?;
    }
    if findings.is_empty() { Ok(()) } else { bail!("{}: {}", args.out.display(), findings.join("; ")) }
}

/// The requested method, or the best that fits. Prints its memory need, and refuses it if memory is short.
pub(crate) fn method_for(
    asked: Option<Method>,
    contents: &Contents,
    n_shards: u32,
    memory: Option<u64>,
) -> anyhow::Result<Method> {
    if !(1..=assign::MAX_SHARDS).contains(&n_shards) {
        bail!("--shards {n_shards}: ask for 1 to {}", assign::MAX_SHARDS);
    }
    let there = memory.or_else(available_bytes).unwrap_or(u64::MAX);
    let (method, why) = match asked {
        Some(method) => (method, "as asked".to_owned()),
        None => choose_method(contents, n_shards, there),
    };
    let needed = needed_bytes(contents, method, n_shards);
    say(&format!("method {method} ({why}): about {} of memory needed, {} there", bytes(needed), bytes(there)));
    check_memory(contents, method, n_shards, there)?;
    Ok(method)
}

fn readable(made: &Partitioned, started: Instant) -> Vec<(&'static str, String)> {
    let mut fields = vec![("digest", made.manifest.digest.clone())];
    fields.extend(readable_report(&made.report));
    fields.push(("verified", bytes(made.verified.n_bytes)));
    fields
        .push(("time", format!("{:.1} s, owners {:.1} s of it", started.elapsed().as_secs_f64(), made.report.seconds)));
    fields
}

/// Edge cut and balance of an assignment, in lines.
pub(crate) fn readable_report(report: &CutReport) -> Vec<(&'static str, String)> {
    let balance = report.balance;
    let mut fields = vec![
        ("shards", format!("{} by {}", grouped(report.n_shards.into()), report.method)),
        ("cut", format!("{:.2}% ({} of {} edges)", report.cut_percent, grouped(report.n_cut), grouped(report.n_edges))),
        (
            "heaviest shard",
            format!(
                "{:.3} of the mean by nodes, {:.3} by edges, {:.3} by training seeds",
                balance.nodes, balance.edges, balance.train
            ),
        ),
    ];
    if let Some(peak) = report.peak_bytes {
        fields.push(("peak memory", format!("{}, mapped files included", bytes(peak))));
    }
    fields
}

fn balance(text: &str) -> Result<Balance, String> {
    match text {
        "nodes" => Ok(Balance::Nodes),
        "all" => Ok(Balance::All),
        _ => Err("expected nodes or all".to_owned()),
    }
}
