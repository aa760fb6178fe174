//! Settings for joining a process group.

use std::time::Duration;

use kith_group::limits::{JoinLimits, Rhythm};
use kith_run::rank_tls::RankTls;

use super::token::Token;

/// Deadlines between ranks, and their authentication.
#[derive(Clone, Debug)]
pub struct JoinConfig {
    /// For all ranks to come.
    pub join_deadline: Duration,
    /// For a collective to end.
    pub collective_deadline: Duration,
    /// Between heartbeats.
    pub heartbeat_every: Duration,
    /// Silence that means that a rank is lost.
    pub heartbeat_deadline: Duration,
    /// Secret that all ranks share. Without it, ranks meet on a loopback address only.
    pub token: Option<Token>,
    /// Connections between ranks that are encrypted.
    pub tls: RankTls,
    /// The CUDA device whose tensors are exchanged; `None`: those of the CPU.
    pub cuda: Option<usize>,
    /// True if other ranks may use the same device.
    pub shares_device: bool,
}

impl JoinConfig {
    pub(super) fn limits(&self) -> JoinLimits {
        JoinLimits { join: self.join_deadline, rhythm: self.rhythm() }
    }

    pub(super) fn rhythm(&self) -> Rhythm {
        Rhythm { every: self.heartbeat_every, deadline: self.heartbeat_deadline }
    }
}

impl Default for JoinConfig {
    fn default() -> JoinConfig {
        JoinConfig {
            join_deadline: Duration::from_secs(300),
            collective_deadline: Duration::from_secs(300),
            heartbeat_every: Duration::from_secs(1),
            heartbeat_deadline: Duration::from_secs(10),
            token: None,
            tls: RankTls::Auto,
            cuda: None,
            shares_device: false,
        }
    }
}
