//! Combinations to measure.

use std::path::Path;

use anyhow::bail;
use kith_run::{
    config::Mode,
    preset::{PRESETS, Preset},
    run_file::RunFile,
};
use kith_sampler::Fanout;
use serde::{Deserialize, Serialize};

use super::scale_args::Args;
use crate::{launch::command_line::Threads, partition::fanouts::Fanouts};

/// Dataset of the presets, for a model named without a dataset.
const GENERAL: &str = "ogbn-arxiv";

/// A number of epochs that no run reaches.
pub(super) const FOREVER: u64 = 1_000_000_000;

/// One combination, and everything that its measurements depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Combination {
    /// Digest of the store.
    pub(super) store: String,
    /// Version of this program.
    pub(super) kith: String,
    pub(super) fanouts: String,
    pub(super) shards: u32,
    pub(super) servers: usize,
    pub(super) ranks: usize,
    pub(super) seeds_per_step: u64,
    /// Measured steps, and warm-up steps before them.
    pub(super) steps: u64,
    pub(super) warm_up: u64,
    /// Threads of each rank, and of each server.
    pub(super) rank_threads: usize,
    pub(super) server_threads: usize,
    pub(super) device: String,
    /// Cache of the servers' features, as a percentage of all nodes.
    pub(super) cache: String,
    /// Partitioning method, if given.
    pub(super) method: Option<String>,
    /// True if every process has a core of its own.
    #[serde(default)]
    pub(super) pinned: bool,
    /// Speed of the loopback device, if it is throttled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) loopback_rate: Option<String>,
    /// Number of the round, from 0.
    #[serde(default)]
    pub(super) round: u16,
    /// The ranks' resolved run file, with all defaults.
    pub(super) run_file: String,
}

/// A combination that is impossible, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Skipped {
    pub(super) shards: u32,
    pub(super) servers: usize,
    pub(super) why: String,
}

/// `2 shards, 1 server, 2 ranks, fanouts 10,10`
impl std::fmt::Display for Combination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Combination { fanouts, shards, servers, ranks, .. } = self;
        let shards = several(*shards as usize, "shard");
        write!(f, "{shards}, {}, {}, fanouts {fanouts}", several(*servers, "server"), several(*ranks, "rank"))
    }
}

/// `1 rank`, `2 ranks`
pub(super) fn several(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// All combinations of a store, in the order of measurement, and the skipped ones.
pub(super) fn combinations(args: &Args, store: &str) -> anyhow::Result<(Vec<Combination>, Vec<Skipped>)> {
    let named = named(&args.model)?;
    let (mut asked, mut skipped) = (Vec::new(), Vec::new());
    let servers_of = |shards: u32| args.servers.iter().filter(move |servers| **servers > shards as usize);
    for &shards in &args.shards {
        skipped.extend(servers_of(shards).map(|&servers| Skipped {
            shards,
            servers,
            why: format!(
                "{} for {}: some would have nothing to serve",
                several(servers, "server"),
                several(shards as usize, "shard")
            ),
        }));
    }
    for fanouts in &args.fanouts {
        for &shards in &args.shards {
            for &servers in args.servers.iter().filter(|servers| **servers <= shards as usize) {
                for ranks in args.ranks.iter().map(|ranks| usize::from(*ranks)) {
                    let shared =
                        if args.pin { Threads { rank: 1, server: 1 } } else { Threads::shared(ranks, servers) };
                    let one = Combination {
                        store: store.to_owned(),
                        kith: env!("CARGO_PKG_VERSION").to_owned(),
                        fanouts: fanouts.to_string(),
                        shards,
                        servers,
                        ranks,
                        seeds_per_step: args.seeds_per_step,
                        steps: args.steps,
                        warm_up: args.warm_up,
                        rank_threads: args.threads.unwrap_or(shared.rank),
                        server_threads: if servers == 0 { 0 } else { args.threads.unwrap_or(shared.server) },
                        device: args.device.clone(),
                        cache: args.cache.to_string(),
                        method: args.method.map(|method| method.to_string()),
                        pinned: args.pin,
                        loopback_rate: args.loopback_rate.clone(),
                        round: 0,
                        run_file: run_file(named.clone(), args, fanouts, ranks)?,
                    };
                    if !asked.contains(&one) {
                        asked.extend((0..args.rounds).map(|round| Combination { round, ..one.clone() }));
                    }
                }
            }
        }
    }
    Ok((asked, skipped))
}

/// A run file, a preset, or a model of the [`GENERAL`] presets.
pub(crate) fn named(model: &str) -> anyhow::Result<RunFile> {
    if Path::new(model).is_file() || model.ends_with(".toml") {
        return Ok(RunFile::read(Path::new(model))?);
    }
    let general = format!("{GENERAL}/{model}");
    let is_general = PRESETS.iter().any(|preset| preset.name == general);
    Ok(Preset::get(if is_general { &general } else { model })?.run_file()?)
}

/// Run file of the ranks: endless, without evaluation and checkpoints.
fn run_file(mut file: RunFile, args: &Args, fanouts: &Fanouts, n_ranks: usize) -> anyhow::Result<String> {
    file.set("train.mode=mini-batch")?;
    for assignment in &args.assignments {
        file.set(assignment)?;
    }
    let mut config = file.resolve()?;
    if config.train.mode != Mode::MiniBatch {
        bail!("ranks share mini-batches only: remove `train.mode` from --set");
    }
    // A step has a slice for every rank, and a model a layer for every hop.
    config.train.fanouts = fanouts.0.iter().map(|fanout| fanout.map_or(Fanout::All, Fanout::AtMost)).collect();
    config.train.batch_size = Some(args.seeds_per_step as usize);
    config.train.slices = config.train.slices.max(n_ranks);
    config.model.n_layers = config.model.n_layers.max(fanouts.0.len());
    config.train.epochs = FOREVER;
    config.train.evaluate_every = FOREVER;
    config.train.checkpoint_every = FOREVER;
    config.train.checkpoint_every_steps = None;
    config.early_stop = None;
    Ok(config.to_toml())
}
