//! The ranks of `kith train`: who they are is said by the environment that launchers set.

use kith_run::rank_tls::RankTls;
use kith_sampler::server::seconds;

/// How long ranks wait for each other.
#[derive(clap::Args)]
#[command(next_help_heading = "Several ranks (WORLD_SIZE, RANK, MASTER_ADDR, MASTER_PORT, KITH_TOKEN)")]
pub struct RankArgs {
    /// Seconds within which all ranks must have come.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = seconds(1))]
    pub join_timeout: u64,
    /// Seconds that one exchange between ranks may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = seconds(1))]
    pub exchange_timeout: u64,
    /// Seconds of silence after which a rank is lost.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = seconds(1))]
    pub heartbeat_timeout: u64,
    /// Encrypt lines between ranks (TLS 1.3). auto: those that leave loopback; on: all; off: none. The same on every rank.
    #[arg(long, value_name = "auto|on|off", default_value = "auto", value_parser = rank_tls)]
    pub rank_tls: RankTls,
    /// Let several ranks compute on one GPU (tests, MPS). Without it, ranks that share a GPU are refused.
    #[arg(long)]
    pub share_device: bool,
}

fn rank_tls(text: &str) -> Result<RankTls, String> {
    RankTls::from_name(text).ok_or_else(|| "write auto, on or off".to_owned())
}
