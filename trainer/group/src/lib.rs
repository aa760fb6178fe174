//! A process group as state machines: joining, heartbeats, collectives, verdicts, leaving, and the launcher's attempts
//! and restarts. Events go in, actions come out; there are no sockets, threads, files or clocks in this package.
//!
//! Programs drive these machines with real connections and processes (`trainer/src/distributed/`, `trainer/cli/src/launch/`);
//! the simulation in `tests/` drives the same machines in virtual time and disturbs them.
//!
//! `now` is always the time since a moment that the caller chose and never changes.

pub mod contest;
pub mod folder;
pub mod host;
pub mod launch;
pub mod limits;
pub mod member;
pub mod message;
pub mod progress;
pub mod pulse;
pub mod refusal;
pub mod ring;
pub mod visit;
mod waking;
pub mod wire;

/// Exit code of a failure after which a retry may help.
pub const RETRY: u8 = 75;

/// Exit code of a program that Ctrl-C stopped.
pub const INTERRUPTED: u8 = 130;
