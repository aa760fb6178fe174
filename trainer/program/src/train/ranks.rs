//! Process group of `kith train`: launchers set each process's rank in its environment.

use std::{env, net::TcpListener, time::Duration};

use kith_cli::{progress::say, temporary, train::RankArgs};
use kith_trainer::{
    distributed::world::{Facts, JoinConfig, Seat, Token, World},
    engine::device::{CudaReport, cuda_index, devices},
};

use crate::exit_code::{exit_code, is_asked};

/// A variable that is set to something.
fn lookup(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// True for rank 0, and for a process that is alone.
pub(super) fn is_first() -> anyhow::Result<bool> {
    Ok(Seat::from_environment(lookup)?.is_none_or(|seat| seat.rank == 0))
}

/// Meets the other ranks, if there are any. `device` is what was asked for; where ranks share a host, `cuda` becomes
/// a device of each. Rank 0 listens on `listener`, if a launcher holds one ready.
pub(super) fn join(args: &RankArgs, device: &mut String, listener: Option<TcpListener>) -> anyhow::Result<World> {
    let Some(seat) = Seat::from_environment(lookup)? else { return Ok(World::alone()) };
    if let Some(place) = seat.rank_on_host.filter(|_| device == "cuda")
        && let CudaReport::Devices(devices) = devices().cuda
    {
        *device = format!("cuda:{}", place % devices.len());
    }
    let heartbeat = Duration::from_secs(args.heartbeat_timeout);
    let config = JoinConfig {
        join_deadline: Duration::from_secs(args.join_timeout),
        collective_deadline: Duration::from_secs(args.exchange_timeout),
        heartbeat_every: Duration::from_secs(1).min(heartbeat / 4),
        heartbeat_deadline: heartbeat,
        token: Token::from_environment(lookup)?,
        tls: args.rank_tls,
        // A missing device is reported later, when the other ranks can be notified too.
        cuda: cuda_index(device),
        shares_device: args.share_device,
    };
    if seat.rank == 0 && seat.n_ranks > 1 {
        say(&format!("waiting for {} ranks", seat.n_ranks));
    }
    let world = World::join_at(&seat, &config, &Facts::new(device)?, listener)?;
    if seat.rank == 0 && seat.n_ranks > 1 {
        world.table().iter().for_each(|line| say(line));
        world.notes(args.rank_tls).iter().for_each(|note| say(&format!("note: {note}")));
    }
    // A thread deep in a layer, or waiting for a server, does not notice that the other ranks are gone.
    world.on_lost(Box::new(|error| {
        say(&format!("error: {error}"));
        temporary::exit(error.code());
    }));
    Ok(world)
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
