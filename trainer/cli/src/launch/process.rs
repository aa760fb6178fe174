//! A process of the world: started, read line by line, stopped.

use std::{
    fmt,
    io::{self, BufRead, BufReader, Read},
    net::TcpListener,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::SyncSender},
    thread,
    time::Duration,
};

use kith_run::stop::Request;
use rustix::process::{Pid, Signal, kill_process};

use super::ended::Ended;
use crate::launched::{self, LAUNCHED, LISTENER};

/// Who a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Rank(usize),
    Server(usize),
}

/// `rank 0`
impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Rank(number) => write!(f, "rank {number}"),
            Who::Server(number) => write!(f, "server {number}"),
        }
    }
}

/// What happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// A process said something on stdout (an answer) or on stderr; a line with its end, if it has one.
    Line { who: Who, is_answer: bool, line: Vec<u8> },
    /// A process ended, and all its lines have come.
    Ended { who: Who, ended: Ended },
    /// Somebody wants us to stop.
    Signal { request: Request },
}

/// How often it is looked whether a process has ended.
const TICK: Duration = Duration::from_millis(10);

/// A process that runs, or ran. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) who: Who,
    child: Arc<Mutex<Child>>,
    pub(crate) is_over: bool,
    /// Its end tells the process that we are gone.
    _stdin: UnixStream,
}

impl Process {
    /// Starts it; what it says and how it ends goes to `events`. A listener becomes its own.
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
        // Ctrl-C is for us; we say to everybody else when to stop.
        command.process_group(0);
        command.stdin(OwnedFd::from(its_stdin)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        drop(command); // It holds the other end of the socket as well.
        let stdout = child.stdout.take().map(|pipe| read(who, true, pipe, events.clone()));
        let stderr = child.stderr.take().map(|pipe| read(who, false, pipe, events.clone()));
        let child = Arc::new(Mutex::new(child));
        let (waited, events) = (Arc::clone(&child), events.clone());
        thread::spawn(move || {
            let ended = wait(&waited);
            for reader in [stdout, stderr].into_iter().flatten() {
                let _ = reader.join(); // It cannot say more than that it is over.
            }
            let _ = events.send(Event::Ended { who, ended }); // Nobody listens any more: fine.
        });
        Ok(Process { who, child, is_over: false, _stdin: stdin })
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        lock(&self.child).id()
    }

    /// Sends a signal, unless it has ended: then its number may be another process's.
    pub(crate) fn signal(&self, signal: Signal) {
        let mut child = lock(&self.child);
        if let Ok(None) = child.try_wait() {
            let _ = kill_process(Pid::from_child(&child), signal); // It may end this moment.
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Looks again and again, so that nobody holds the child while it runs.
fn wait(child: &Mutex<Child>) -> Ended {
    loop {
        match lock(child).try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => return Ended::new(status),
            Err(_) => return Ended::Signal(0),
        }
        thread::sleep(TICK);
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
