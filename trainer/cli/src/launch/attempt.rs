//! One attempt of a run: starts servers, then ranks, and stops them all.

use std::{
    net::TcpListener,
    ops::ControlFlow,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender},
    time::{Duration, Instant},
};

use kith_run::{exit_code::RETRY, stop::Request};
use rustix::process::Signal;

use super::{
    command_line::CommandLine,
    ended::Ended,
    process::{Event, Process, Who},
};

/// Observer of an attempt.
pub(crate) trait Audience {
    /// Receives a line of a process: from stdout if `is_answer`, else from stderr.
    fn hear(&mut self, who: Who, is_answer: bool, line: &[u8]);

    /// Interval of [`Audience::look`] once ranks are started; `None`: never.
    fn looks_every(&self) -> Option<Duration> {
        None
    }

    /// Inspects all processes. `Break` stops them as if they were done; an error fails the attempt with this message.
    fn look(&mut self, _processes: &[Process]) -> Result<ControlFlow<()>, String> {
        Ok(ControlFlow::Continue(()))
    }
}

/// End of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All ranks exited with 0, or the observer ended the attempt.
    Done,
    /// A process failed: exit code and message.
    Failed { code: u8, sentence: String },
    /// A signal stopped the ranks before they were done; its exit code.
    Stopped { code: u8 },
}

/// Time limits.
#[derive(Clone, Copy, Debug)]
struct Waits {
    /// For servers to open their shards.
    start: Duration,
    /// For the other processes after a failure: ranks that lose one stop by themselves and print the reason.
    moment: Duration,
    /// For processes to end after a signal.
    patience: Duration,
    /// For the other ranks after the first one exited with 0.
    end: Duration,
}

const WAITS: Waits = Waits {
    start: Duration::from_secs(120),
    moment: Duration::from_secs(5),
    patience: Duration::from_secs(5),
    end: Duration::from_secs(600),
};

/// Stages of stopping the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    /// One process failed; the others have a moment to end.
    Ending,
    /// Ranks have been asked to stop and save a checkpoint; servers keep running for them.
    Asked,
    Terminated,
    Killed,
    /// SIGKILL did not help: the processes are left to the system.
    GivenUp,
}

