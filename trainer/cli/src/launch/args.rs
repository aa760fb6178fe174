//! Arguments of `kith launch`.

use std::net::SocketAddr;

use super::print::PrintArgs;
use crate::train;

/// Train with several ranks on this host: start all processes, relay their output, and restart them from the last checkpoint when
/// one fails. Takes all options of `kith train`; `--samplers N` also starts N sampling servers.
#[derive(clap::Args)]
#[group(skip)] // The arguments of `kith train` are a group of the same name.
#[command(after_help = "\
Two ranks:               kith launch --ranks 2 my.toml --graph stores/mine --set train.slices=2 --out runs/mine
One rank per GPU:        kith launch my.toml --graph stores/mine --device cuda --set train.slices=8 --out runs/mine
With sampling servers:   kith launch --ranks 2 --samplers 2 my.toml --graph graphs/mine.shards --out runs/mine
On other hosts:          kith launch --ranks 2 my.toml --graph grpc://host-a:7000,host-b:7000 --out runs/mine
Without restarts:        kith launch --ranks 2 --restarts 0 my.toml --graph stores/mine --out runs/mine
On Kubernetes:           kith launch --print kubernetes --ranks 8 my.toml --graph graphs/mine.shards | kubectl apply -f -

Exit codes: that of the rank that ended worst; 75 if a process was lost and no restart is left, or after SIGTERM; 130 after
Ctrl-C. Both signals give ranks --grace seconds for a checkpoint.",
    mut_arg("samplers", |samplers| samplers.value_name("N").help(SAMPLERS).hide(false)))]
pub struct Args {
    /// Number of ranks, which are trainer processes (default: one per GPU of this host with --device cuda, otherwise 1).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) ranks: Option<u16>,
    /// Restarts in a row without a newer checkpoint in --out (default: 3; on Kubernetes 6). All processes are started again
    /// when one is lost (killed, or exit code 75), from the last checkpoint, or from the start without one. 0: never.
    #[arg(long, value_name = "N")]
    pub(super) restarts: Option<u32>,
    /// Serve Prometheus metrics of this launcher: processes, their ends, and restarts. --metrics is for those of ranks.
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) launcher_metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(super) train: train::Args,
    #[command(flatten)]
    pub(super) print: PrintArgs,
}

/// Help of `--samplers`.
const SAMPLERS: &str = "Start N sampling servers of the partitioned graph (HOST:PORT,…: servers that run already)";
