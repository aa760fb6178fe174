//! `kith launch`: all processes of a run on one host. Sampling servers and ranks are processes of this program.

mod args;
pub(crate) mod attempt;
pub(crate) mod command_line;
mod ended;
mod gpus;
mod print;
pub(crate) mod process;
pub(crate) mod progress;
mod relay;

use std::{
    ffi::OsString,
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    time::{Duration, Instant},
};

use kith_run::exit_code::RETRY;

pub(crate) use self::args::Args;
use self::{
    attempt::{Attempt, Outcome},
    command_line::CommandLine,
    process::Event,
    progress::{Restarts, reached},
    relay::{Relay, relay},
};
use crate::{progress::say, signals};

/// Default of `--restarts`.
const RESTARTS: u32 = 3;

/// The option of `kith train` that lets ranks share a device.
const SHARE_DEVICE: &str = "--share-device";

/// Capacity of the event queue.
const MAX_EVENTS: usize = 1024;

/// Runs `kith launch`; `typed` are the words after it.
pub(crate) fn run(args: Args, typed: &[OsString]) -> anyhow::Result<u8> {
    if args.print.is_asked_for() {
        return print::run(&args, typed).map(|()| 0);
    }
    let command_line = CommandLine::new(&args, typed)?;
    // Ranks that share a device check it themselves.
    if !typed.iter().any(|typed| typed == SHARE_DEVICE) {
        gpus::check(command_line.n_ranks, &args.train.device, gpus::count)?;
    }
    let most_restarts = args.restarts.unwrap_or(RESTARTS);
    let out = command_line.out.as_deref();
    let mut restarts = Restarts::new(most_restarts, reached(out));
    let (sender, events) = events()?;
    for attempt in 0u64.. {
        let outcome = Attempt::new(&command_line, &mut Relay, (&sender, &events)).run(attempt > 0)?;
        let (code, sentence) = match outcome {
            Outcome::Done => return Ok(0),
            Outcome::Stopped { code } => return Ok(code),
            Outcome::Failed { code, sentence } => (code, sentence),
        };
        let restart = if code == RETRY { restarts.next(reached(out)) } else { None };
        let Some(restart) = restart else {
            say(&format!("error: {sentence}"));
            return Ok(code);
        };
        let pause = pause_before(restart);
        let from = match out {
            Some(out) => format!("from the last checkpoint in {}", out.display()),
            None => "from the beginning, because there is no --out".to_owned(),
        };
        let which = format!("restart {restart} of {most_restarts} without a newer checkpoint");
        say(&format!("{sentence}: starting all again {from} in {} s ({which})", pause.as_secs()));
        if let Some(code) = signal_within(&events, pause) {
            return Ok(code);
        }
    }
    unreachable!("the last attempt returns")
}

/// Channel of process events, which also delivers all further signals to this process.
pub(crate) fn events() -> io::Result<(SyncSender<Event>, Receiver<Event>)> {
    let (sender, events) = sync_channel(MAX_EVENTS);
    let told = sender.clone();
    signals::listen(move |request| told.send(Event::Signal { request }).is_ok())?;
    Ok((sender, events))
}

/// Pause before a restart: 1 s, 2 s, 4 s … 32 s.
fn pause_before(restart: u32) -> Duration {
    Duration::from_secs(1 << (restart - 1).min(5))
}

/// Exit code of a signal that arrives within `pause`.
fn signal_within(events: &Receiver<Event>, pause: Duration) -> Option<u8> {
    let end = Instant::now() + pause;
    loop {
        match events.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal { request }) => return Some(request.code()),
            Ok(Event::Line { who, is_answer, line }) => relay(who, is_answer, &line),
            Ok(Event::Ended { .. }) => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow() {
        assert_eq!([1, 2, 3, 6, 7, 99].map(|restart| pause_before(restart).as_secs()), [1, 2, 4, 32, 32, 32]);
    }
}