pub(crate) struct Attempt<'a> {
    command_line: &'a CommandLine,
    audience: &'a mut dyn Audience,
    sender: &'a SyncSender<Event>,
    events: &'a Receiver<Event>,
    processes: Vec<Process>,
    /// Addresses of servers, by number, once they are ready.
    addresses: Vec<Option<String>>,
    stage: Stage,
    /// Start of the next stage.
    deadline: Option<Instant>,
    /// Time of the observer's next look.
    next_look: Option<Instant>,
    /// First failed process and its message, by [`Ended::is_worse_than`].
    failure: Option<(Ended, String)>,
    stopped: Option<Request>,
    /// Number of ranks that exited with 0.
    n_done: usize,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(
        command_line: &'a CommandLine,
        audience: &'a mut dyn Audience,
        (sender, events): (&'a SyncSender<Event>, &'a Receiver<Event>),
    ) -> Attempt<'a> {
        Attempt {
            command_line,
            audience,
            sender,
            events,
            processes: Vec::new(),
            addresses: vec![None; command_line.n_servers],
            stage: Stage::Running,
            deadline: None,
            next_look: None,
            failure: None,
            stopped: None,
            n_done: 0,
        }
    }

    /// Runs the attempt to its end; no process is left.
    pub(crate) fn run(mut self, is_restart: bool) -> anyhow::Result<Outcome> {
        for server in 0..self.command_line.n_servers {
            self.start(Who::Server(server), self.command_line.server(server), None)?;
        }
        self.deadline = Some(Instant::now() + WAITS.start).filter(|_| self.command_line.n_servers > 0);
        while self.stage == Stage::Running && self.addresses.iter().any(Option::is_none) {
            self.step();
        }
        if self.stage == Stage::Running {
            self.deadline = None;
            let addresses: Vec<String> = self.addresses.iter().flatten().cloned().collect();
            let (listener, port) = self.command_line.listen()?;
            let mut listener = Some(listener);
            for rank in 0..self.command_line.n_ranks {
                let command = self.command_line.rank(rank, port, &addresses, is_restart);
                self.start(Who::Rank(rank), command, listener.take())?;
            }
            self.next_look = self.audience.looks_every().map(|every| Instant::now() + every);
        }
        while self.processes.iter().any(|process| !process.is_over) && self.stage < Stage::GivenUp {
            // Servers are not needed without ranks.
            if self.stage < Stage::Terminated && !self.has_ranks() {
                self.go_to(Stage::Terminated);
            }
            self.step();
        }
        Ok(match (self.stopped, self.failure) {
            (Some(request), None) if self.n_done < self.command_line.n_ranks => {
                Outcome::Stopped { code: request.code() }
            }
            (Some(request), Some((ended, _))) if ended.code() == RETRY => Outcome::Stopped { code: request.code() },
            (_, Some((ended, sentence))) => Outcome::Failed { code: ended.code(), sentence },
            (_, None) => Outcome::Done,
        })
    }

    fn start(&mut self, who: Who, command: std::process::Command, listener: Option<TcpListener>) -> anyhow::Result<()> {
        let failed =
            |error| anyhow::anyhow!("{who} cannot be started: {error}; check the limits on processes and memory");
        self.processes.push(Process::start(who, command, listener, self.sender).map_err(failed)?);
        Ok(())
    }

    fn has_ranks(&self) -> bool {
        self.processes.iter().any(|process| matches!(process.who, Who::Rank(_)) && !process.is_over)
    }

    /// Waits for the next event or deadline, and handles it.
    fn step(&mut self) {
        let event = match [self.deadline, self.next_look].into_iter().flatten().min() {
            Some(moment) => self.events.recv_timeout(moment.saturating_duration_since(Instant::now())),
            None => self.events.recv().map_err(RecvTimeoutError::from),
        };
        match event {
            Ok(Event::Line { who, is_answer, line }) => self.on_line(who, is_answer, &line),
            Ok(Event::Ended { who, ended }) => self.on_end(who, ended),
            Ok(Event::Signal { request }) => self.on_signal(request),
            Err(_) if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) => self.on_deadline(),
            Err(_) => {}
        }
        if self.next_look.is_some_and(|moment| moment <= Instant::now()) {
            self.look();
        }
    }

    /// The first signal gives ranks time for a checkpoint. A Ctrl-C after it kills all processes; another SIGTERM is
    /// ignored.
    fn on_signal(&mut self, request: Request) {
        let stage = match (self.stopped, request) {
            (None, _) => Stage::Asked,
            (Some(_), Request::Interrupt) => Stage::Killed,
            (Some(_), Request::Terminate) => return,
        };
        self.stopped.get_or_insert(request);
        if stage > self.stage {
            self.go_to(stage);
        }
    }

    /// Calls the observer, unless processes are being stopped.
    fn look(&mut self) {
        let every = self.audience.looks_every().filter(|_| self.stage == Stage::Running);
        self.next_look = every.map(|every| Instant::now() + every);
        if every.is_none() {
            return;
        }
        match self.audience.look(&self.processes) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => self.go_to(Stage::Terminated),
            Err(sentence) => {
                self.fail(Ended::Code(1), sentence);
                self.go_to(Stage::Terminated);
            }
        }
    }

    fn on_line(&mut self, who: Who, is_answer: bool, line: &[u8]) {
        if let Who::Server(server) = who
            && is_answer
            && self.addresses[server].is_none()
        {
            self.addresses[server] = address(&String::from_utf8_lossy(line));
        }
        self.audience.hear(who, is_answer, line);
    }

    fn on_end(&mut self, who: Who, ended: Ended) {
        let process = self.processes.iter_mut().find(|process| process.who == who);
        process.expect("only processes end").is_over = true;
        if let Who::Rank(_) = who {
            self.n_done += usize::from(ended.is_well());
        }
        let is_told = match who {
            Who::Rank(_) => self.stage >= Stage::Asked,
            Who::Server(_) => self.stage >= Stage::Terminated,
        };
        if is_told && (ended.is_retry() || ended.code() == Request::Interrupt.code() || self.stage >= Stage::Terminated)
        {
            return;
        }
        match who {
            Who::Rank(_) if ended.is_well() => {
                if self.stage == Stage::Running {
                    self.deadline.get_or_insert(Instant::now() + WAITS.end);
                }
            }
            Who::Server(_) if ended.is_well() => {
                self.fail(Ended::Code(RETRY), format!("{who} ended while ranks needed it"));
            }
            _ => self.fail(ended, format!("{who} {}", ended.sentence())),
        }
    }

    fn on_deadline(&mut self) {
        match self.stage {
            Stage::Running if !self.has_ranks() => {
                let seconds = WAITS.start.as_secs();
                self.fail(Ended::Code(RETRY), format!("a server was not ready within {seconds} s"));
            }
            Stage::Running => {
                let seconds = WAITS.end.as_secs();
                self.fail(Ended::Code(RETRY), format!("a rank did not end within {seconds} s of another"));
            }
            Stage::Ending | Stage::Asked => self.go_to(Stage::Terminated),
            Stage::Terminated => self.go_to(Stage::Killed),
            Stage::Killed | Stage::GivenUp => self.go_to(Stage::GivenUp),
        }
    }

    fn fail(&mut self, ended: Ended, sentence: String) {
        if self.failure.as_ref().is_none_or(|(first, _)| ended.is_worse_than(*first)) {
            self.failure = Some((ended, sentence));
        }
        if self.stage == Stage::Running {
            self.go_to(Stage::Ending);
        }
    }

    fn go_to(&mut self, stage: Stage) {
        self.stage = stage;
        let (signal, wait) = match stage {
            Stage::Running | Stage::Ending => (None, WAITS.moment),
            Stage::Asked => (Some(Signal::TERM), self.command_line.grace + WAITS.patience),
            Stage::Terminated => (Some(Signal::TERM), WAITS.patience),
            Stage::Killed | Stage::GivenUp => (Some(Signal::KILL), WAITS.patience),
        };
        self.deadline = Some(Instant::now() + wait);
        if let Some(signal) = signal {
            // Ranks may need servers until their checkpoint is saved.
            let is_meant = |process: &&Process| stage > Stage::Asked || matches!(process.who, Who::Rank(_));
            self.processes.iter().filter(is_meant).for_each(|process| process.signal(signal));
        }
    }
}

