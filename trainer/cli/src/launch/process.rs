//! A rank or server as a process: starts it, reads its lines, stops it.

use std::{
    io::{self, BufRead, BufReader, Read},
    net::TcpListener,
    os::{
        fd::OwnedFd,
        unix::{
            net::UnixStream,
            process::{CommandExt, ExitStatusExt},
        },
    },
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::SyncSender},
    thread,
    time::Duration,
};

use kith_group::launch::{attempt::Who, ended::Ended};
use kith_run::stop::Request;
use rustix::process::{Pid, Signal, kill_process};

use crate::launched::{self, LAUNCHED, LISTENER};

/// Events of processes and signals.
#[derive(Debug)]
pub(crate) enum Event {
    /// A line of stdout (`is_answer`) or stderr, with its newline, if any.
    Line { who: Who, is_answer: bool, line: Vec<u8> },
    /// A process ended; all its lines have been sent before.
    Ended { who: Who, ended: Ended },
    /// A signal asks this process to stop.
    Signal { request: Request },
}

/// Interval of checking whether a process has ended.
const TICK: Duration = Duration::from_millis(10);

/// A running or ended process. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) who: Who,
    child: Arc<Mutex<Child>>,
    /// Closed when this process ends, which tells the child that the launcher is gone.
    _stdin: UnixStream,
}

impl Process {
    /// Starts a process; its lines and its end go to `events`. A listener is handed over to it.
    pub(crate) fn start(
        who: Who,
        mut command: Command,
        listener: Option<TcpListener>,
        events: &SyncSender<Event>,
    ) -> io::Result<Process> {
        let (stdin, its_stdin) = UnixStream::pair()?;
        command.env(LAUNCHED, "1").env_remove(LISTENER);
        if let Some(listener) = listener {
            launched::send(&listener, &stdin)?;
            command.env(LISTENER, "1");
        }
        // Ctrl-C reaches only this process, which then stops the others.
        command.process_group(0);
        command.stdin(OwnedFd::from(its_stdin)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        drop(command); // Closes the command's copy of the socket.
        let stdout = child.stdout.take().map(|pipe| read(who, true, pipe, events.clone()));
        let stderr = child.stderr.take().map(|pipe| read(who, false, pipe, events.clone()));
        let child = Arc::new(Mutex::new(child));
        let (waited, events) = (Arc::clone(&child), events.clone());
        thread::spawn(move || {
            let ended = wait(&waited);
            for reader in [stdout, stderr].into_iter().flatten() {
                let _ = reader.join(); // The reader only signals that it has ended.
            }
            let _ = events.send(Event::Ended { who, ended }); // An error means that the receiver is gone.
        });
        Ok(Process { who, child, _stdin: stdin })
    }

    /// Process id.
    pub(crate) fn id(&self) -> u32 {
        lock(&self.child).id()
    }

    /// Sends a signal, unless the process has ended: another process may have its id.
    pub(crate) fn signal(&self, signal: Signal) {
        let mut child = lock(&self.child);
        if let Ok(None) = child.try_wait() {
            let _ = kill_process(Pid::from_child(&child), signal); // An error means that it has just ended.
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Polls, so that the lock of the child is free while it runs.
fn wait(child: &Mutex<Child>) -> Ended {
    loop {
        match lock(child).try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => return ended(status),
            Err(_) => return Ended::Signal(0),
        }
        thread::sleep(TICK);
    }
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Code(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, signal) => Ended::Signal(signal.unwrap_or(0)),
    }
}

fn lock(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(
    who: Who,
    is_answer: bool,
    pipe: impl Read + Send + 'static,
    events: SyncSender<Event>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        loop {
            let mut line = Vec::new();
            match pipe.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {
                    if events.send(Event::Line { who, is_answer, line }).is_err() {
                        return;
                    }
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_by_a_code_or_a_signal() {
        let of = |raw| ended(ExitStatus::from_raw(raw));
        assert_eq!(
            (of(0), of(1 << 8), of(75 << 8), of(9)),
            (Ended::Code(0), Ended::Code(1), Ended::Code(75), Ended::Signal(9))
        );
    }
}
