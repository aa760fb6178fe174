//! Options of ranks. Their numbers come from the environment that launchers set.

use kith_run::rank_tls::RankTls;
use kith_sampler::server::seconds;

/// Timeouts, encryption and devices of several ranks.
#[derive(clap::Args)]
#[command(next_help_heading = "Several ranks (WORLD_SIZE, RANK, MASTER_ADDR, MASTER_PORT, KITH_TOKEN)")]
pub struct RankArgs {
    /// Seconds for all ranks to join the process group (default: 300).
    #[arg(long, value_name = "SECONDS", default_value_t = 300, hide_default_value = true, value_parser = seconds(1))]
    pub join_timeout: u64,
    /// Longest exchange between ranks, in seconds (default: 300).
    #[arg(long, value_name = "SECONDS", default_value_t = 300, hide_default_value = true, value_parser = seconds(1))]
    pub exchange_timeout: u64,
    /// Seconds of silence after which a rank counts as lost (default: 10).
    #[arg(long, value_name = "SECONDS", default_value_t = 10, hide_default_value = true, value_parser = seconds(1))]
    pub heartbeat_timeout: u64,
    /// TLS 1.3 between ranks: auto (connections that leave loopback), on (all) or off (none) (default: auto). The same on every
    /// rank.
    #[arg(long, value_name = "auto|on|off", default_value = "auto", hide_default_value = true, value_parser = rank_tls)]
    pub rank_tls: RankTls,
    /// Allow several ranks on one GPU, for tests and MPS (default: ranks that share a GPU are refused).
    #[arg(long)]
    pub share_device: bool,
}

fn rank_tls(text: &str) -> Result<RankTls, String> {
    RankTls::from_name(text).ok_or_else(|| "expected auto, on or off".to_owned())
}