/// The address in a server's first line: `serving shards 0 of 2 on 127.0.0.1:4000`.
fn address(line: &str) -> Option<String> {
    let (_, rest) = line.trim_start().strip_prefix("serving ")?.split_once(" on ")?;
    let address = rest.split_whitespace().next()?;
    address.parse::<std::net::SocketAddr>().ok().map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::mpsc::sync_channel};

    use super::*;
    use crate::launch::command_line::tests::command_line;

    struct Deaf;

    impl Audience for Deaf {
        fn hear(&mut self, _who: Who, _is_answer: bool, _line: &[u8]) {}
    }

    /// Runs ranks that execute a script.
    fn run(dir: &Path, script: &str) -> Outcome {
        let program = dir.join("program");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let command_line = CommandLine { program, ..command_line(2) };
        let (sender, events) = sync_channel(16);
        Attempt::new(&command_line, &mut Deaf, (&sender, &events)).run(false).unwrap()
    }

    #[test]
    fn the_reason_is_the_killed_rank_in_any_order() {
        let temp = tempfile::tempdir().unwrap();
        let killed = Outcome::Failed { code: RETRY, sentence: "rank 1 was killed by signal 9".to_owned() };
        assert_eq!(run(temp.path(), "[ $RANK = 0 ] && exit 75; sleep 0.3; kill -KILL $$"), killed);
        assert_eq!(run(temp.path(), "[ $RANK = 1 ] && kill -KILL $$; sleep 0.3; exit 75"), killed);
        let wrong = Outcome::Failed { code: 1, sentence: "rank 0 ended with code 1".to_owned() };
        assert_eq!(run(temp.path(), "[ $RANK = 1 ] && kill -KILL $$; sleep 0.3; exit 1"), wrong);
        let lost = Outcome::Failed { code: RETRY, sentence: "rank 0 ended with code 75".to_owned() };
        assert_eq!(run(temp.path(), "[ $RANK = 1 ] && sleep 0.3; exit 75"), lost);
    }

    #[test]
    fn a_server_says_where_it_is() {
        assert_eq!(address("serving shards 0,2 of 3 on 127.0.0.1:4000\n").as_deref(), Some("127.0.0.1:4000"));
        let with_metrics = "serving shards 1 of 3 on [::1]:4000 (metrics on [::1]:4001)\n";
        assert_eq!(address(with_metrics).as_deref(), Some("[::1]:4000"));
        assert_eq!([address("error: no"), address("serving nobody"), address("serving on x")], [None, None, None]);
    }
}
