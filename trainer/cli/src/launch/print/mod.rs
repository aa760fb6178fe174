//! `kith launch --print`: starts nothing, and prints what another launcher needs to run the same world.

mod kubernetes;
mod passed;
mod sizes;

use std::{ffi::OsString, path::Path};

use anyhow::bail;
use kith_trainer::config::Mode;

use self::{
    kubernetes::{World, manifests},
    passed::passed,
    sizes::{Sizes, Wanted, sizes},
};
use super::{Args, command_line::servers_to_start};
use crate::{
    answer::print,
    plan::of_cluster,
    progress::say,
    train::{self, Typed},
};

/// For other launchers.
#[derive(clap::Args)]
#[command(next_help_heading = "Elsewhere")]
pub(super) struct PrintArgs {
    /// Start nothing; print the whole world for another launcher: manifests for `kubectl apply -f -`.
    #[arg(long)]
    print: Option<Launcher>,
    /// What all objects of the run are called; the name of the run file or preset unless said.
    #[arg(long, requires = "print", value_parser = name)]
    name: Option<String>,
    /// What stands before the names of images, as in registry.example/team.
    #[arg(long, value_name = "PREFIX", requires = "print")]
    images: Option<String>,
    /// CPUs of a rank.
    #[arg(long, value_name = "N", requires = "print", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    rank_cpus: u32,
    /// CPUs of a sampling server.
    #[arg(long, value_name = "N", requires = "print", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    sampler_cpus: u32,
}

/// Who starts processes instead of us.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Launcher {
    Kubernetes,
}

impl PrintArgs {
    pub(super) fn is_asked_for(&self) -> bool {
        self.print.is_some()
    }
}

/// Options that pods are told in another way, or not at all.
const OWN: [&str; 14] = [
    "--device",
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
    "--transport",
];

/// The longest name: that of a pod has the number of a rank behind it, and is a name of a host.
const MAX_NAME: usize = 40;

pub(super) fn run(args: &Args, typed: &[OsString]) -> anyhow::Result<()> {
    let (graph, print_args) = (&args.train.graph, &args.print);
    refuse(args)?;
    let run = train::typed(&args.train)?;
    let Mode::Batches(batches) = &run.config.train.mode else {
        bail!("servers of shards are asked for batches: set train.mode=batches");
    };
    let planned = graph.shards.as_deref().map(|dir| of_cluster(dir, None)).transpose()?;
    let asked = servers_to_start(&graph.samplers)?;
    let n_shards = match (&planned, asked) {
        (Some(planned), _) => planned.sizes.len(),
        (None, Some(n_servers)) => n_servers,
        (None, None) if graph.samplers.is_empty() => {
            bail!("give the cluster with --shards, or with --samplers how many shards it has")
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
        cache_percent: graph.cache,
        run_key: args.train.run_key,
        memory: args.train.memory,
        n_threads: print_args.rank_cpus.into(),
    };
    let sizes = planned.map(|planned| sizes(&planned, &run.config, batches, &wanted)).transpose()?;
    print(&manifests(&world(args, &run, typed, (n_shards, n_samplers), sizes)?))?;
    if sizes.is_none() {
        say("note: memory is guessed: give the cluster with --shards, and it is forecast");
    }
    let (n_slices, n_ranks) = (batches.slices, args.ranks);
    if n_slices < usize::from(n_ranks) {
        say(&format!("note: {n_slices} slices give {n_slices} ranks something to do: set train.slices={n_ranks}"));
    }
    Ok(())
}

/// What makes no sense in pods.
fn refuse(args: &Args) -> anyhow::Result<()> {
    let graph = &args.train.graph;
    if graph.store.is_some() {
        bail!("ranks in pods ask servers of shards: cut the store with `kith partition`, and give --shards");
    }
    if graph.tls_ca.is_some() {
        bail!("certificates are in the Secret kith-samplers-tls: leave --tls-ca out (docs/KUBERNETES.md)");
    }
    if graph.token_file.is_some() {
        bail!("the token of servers is in the Secret kith-token: leave --token-file out (docs/KUBERNETES.md)");
    }
    if args.train.out.as_ref().is_some_and(|out| out.to_string_lossy().contains("://")) {
        bail!("a folder of the claim is meant by --out: for a bucket add the component bucket (docs/KUBERNETES.md)");
    }
    if args.train.metrics.is_some() {
        bail!("every pod shows its metrics on port 9100: leave --metrics out");
    }
    Ok(())
}

fn world(
    args: &Args,
    run: &Typed,
    typed: &[OsString],
    (n_shards, n_samplers): (usize, usize),
    sizes: Option<Sizes>,
) -> anyhow::Result<World> {
    let name = args.print.name.clone().unwrap_or_else(|| name_of(&run.name));
    let folder = |path: Option<&Path>| Some(path?.file_name()?.to_str()?.to_owned());
    Ok(World {
        n_ranks: args.ranks.into(),
        n_shards,
        n_samplers,
        restarts: args.restarts,
        grace: args.train.grace().as_secs(),
        graph: folder(args.train.graph.shards.as_deref()).unwrap_or_else(|| "cluster".to_owned()),
        out: folder(args.train.out.as_deref()).unwrap_or_else(|| name.clone()),
        is_cuda: args.train.device.starts_with("cuda"),
        run_file: run.text.clone(),
        passed: passed(typed, &OWN)?,
        images: args.print.images.clone(),
        rank_cpus: args.print.rank_cpus,
        sampler_cpus: args.print.sampler_cpus,
        sizes,
        name,
    })
}

/// A name that objects can have.
fn name(text: &str) -> Result<String, String> {
    let is_name = text.len() <= MAX_NAME
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if is_name {
        return Ok(text.to_owned());
    }
    Err(format!("write small letters, digits and dashes, a letter first, at most {MAX_NAME}"))
}

/// The nearest to what a run is called.
fn name_of(run: &str) -> String {
    let plain: String = run.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let plain = plain.trim_start_matches(|c: char| !c.is_ascii_lowercase());
    let plain = plain[..plain.len().min(MAX_NAME)].trim_end_matches('-');
    if plain.is_empty() { "kith".to_owned() } else { plain.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_hosts() {
        for (run, expected) in
            [("cora/supergat-mx", "cora-supergat-mx"), ("My run_2", "my-run-2"), ("42", "kith"), ("2nd-é", "nd")]
        {
            assert_eq!(name_of(run), expected);
            assert_eq!(name(expected).as_deref(), Ok(expected));
        }
        assert_eq!(name_of(&"x".repeat(99)).len(), MAX_NAME);
        for wrong in ["", "A", "a-", "-a", "1a", "a.b", "ä", &"x".repeat(41)] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
