//! Arguments of `kith plan --hosts`.

use std::path::PathBuf;

use anyhow::bail;
use clap::builder::RangedU64ValueParser;

use super::speed;
use crate::constants::Constants;

/// Hosts, their network, and the model.
#[derive(clap::Args)]
#[command(next_help_heading = "Time of steps")]
pub(crate) struct HostArgs {
    /// Number of hosts with ranks. Predicts the time of steps from the constants of `kith bench constants`.
    #[arg(long, value_name = "N", conflicts_with = "world", value_parser = RangedU64ValueParser::<usize>::new().range(1..=4096))]
    pub(crate) hosts: Option<usize>,
    /// Ranks of each host, which compute on its cores (default: 1).
    #[arg(long, value_name = "N", requires = "hosts", conflicts_with = "gpus_per_host",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    ranks_per_host: Option<usize>,
    /// GPUs of each host, one rank for each (default: 0, ranks compute on cores).
    #[arg(long, value_name = "N", requires = "hosts", value_parser = RangedU64ValueParser::<usize>::new().range(..=64))]
    pub(super) gpus_per_host: Option<usize>,
    /// Hosts of their own for sampling servers (default: 0, each host serves its own shards).
    #[arg(long, value_name = "N", requires = "hosts", default_value_t = 0, hide_default_value = true,
        value_parser = RangedU64ValueParser::<usize>::new().range(..=4096))]
    pub(super) servers: usize,
    /// Cores of a host (default: those of the machine of the constants).
    #[arg(long, value_name = "N", requires = "hosts", value_parser = RangedU64ValueParser::<usize>::new().range(1..=4096))]
    pub(super) cores: Option<usize>,
    /// Threads of a rank (default: the cores of a host divided by its ranks).
    #[arg(long, value_name = "N", requires = "hosts", value_parser = RangedU64ValueParser::<usize>::new().range(1..=4096))]
    pub(super) threads: Option<usize>,
    /// Bandwidth of the network link of each host, as in 100Gb (bits per second) or 12.5GB/s (default: 10Gb).
    #[arg(long, value_name = "SPEED", requires = "hosts", default_value = "10Gb", hide_default_value = true,
        value_parser = speed::parse)]
    pub(super) network: f64,
    /// Round trip between hosts, in microseconds (default: 50).
    #[arg(long, value_name = "MICROSECONDS", requires = "hosts", default_value_t = 50.0, hide_default_value = true)]
    pub(super) latency: f64,
    /// Speed of reading a host's disk at random, in pages of 4 KiB, as in 3GB/s (default: that of the constants). Counts only if the
    /// shards of a host do not fit in --memory.
    #[arg(long, value_name = "SPEED", requires = "hosts", value_parser = speed::parse)]
    pub(super) disk: Option<f64>,
    /// The model: a model of the ogbn-arxiv presets, any preset, or a run file (default: supergat-mx). Fanouts and batch size are
    /// those of its run file, unless given here.
    #[arg(
        long,
        value_name = "MODEL|PRESET|FILE",
        requires = "hosts",
        default_value = "supergat-mx",
        hide_default_value = true
    )]
    pub(super) model: String,
    /// Set a key of the run file, as in model.hidden=64; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "hosts")]
    pub(super) assignments: Vec<String>,
    /// File of `kith bench constants` (default: ~/.cache/kith/constants.json).
    #[arg(long, value_name = "FILE", requires = "hosts")]
    constants: Option<PathBuf>,
}

impl HostArgs {
    pub(super) fn ranks_per_host(&self) -> usize {
        self.gpus_per_host.filter(|n| *n > 0).or(self.ranks_per_host).unwrap_or(1)
    }

    /// Constants, before anything slow is done.
    pub(super) fn constants(&self) -> anyhow::Result<Constants> {
        if !(0.0..=1e7).contains(&self.latency) {
            bail!("expected a --latency of 0 to 10000000 microseconds, found {}", self.latency);
        }
        let path = self.constants.clone().map_or_else(Constants::default_path, Ok)?;
        Constants::read(&path)
    }
}
