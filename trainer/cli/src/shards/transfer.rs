//! `kith shards copy` and `kith shards move`.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Instant,
};

use kith_partition::progress::{Progress, Unit};
use kith_store::{
    Cluster, Outcome, Presence, Step, Transfer, TransferKind, Transferred, Verify, Watch, parse_shard_list, shard_list,
};
use serde_json::json;

use crate::{
    answer::{print, print_json},
    progress::{Shown, bytes, say},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The partitioned graph; its folder may hold some of the shards only.
    #[arg(value_name = "GRAPH")]
    graph: PathBuf,
    /// Shards: comma-separated numbers and ranges, as in 0,2-3, or all (those that the folder holds).
    #[arg(long, value_name = "LIST", value_parser = parse_choice)]
    shards: Choice,
    /// The folder that gets the shards: a new one, or one that holds shards of the same partitioned graph.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Shards to copy or move.
#[derive(Clone)]
enum Choice {
    All,
    These(BTreeSet<u32>),
}

fn parse_choice(text: &str) -> Result<Choice, String> {
    if text == "all" { Ok(Choice::All) } else { parse_shard_list(text).map(Choice::These) }
}

pub(crate) fn run(args: &Args, kind: TransferKind) -> anyhow::Result<()> {
    let started = Instant::now();
    let shards = match &args.shards {
        Choice::These(shards) => shards.clone(),
        Choice::All => all_shards(&args.graph)?,
    };
    if shards.is_empty() && kind == TransferKind::Copy {
        anyhow::bail!("{}: holds no shards: give a folder that holds some (`kith shards list`)", args.graph.display());
    }
    let done = Transfer::new(&args.graph, &args.to, &shards, kind)?.run(&Bars(Shown::new()))?;
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        let shards: Vec<_> = done.iter().map(as_json).collect();
        return print_json(&json!({ "graph": args.graph, "to": args.to, "shards": shards, "seconds": seconds }));
    }
    for shard in &done {
        print(&format!("shard {}: {}, {}\n", shard.shard, bytes(shard.n_bytes), words(shard.outcome)))?;
    }
    let n_bytes = done.iter().map(|shard| shard.n_bytes).sum();
    print(&format!("{}: verified {}, {}, {seconds:.1} s\n", args.to.display(), named(&shards), bytes(n_bytes)))?;
    if kind == TransferKind::Move {
        say(&note(args, &done));
    }
    Ok(())
}

/// All shards that a folder holds. A shard that is not usable is an error: the folder might be deleted once the others are copied.
fn all_shards(graph: &Path) -> anyhow::Result<BTreeSet<u32>> {
    let cluster = Cluster::open_with(graph, Verify::Off)?;
    for shard in 0..cluster.n_shards() {
        if let Presence::Unusable { problem } = cluster.presence(shard) {
            anyhow::bail!(
                "{}: shard {shard} is not usable: {problem}: replace it by a good copy, or name the other shards with --shards",
                graph.display()
            );
        }
    }
    Ok(cluster.shards_here())
}

/// `shard 1` or `shards 0,2-4`.
pub(crate) fn named(shards: &BTreeSet<u32>) -> String {
    format!("{} {}", if shards.len() == 1 { "shard" } else { "shards" }, shard_list(shards))
}

/// Advice for servers of the folder that shards were moved from.
fn note(args: &Args, done: &[Transferred]) -> String {
    let (from, to) = (args.graph.display(), args.to.display());
    let is_renamed = done.iter().all(|shard| shard.outcome == Outcome::Renamed);
    let space = if is_renamed { "" } else { "; then their disk space is free" };
    format!(
        "note: servers of {from} keep serving these shards until they stop: start servers on {to}, then stop those of {from}{space}"
    )
}

fn as_json(shard: &Transferred) -> serde_json::Value {
    let outcome = match shard.outcome {
        Outcome::Copied => "copied",
        Outcome::Renamed => "renamed",
        Outcome::AlreadyThere => "already-there",
    };
    json!({ "shard": shard.shard, "n_bytes": shard.n_bytes, "outcome": outcome })
}

fn words(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Copied => "copied",
        Outcome::Renamed => "renamed: the same file system",
        Outcome::AlreadyThere => "already there",
    }
}

/// Shows one bar or line per step.
struct Bars(Shown);

impl Watch for Bars {
    fn begin(&self, step: Step, shard: u32, n_bytes: u64) {
        let what = match step {
            Step::Copy => format!("copying shard {shard}"),
            Step::Verify => format!("verifying shard {shard}"),
        };
        self.0.begin(&what, Some(n_bytes), Unit::Bytes);
    }

    fn advance(&self, n: u64) {
        self.0.advance(n);
    }

    fn end(&self) {
        self.0.end();
    }
}
