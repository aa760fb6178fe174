//! Arguments of `kith launch`.

use super::print::PrintArgs;
use crate::train;

/// Train with several ranks on this host: starts all processes, relays what they say, and starts them again from the
/// last checkpoint when one is lost. Takes all options of `kith train`; `--samplers N` also starts so many servers.
#[derive(clap::Args)]
#[command(after_help = "\
Two ranks:               kith launch --ranks 2 my.toml --store stores/mine --out runs/mine
With servers of shards:  kith launch --ranks 2 --samplers 2 my.toml --shards clusters/mine --out runs/mine
That are elsewhere:      kith launch --ranks 2 --samplers host-a:7000,host-b:7000 my.toml --out runs/mine
Without restarts:        kith launch --ranks 2 --restarts 0 my.toml --store stores/mine --out runs/mine
On Kubernetes:           kith launch --print kubernetes --ranks 8 my.toml --shards clusters/mine | kubectl apply -f -

Exit codes: that of the rank that ended worst; 75 if a process was lost and no restart is left, or after SIGTERM; 130 after
Ctrl-C. Both signals give ranks --grace seconds for a checkpoint.",
    mut_arg("samplers", |samplers| samplers.value_name("N|HOST:PORT,…").help(SAMPLERS)))]
pub struct Args {
    /// Trainer processes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) ranks: u16,
    /// Restarts in a row without a newer checkpoint in --out (default: 3; on Kubernetes 6). All processes are started again
    /// when one is lost (killed, or exit code 75), from the last checkpoint, or from the start without one. 0: never.
    #[arg(long, value_name = "N")]
    pub(super) restarts: Option<u32>,
    #[command(flatten)]
    pub(super) train: train::Args,
    #[command(flatten)]
    pub(super) print: PrintArgs,
}

/// What `--samplers` means here.
const SAMPLERS: &str = "Start so many sampling servers of --shards, or ask those that run at these addresses";
