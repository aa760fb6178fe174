//! A process that `kith launch` started ends with it, however that ends: its stdin is a pipe that nobody else holds.

use std::{io, thread, time::Duration};

use rustix::process::{Signal, getpid, kill_process};

use crate::progress::say;

/// Says to a process that it was launched.
pub(crate) const LAUNCHED: &str = "KITH_LAUNCHED";

/// What a server may take to answer calls in flight.
const PATIENCE: Duration = Duration::from_secs(5);

/// Watches stdin for its end on a thread of its own, if this process was launched.
pub(crate) fn watch() {
    if std::env::var_os(LAUNCHED).is_some_and(|value| value == "1") {
        thread::spawn(|| {
            // Nothing is ever sent; an error is an end, too.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            say("kith launch is gone: stopping");
            for signal in [Signal::TERM, Signal::KILL] {
                let _ = kill_process(getpid(), signal); // One's own process is there.
                thread::sleep(PATIENCE);
            }
        });
    }
}
