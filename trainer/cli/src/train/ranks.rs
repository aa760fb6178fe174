//! The ranks of `kith train`: who they are is said by the environment that launchers set.

use std::{env, net::TcpListener, time::Duration};

use kith_sampler::server::seconds;
use kith_trainer::{
    distributed::world::{Facts, JoinConfig, RankTls, Seat, Token, World},
    engine::device::{CudaReport, cuda_index, devices},
};

use crate::{
    exit_code::{exit_code, is_asked},
    progress::say,
    temporary,
};

/// How long ranks wait for each other.
#[derive(clap::Args)]
#[command(next_help_heading = "Several ranks (WORLD_SIZE, RANK, MASTER_ADDR, MASTER_PORT, KITH_TOKEN)")]
pub(super) struct RankArgs {
    /// Seconds within which all ranks must have come.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = seconds(1))]
    join_timeout: u64,
    /// Seconds that one exchange between ranks may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = seconds(1))]
    exchange_timeout: u64,
    /// Seconds of silence after which a rank is lost.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = seconds(1))]
    heartbeat_timeout: u64,
    /// Encrypt lines between ranks (TLS 1.3). auto: those that leave loopback; on: all; off: none. The same on every rank.
    #[arg(long, value_name = "auto|on|off", default_value = "auto", value_parser = rank_tls)]
    rank_tls: RankTls,
    /// Let several ranks compute on one GPU (tests, MPS). Without it, ranks that share a GPU are refused.
    #[arg(long)]
    share_device: bool,
}

fn rank_tls(text: &str) -> Result<RankTls, String> {
    RankTls::from_name(text).ok_or_else(|| "write auto, on or off".to_owned())
}

/// A variable that is set to something.
fn lookup(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// True for rank 0, and for a process that is alone.
pub(super) fn is_first() -> anyhow::Result<bool> {
    Ok(Seat::from_environment(lookup)?.is_none_or(|seat| seat.rank == 0))
}

impl RankArgs {
    /// Meets the other ranks, if there are any. `device` is what was asked for; where ranks share a host, `cuda` becomes
    /// a device of each. Rank 0 listens on `listener`, if a launcher holds one ready.
    pub(super) fn join(&self, device: &mut String, listener: Option<TcpListener>) -> anyhow::Result<World> {
        let Some(seat) = Seat::from_environment(lookup)? else { return Ok(World::alone()) };
        if let Some(place) = seat.rank_on_host.filter(|_| device == "cuda")
            && let CudaReport::Devices(devices) = devices().cuda
        {
            *device = format!("cuda:{}", place % devices.len());
        }
        let heartbeat = Duration::from_secs(self.heartbeat_timeout);
        let config = JoinConfig {
            join_deadline: Duration::from_secs(self.join_timeout),
            collective_deadline: Duration::from_secs(self.exchange_timeout),
            heartbeat_every: Duration::from_secs(1).min(heartbeat / 4),
            heartbeat_deadline: heartbeat,
            token: Token::from_environment(lookup)?,
            tls: self.rank_tls,
            // A device that is not there is told of later, when the others can be told too.
            cuda: cuda_index(device),
            shares_device: self.share_device,
        };
        if seat.rank == 0 && seat.n_ranks > 1 {
            say(&format!("waiting for {} ranks", seat.n_ranks));
        }
        let world = World::join_at(&seat, &config, &Facts::new(device)?, listener)?;
        if seat.rank == 0 && seat.n_ranks > 1 {
            world.table().iter().for_each(|line| say(line));
            world.notes(self.rank_tls).iter().for_each(|note| say(&format!("note: {note}")));
        }
        // A thread deep in a layer, or waiting for a server, does not hear that the others are gone.
        world.on_lost(Box::new(|error| {
            say(&format!("error: {error}"));
            temporary::exit(error.code());
        }));
        Ok(world)
    }
}

/// Tells the other ranks how this one ended.
pub(super) fn part(world: World, outcome: &anyhow::Result<()>) {
    match outcome {
        Ok(()) => world.leave(),
        // All ranks have agreed to, and know.
        Err(error) if is_asked(error) => world.leave(),
        Err(error) => world.stop(exit_code(error), &error.to_string()),
    }
}
