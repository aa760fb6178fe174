//! `kith launch --print`: prints the manifests of a run for another launcher, and starts nothing.

mod args;
mod kubernetes;
mod name;
mod passed;
mod sizes;

use std::{ffi::OsString, path::Path};

use anyhow::bail;
use kith_run::config::Mode;

pub(super) use self::args::PrintArgs;
use self::{
    kubernetes::{World, manifests},
    name::name_of,
    passed::passed,
    sizes::{Sizes, Wanted, sizes},
};
use super::{args::Args, command_line::servers_to_start};
use crate::{
    answer::print,
    graph::{GraphArgs, GraphPlace},
    plan::of_cluster,
    progress::say,
    train::{self, Typed},
};

/// Options that pods get in another way, or not at all.
const OWN: [&str; 16] = [
    "--device",
    "--graph",
    "--images",
    "--name",
    "--out",
    "--preset",
    "--print",
    "--rank-cpus",
    "--ranks",
    "--restarts",
    "--resume",
    "--sampler-cpus",
    "--samplers",
    "--shards",
    "--store",
    "--transport",
];

pub(super) fn run(args: &Args, typed: &[OsString]) -> anyhow::Result<()> {
    refuse(args)?;
    let (graph, print_args) = (place(&args.train.graph)?, &args.print);
    let run = train::typed(&args.train)?;
    if run.config.train.mode != Mode::MiniBatch {
        bail!("sampling servers serve mini-batches: give --set train.mode=mini-batch");
    }
    let planned = graph.shards.as_deref().map(|dir| of_cluster(dir, None)).transpose()?;
    let asked = servers_to_start(&graph.samplers)?;
    let n_shards = match (&planned, asked) {
        (Some(planned), _) => planned.sizes.len(),
        (None, Some(n_servers)) => n_servers,
        (None, None) if graph.samplers.is_empty() => {
            bail!("give the partitioned graph with --graph, or its number of shards with --samplers")
        }
        (None, None) => {
            bail!("servers that run already need no manifest: give their number with --samplers, or leave it out")
        }
    };
    let n_samplers = asked.unwrap_or(n_shards);
    if n_samplers == 0 {
        bail!("ranks need servers: ask for 1 or more with --samplers");
    }
    if !n_samplers.is_multiple_of(n_shards) {
        bail!("{n_samplers} servers for {n_shards} shards: each has one shard, so ask for a multiple of {n_shards}");
    }
    let wanted = Wanted {
        cache: args.train.graph.cache,
        run_key: args.train.run_key,
        memory: args.train.memory,
        n_threads: print_args.rank_cpus.into(),
    };
    let sizes = planned.map(|planned| sizes(&planned, &run.config, &wanted)).transpose()?;
    print(&manifests(&world(args, &run, &graph, typed, (n_shards, n_samplers), sizes)?))?;
    if sizes.is_none() {
        say("note: memory is guessed: give the partitioned graph with --graph, and it is forecast");
    }
    let (n_slices, n_ranks) = (run.config.train.slices, n_ranks(args));
    if n_slices < n_ranks {
        say(&format!("note: {n_slices} slices give {n_slices} ranks something to do: set train.slices={n_ranks}"));
    }
    Ok(())
}

/// Number of ranks (default: 1): the GPUs of this host say nothing about those of a cluster.
fn n_ranks(args: &Args) -> usize {
    args.ranks.map_or(1, usize::from)
}

/// Refuses options that make no sense in pods.
fn refuse(args: &Args) -> anyhow::Result<()> {
    let graph = &args.train.graph;
    if graph.graph.iter().chain(&graph.shards).any(|place| place.to_string_lossy().contains("://")) {
        bail!("--graph must be a folder on this machine: its name and its sizes are written into the manifests");
    }
    if graph.tls_ca.is_some() {
        bail!("certificates are in the Secret kith-samplers-tls: leave --tls-ca out (docs/grow/kubernetes.md)");
    }
    if graph.token_file.is_some() {
        bail!("the token of servers is in the Secret kith-token: leave --token-file out (docs/grow/kubernetes.md)");
    }
    if args.train.out.as_ref().is_some_and(|out| out.to_string_lossy().contains("://")) {
        bail!(
            "--out: expected a folder of the claim, found a URL: for a bucket, add the component bucket (docs/grow/kubernetes.md)"
        );
    }
    if args.train.metrics.is_some() {
        bail!("every pod shows its metrics on port 9100: leave --metrics out");
    }
    if args.launcher_metrics.is_some() {
        bail!("no launcher runs on Kubernetes, which shows restarts itself: leave --launcher-metrics out");
    }
    Ok(())
}

/// Place of the graph; empty if only its number of shards is known.
fn place(graph: &GraphArgs) -> anyhow::Result<GraphPlace> {
    match graph.graph.is_some() || graph.shards.is_some() {
        true => match graph.place()? {
            GraphPlace { store: Some(_), .. } => {
                bail!(
                    "ranks in pods need sampling servers: partition the store with `kith partition`, then give the result with --graph"
                )
            }
            place => Ok(place),
        },
        false => Ok(GraphPlace { samplers: graph.samplers.clone(), ..GraphPlace::default() }),
    }
}

fn world(
    args: &Args,
    run: &Typed,
    graph: &GraphPlace,
    typed: &[OsString],
    (n_shards, n_samplers): (usize, usize),
    sizes: Option<Sizes>,
) -> anyhow::Result<World> {
    let name = args.print.name.clone().unwrap_or_else(|| name_of(&run.name));
    let folder = |path: Option<&Path>| Some(path?.file_name()?.to_str()?.to_owned());
    Ok(World {
        n_ranks: n_ranks(args),
        n_shards,
        n_samplers,
        restarts: args.restarts,
        grace: args.train.grace().as_secs(),
        graph: folder(graph.shards.as_deref()).unwrap_or_else(|| "cluster".to_owned()),
        out: folder(args.train.out.as_deref()).unwrap_or_else(|| name.clone()),
        is_cuda: args.train.device.starts_with("cuda"),
        run_file: run.text.clone(),
        passed: passed(typed, &OWN)?,
        nccl: nccl(std::env::vars_os()),
        images: args.print.images.clone(),
        rank_cpus: args.print.rank_cpus,
        sampler_cpus: args.print.sampler_cpus,
        sizes,
        name,
    })
}

/// Variables of NCCL in the environment of this command, by name.
fn nccl(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<(String, String)> {
    let texts = variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut own: Vec<(String, String)> = texts.filter(|(name, _)| name.starts_with("NCCL_")).collect();
    own.sort();
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_nccl_are_found() {
        let set = [("PATH", "/bin"), ("NCCL_SOCKET_IFNAME", "eth0"), ("NCCL_DEBUG", "INFO"), ("MY_NCCL_DEBUG", "x")];
        let found = nccl(set.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))));
        let expected = [("NCCL_DEBUG", "INFO"), ("NCCL_SOCKET_IFNAME", "eth0")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
