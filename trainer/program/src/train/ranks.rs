//! Process group of `kith train`: launchers set each process's rank in its environment.

use std::{env, net::TcpListener, time::Duration};

use kith_cli::{progress::say, train::RankArgs};
use kith_trainer::{
    cores::n_cores,
    distributed::world::{Facts, JoinConfig, Seat, Token, World},
    engine::device::{CudaReport, cuda_index, devices},
    error::TrainError,
};

use rayon::ThreadPoolBuilder;

use crate::exit_code::{exit_code, is_asked};

/// A variable that is set to something.
fn lookup(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Gives the threads of this process their share of the host's cores. Call it before the first of them starts.
pub(crate) fn share_cores() {
    // `join` reports a wrong environment.
    if let Ok(Some(Seat { n_on_host: Some(n_on_host), .. })) = Seat::from_environment(lookup) {
        // An error means that the threads run already, one per core.
        let _ = ThreadPoolBuilder::new().num_threads(n_cores(n_on_host)).build_global();
    }
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
        *device = own_device(place, devices.len());
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
        kith_store::exit_at_once(error.code());
    }));
    Ok(world)
}

/// GPU of the rank with number `place` on its host, among those that it sees. A launcher may show each rank a GPU of its own,
/// as Slurm does with `--gpus-per-task 1`: each is then cuda:0. Ranks that would share a GPU are refused when they meet.
fn own_device(place: usize, n_visible: usize) -> String {
    format!("cuda:{}", place % n_visible)
}

/// Tells the other ranks how this one ended. After an error between ranks on GPUs the process ends here: what a GPU waits for
/// may never come, and an exit as usual would wait for the GPU.
pub(super) fn part(world: World, outcome: &anyhow::Result<()>) {
    match outcome {
        Ok(()) => world.leave(),
        // All ranks have agreed to, and know.
        Err(error) if is_asked(error) => world.leave(),
        Err(error) => {
            world.stop(exit_code(error), &error.to_string());
            if world.is_on_gpus() && matches!(error.downcast_ref(), Some(TrainError::World(_))) {
                say(&format!("error: {error}"));
                kith_store::exit_at_once(exit_code(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::own_device;

    #[test]
    fn every_rank_finds_its_gpu() {
        assert_eq!([0, 1, 3].map(|place| own_device(place, 4)), ["cuda:0", "cuda:1", "cuda:3"]);
        // Each sees its own alone.
        assert_eq!([0, 1, 3].map(|place| own_device(place, 1)), ["cuda:0"; 3]);
        // More ranks than GPUs: refused when they meet, by the GPUs' identities.
        assert_eq!(own_device(2, 2), "cuda:0");
    }
}
