//! `kith launch`: a whole world on one host. Sampling servers and ranks are processes of this same program.

pub(crate) mod attempt;
pub(crate) mod command_line;
mod ended;
mod print;
pub(crate) mod process;
mod relay;

use std::{
    ffi::OsString,
    io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use kith_trainer::error::RETRY;
use tokio::signal::unix::{SignalKind, signal};

use self::{
    attempt::{Attempt, Outcome},
    command_line::CommandLine,
    process::Event,
    relay::{Relay, relay},
};
use crate::{progress::say, train};

/// Train with several ranks on this host: starts all processes, relays what they say, and starts them again from the
/// last checkpoint when one is lost. Takes all options of `kith train`; `--samplers N` also starts so many servers.
#[derive(clap::Args)]
#[command(after_help = "\
Two ranks:               kith launch --ranks 2 my.toml --store stores/mine --out runs/mine
With servers of shards:  kith launch --ranks 2 --samplers 2 my.toml --shards clusters/mine --out runs/mine
That are elsewhere:      kith launch --ranks 2 --samplers host-a:7000,host-b:7000 my.toml --out runs/mine
Through three losses:    kith launch --ranks 2 --restarts 3 my.toml --store stores/mine --out runs/mine
On Kubernetes:           kith launch --print kubernetes --ranks 8 my.toml --shards clusters/mine | kubectl apply -f -

Exit codes: that of the rank that ended worst; 75 if a process was lost and no restart is left.",
    mut_arg("samplers", |samplers| samplers.value_name("N|HOST:PORT,…").help(SAMPLERS)))]
pub(crate) struct Args {
    /// Trainer processes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    ranks: u16,
    /// How often all processes are started again when one is lost (killed, or exit code 75): from the last checkpoint in
    /// --out, or from the start without one. Never unless said; on Kubernetes, 6 times.
    #[arg(long, value_name = "N")]
    restarts: Option<u32>,
    #[command(flatten)]
    train: train::Args,
    #[command(flatten)]
    print: print::PrintArgs,
}

/// What `--samplers` means here.
const SAMPLERS: &str = "Start so many sampling servers of --shards, or ask those that run at these addresses";

/// Events that wait to be looked at.
const MAX_EVENTS: usize = 1024;

/// `typed` is what followed `kith launch`.
pub(crate) fn run(args: Args, typed: &[OsString]) -> anyhow::Result<u8> {
    if args.print.is_asked_for() {
        return print::run(&args, typed).map(|()| 0);
    }
    let command_line = CommandLine::new(&args, typed)?;
    let most_restarts = args.restarts.unwrap_or(0);
    let (sender, events) = events()?;
    for n_restarts in 0.. {
        let outcome = Attempt::new(&command_line, &mut Relay, (&sender, &events)).run(n_restarts > 0)?;
        let (code, sentence) = match outcome {
            Outcome::Done => return Ok(0),
            Outcome::Stopped { code } => return Ok(code),
            Outcome::Failed { code, sentence } => (code, sentence),
        };
        if code != RETRY || n_restarts == most_restarts {
            say(&format!("error: {sentence}"));
            return Ok(code);
        }
        let pause = pause_before(n_restarts + 1);
        let from = match &command_line.out {
            Some(out) => format!("from the last checkpoint in {}", out.display()),
            None => "from the beginning, because there is no --out".to_owned(),
        };
        let which = format!("restart {} of {most_restarts}", n_restarts + 1);
        say(&format!("{sentence}: starting all again {from} in {} s ({which})", pause.as_secs()));
        if let Some(code) = signal_within(&events, pause) {
            return Ok(code);
        }
    }
    unreachable!("the last attempt returns")
}

/// What happens to processes, and the signals that this one gets from now on.
pub(crate) fn events() -> io::Result<(SyncSender<Event>, Receiver<Event>)> {
    let (sender, events) = sync_channel(MAX_EVENTS);
    listen_for_signals(sender.clone())?;
    Ok((sender, events))
}

/// 1 s, 2 s, 4 s … 32 s.
fn pause_before(restart: u32) -> Duration {
    Duration::from_secs(1 << (restart - 1).min(5))
}

/// The exit code of a signal, if one comes in time.
fn signal_within(events: &Receiver<Event>, pause: Duration) -> Option<u8> {
    let end = Instant::now() + pause;
    loop {
        match events.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal { code }) => return Some(code),
            Ok(Event::Line { who, is_answer, line }) => relay(who, is_answer, &line),
            Ok(Event::Ended { .. }) => {}
            Err(_) => return None,
        }
    }
}

/// Ctrl-C and SIGTERM become events; shells give their codes as 128 and the signal's number.
fn listen_for_signals(events: SyncSender<Event>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    thread::spawn(move || {
        loop {
            let kind = runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => SignalKind::interrupt(),
                    _ = terminate.recv() => SignalKind::terminate(),
                }
            });
            let code = 128 + kind.as_raw_value() as u8;
            if events.send(Event::Signal { code }).is_err() {
                return;
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow() {
        assert_eq!([1, 2, 3, 6, 7, 99].map(|restart| pause_before(restart).as_secs()), [1, 2, 4, 32, 32, 32]);
    }
}
