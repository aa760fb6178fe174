//! Process groups of threads: their meetings, and their ends.

mod ends;
mod meetings;

use std::{
    net::TcpListener,
    sync::{Barrier, Mutex},
    time::Duration,
};

use super::{Facts, JoinConfig, Seat, World, WorldError};
use crate::distributed::collective::on_all_ranks;

/// A place where ranks of a test meet.
struct MeetingPlace {
    listener: Mutex<Option<TcpListener>>,
    port: u16,
    n_ranks: usize,
    /// Barrier for ranks that wait until all others have joined.
    all_joined: Barrier,
}

impl MeetingPlace {
    fn new(n_ranks: usize) -> MeetingPlace {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        MeetingPlace { listener: Mutex::new(Some(listener)), port, n_ranks, all_joined: Barrier::new(n_ranks) }
    }

    fn seat(&self, rank: usize) -> Seat {
        Seat {
            rank,
            n_ranks: self.n_ranks,
            rank_on_host: None,
            n_on_host: None,
            host: "127.0.0.1".to_owned(),
            port: self.port,
        }
    }

    /// Listener of rank 0.
    fn listener(&self, rank: usize) -> Option<TcpListener> {
        if rank == 0 { self.listener.lock().unwrap().take() } else { None }
    }

    fn join_with(&self, rank: usize, config: &JoinConfig, facts: &Facts) -> Result<World, WorldError> {
        World::join_at(&self.seat(rank), config, facts, self.listener(rank))
    }

    fn join(&self, rank: usize) -> Result<World, WorldError> {
        self.join_with(rank, &config(), &facts())
    }

    /// Joins, and goes on when all have joined.
    fn join_together(&self, rank: usize, config: &JoinConfig) -> World {
        let world = self.join_with(rank, config, &facts()).unwrap();
        self.all_joined.wait();
        world
    }
}

/// Runs a function on every rank of a world of threads; what they gave, by rank.
pub(crate) fn on_worlds<T: Send>(n_ranks: usize, run: impl Fn(&mut World) -> T + Sync) -> Vec<T> {
    if n_ranks == 1 {
        return vec![run(&mut World::alone())];
    }
    let place = MeetingPlace::new(n_ranks);
    on_all_ranks(n_ranks, |rank| {
        let mut world = place.join_together(rank, &config());
        let given = run(&mut world);
        // Nobody leaves before all have done what they had to.
        place.all_joined.wait();
        given
    })
}

fn facts() -> Facts {
    Facts::new("CPU").unwrap()
}

/// Quick, and still patient with a busy machine.
fn config() -> JoinConfig {
    JoinConfig {
        join_deadline: Duration::from_secs(20),
        collective_deadline: Duration::from_secs(20),
        heartbeat_every: Duration::from_millis(50),
        heartbeat_deadline: Duration::from_secs(10),
        ..JoinConfig::default()
    }
}

/// An error with its code, as one text.
fn told<T>(result: Result<T, WorldError>) -> String {
    result.map_or_else(|error| format!("{}: {error}", error.code()), |_| "joined".to_owned())
}
