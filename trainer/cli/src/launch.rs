//! `kith launch`: all processes of a run on one host. Sampling servers and ranks are processes of this program.

mod args;
pub(crate) mod attempt;
pub(crate) mod command_line;
mod gpus;
mod metrics;
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

use anyhow::anyhow;
use kith_group::launch::{
    attempt::Outcome,
    restarts::{Restarts, pause_before},
};
use kith_run::{config::Mode, exit_code::RETRY, slices::refusal};

pub(crate) use self::args::Args;
use self::{
    attempt::Attempt,
    command_line::CommandLine,
    metrics::Metrics,
    process::Event,
    progress::reached,
    relay::{Relay, relay},
};
use crate::{progress::say, signals, train};

const _: () = assert!(RETRY == kith_group::RETRY, "one meaning of exit code 75");

/// Default of `--restarts`.
const RESTARTS: u32 = 3;

/// Capacity of the event queue.
const MAX_EVENTS: usize = 1024;

/// Runs `kith launch`; `typed` are the words after it.
pub(crate) fn run(args: Args, typed: &[OsString]) -> anyhow::Result<u8> {
    if args.print.is_asked_for() {
        return print::run(&args, typed).map(|()| 0);
    }
    let n_ranks = n_ranks(&args)?;
    let command_line = CommandLine::new(&args, n_ranks, typed)?;
    check_slices(&args.train, n_ranks)?;
    let most_restarts = args.restarts.unwrap_or(RESTARTS);
    let out = command_line.out.as_deref();
    let mut restarts = Restarts::new(most_restarts, reached(out));
    let metrics = Metrics::default();
    if let Some(address) = args.launcher_metrics {
        let bound = metrics.show(address, most_restarts, out).map_err(|error| {
            anyhow!("--launcher-metrics: cannot serve metrics on {address}: {error}; give another address")
        })?;
        say(&format!("launcher metrics on {bound}"));
    }
    let (sender, events) = events()?;
    for attempt in 0u64.. {
        let outcome = Attempt::new(&command_line, &mut Relay(&metrics), (&sender, &events)).run(attempt > 0)?;
        let (code, sentence) = match outcome {
            Outcome::Done => return Ok(0),
            Outcome::Stopped { code } => return Ok(code),
            Outcome::Failed { code, sentence } => (code, sentence),
        };
        let reached = reached(out);
        let restart = if code == RETRY { restarts.next(reached) } else { None };
        let Some(restart) = restart else {
            say(&format!("error: {sentence}"));
            return Ok(code);
        };
        metrics.restarted(restart, reached);
        let pause = pause_before(restart);
        let from = match out {
            Some(out) => format!("from the last checkpoint in {}", out.display()),
            None => "from the beginning, because there is no --out".to_owned(),
        };
        let since = if out.is_some() { " since the last checkpoint" } else { "" };
        let which = format!("restart {restart} of {most_restarts}{since}");
        say(&format!("{sentence}: starting all again {from} in {} s ({which})", pause.as_secs()));
        if let Some(code) = signal_within(&events, pause) {
            return Ok(code);
        }
    }
    unreachable!("the last attempt returns")
}

/// Number of ranks: as asked for, or one per GPU.
fn n_ranks(args: &Args) -> anyhow::Result<usize> {
    let device = &args.train.device;
    let Some(n_ranks) = args.ranks.map(usize::from) else {
        let n_ranks = gpus::n_ranks(device, gpus::count)?;
        if n_ranks > 1 {
            say(&format!("starting {n_ranks} ranks, one per GPU"));
        }
        return Ok(n_ranks);
    };
    // Ranks that share a device check it themselves.
    if !args.train.ranks.share_device {
        gpus::check(n_ranks, device, gpus::count)?;
    }
    Ok(n_ranks)
}

/// Refuses ranks that would have nothing to compute, before they start. Ranks report what only they can know, such as a
/// mode that the graph decides.
fn check_slices(args: &train::Args, n_ranks: usize) -> anyhow::Result<()> {
    let Ok(Some(config)) = train::config_without_graph(args) else { return Ok(()) };
    let is_full = config.train.mode == Mode::FullBatch;
    match refusal(n_ranks, if is_full { 1 } else { config.train.slices }, is_full) {
        Some(sentence) => Err(anyhow::Error::msg(sentence + " with --ranks")),
        None => Ok(()),
    }
}

/// Channel of process events, which also delivers all further signals to this process.
pub(crate) fn events() -> io::Result<(SyncSender<Event>, Receiver<Event>)> {
    let (sender, events) = sync_channel(MAX_EVENTS);
    let told = sender.clone();
    signals::listen(move |request| told.send(Event::Signal { request }).is_ok())?;
    Ok((sender, events))
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
    use clap::Parser;
    use kith_run::stop::Request;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        launch: Args,
    }

    /// The sentence about ranks without slices, if any.
    fn sentence(n_ranks: usize, typed: &[&str]) -> Option<String> {
        let args = Command::parse_from([&["launch"], typed].concat()).launch;
        check_slices(&args.train, n_ranks).err().map(|error| error.to_string())
    }

    #[test]
    fn a_ctrl_c_has_one_exit_code() {
        assert_eq!(Request::Interrupt.code(), kith_group::INTERRUPTED);
    }

    #[test]
    fn ranks_without_slices_are_refused_before_they_start() {
        let gat = ["gat", "--set", "train.slices=4"];
        assert_eq!((sentence(4, &gat), sentence(1, &["gat"])), (None, None));
        let expected =
            "5 ranks cannot share steps with train.slices = 4: set it to 5, or start fewer ranks with --ranks";
        assert_eq!(sentence(5, &gat).as_deref(), Some(expected));
        assert!(sentence(2, &["gat"]).unwrap().contains("train.slices = 1: set it to 2"));
        assert!(sentence(2, &["cora/gat"]).unwrap().starts_with("2 ranks cannot share full batches: set train.mode"));
        // Ranks know more.
        for typed in [&["--attention", "auto"][..], &["nobody.toml"], &["gat", "--set", "train.epochs=none"], &[]] {
            assert_eq!(sentence(2, typed), None, "{typed:?}");
        }
    }
}
