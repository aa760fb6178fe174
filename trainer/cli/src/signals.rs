//! Handling of SIGTERM and Ctrl-C.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use kith_run::stop::{Request, Stop};
use tokio::signal::unix::{SignalKind, signal};

use crate::progress::say;

/// Calls a function on its own thread for every SIGTERM and SIGINT from now on, until it returns false.
pub fn listen(mut hear: impl FnMut(Request) -> bool + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let listen = move || loop {
        let request = runtime.block_on(async {
            // If both arrive together, Ctrl-C comes first: as the second signal it would end a training loop at once.
            tokio::select! {
                biased;
                _ = interrupt.recv() => Request::Interrupt,
                _ = terminate.recv() => Request::Terminate,
            }
        });
        if !hear(request) {
            return;
        }
    };
    thread::Builder::new().name("kith-signals".to_owned()).spawn(listen).map(drop)
}

/// For commands without a checkpoint: a signal ends the process at once and removes temporary folders and drafts, while
/// the guard lives.
pub fn end_at_once() -> io::Result<AtOnce> {
    let is_meant = Arc::new(AtomicBool::new(true));
    let guard = AtOnce(Arc::clone(&is_meant));
    listen(move |request| {
        if is_meant.load(SeqCst) {
            say(&format!("stopped by {}", request.name()));
            kith_store::exit_at_once(request.code());
        }
        false
    })?;
    Ok(guard)
}

/// Guard of [`end_at_once`].
#[derive(Debug)]
pub struct AtOnce(Arc<AtomicBool>);

impl Drop for AtOnce {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

/// Stop requests for a training loop. Without a running loop, a signal ends the process at once. With one, the process
/// ends after the loop has saved a checkpoint, at the latest after `grace` or at a following Ctrl-C. A second SIGTERM
/// is ignored: job managers send it to every process, and a launcher passes it on.
pub fn heed(grace: Duration) -> io::Result<Stop> {
    let stop = Stop::default();
    let asked = stop.clone();
    let (sender, requests) = channel();
    listen(move |request| sender.send(request).is_ok())?;
    let wait = move || {
        let Ok(first) = requests.recv() else { return };
        if !asked.ask(first) {
            say(&format!("stopped by {}", first.name()));
            kith_store::exit_at_once(first.code());
        }
        say(&format!("{}: ending the step, for a checkpoint within {} s", first.name(), grace.as_secs_f64()));
        let end = Instant::now() + grace;
        loop {
            match requests.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(Request::Terminate) => {}
                Ok(Request::Interrupt) => {
                    say("stopped at once: the last checkpoint stays");
                    kith_store::exit_at_once(Request::Interrupt.code());
                }
                Err(RecvTimeoutError::Timeout) => {
                    say("stopped after --grace, in the middle of a step: the last checkpoint stays");
                    kith_store::exit_at_once(first.code());
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    };
    thread::Builder::new().name("kith-grace".to_owned()).spawn(wait)?;
    Ok(stop)
}
