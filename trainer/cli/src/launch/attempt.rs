//! One attempt of a run: the processes of [`kith_group::launch::attempt`], their lines and signals.

use std::{
    net::TcpListener,
    ops::ControlFlow,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender},
    time::{Duration, Instant},
};

use kith_group::launch::{
    attempt::{self, Action, Kill, Outcome, Request, Who},
    ended::Ended,
};
use kith_run::stop;
use rustix::process::Signal;

use super::{
    command_line::CommandLine,
    process::{Event, Process},
};

/// Observer of an attempt.
pub(crate) trait Audience {
    /// Receives a line of a process: from stdout if `is_answer`, else from stderr.
    fn hear(&mut self, who: Who, is_answer: bool, line: &[u8]);

    /// A process was started.
    fn begun(&mut self, _who: Who) {}

    /// A process ended.
    fn ended(&mut self, _who: Who, _ended: Ended) {}

    /// Interval of [`Audience::look`] once ranks are started; `None`: never.
    fn looks_every(&self) -> Option<Duration> {
        None
    }

    /// Inspects all processes. `Break` stops them as if they were done; an error fails the attempt with this message.
    fn look(&mut self, _processes: &[Process]) -> Result<ControlFlow<()>, String> {
        Ok(ControlFlow::Continue(()))
    }
}

/// The processes of an attempt, and who observes them.
pub(crate) struct Attempt<'a> {
    command_line: &'a CommandLine,
    audience: &'a mut dyn Audience,
    sender: &'a SyncSender<Event>,
    events: &'a Receiver<Event>,
    begun: Instant,
    processes: Vec<Process>,
    /// Addresses of servers, by number, once they are ready.
    addresses: Vec<Option<String>>,
    /// Port at which ranks meet, and rank 0's listener until rank 0 is started.
    meeting: Option<(u16, Option<TcpListener>)>,
    /// Time of the observer's next look.
    next_look: Option<Instant>,
    is_restart: bool,
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
            begun: Instant::now(),
            processes: Vec::new(),
            addresses: vec![None; command_line.n_servers],
            meeting: None,
            next_look: None,
            is_restart: false,
        }
    }

    /// Runs the attempt to its end; no process is left.
    pub(crate) fn run(mut self, is_restart: bool) -> anyhow::Result<Outcome> {
        self.is_restart = is_restart;
        let CommandLine { n_servers, n_ranks, grace, .. } = *self.command_line;
        let (mut machine, mut actions) = attempt::Attempt::begin(n_servers, n_ranks, grace, self.now());
        loop {
            if let Some(outcome) = self.act(actions)? {
                return Ok(outcome);
            }
            actions = self.step(&mut machine);
        }
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Carries out actions; the end of the attempt, if this was it.
    fn act(&mut self, actions: Vec<Action>) -> anyhow::Result<Option<Outcome>> {
        for action in actions {
            match action {
                Action::Start(who) => self.start(who)?,
                Action::Signal(who, kill) => {
                    let signal = match kill {
                        Kill::Terminate => Signal::TERM,
                        Kill::Kill => Signal::KILL,
                    };
                    self.processes
                        .iter()
                        .filter(|process| process.who == who)
                        .for_each(|process| process.signal(signal));
                }
                Action::RanksStarted => {
                    self.next_look = self.audience.looks_every().map(|every| Instant::now() + every);
                }
                Action::End(outcome) => return Ok(Some(outcome)),
            }
        }
        Ok(None)
    }

    fn start(&mut self, who: Who) -> anyhow::Result<()> {
        let (command, listener) = match who {
            Who::Server(server) => (self.command_line.server(server), None),
            Who::Rank(rank) => {
                if self.meeting.is_none() {
                    let (listener, port) = self.command_line.listen()?;
                    self.meeting = Some((port, Some(listener)));
                }
                let (port, listener) = self.meeting.as_mut().expect("made above");
                let addresses: Vec<String> = self.addresses.iter().flatten().cloned().collect();
                (self.command_line.rank(rank, *port, &addresses, self.is_restart), listener.take())
            }
        };
        let failed =
            |error| anyhow::anyhow!("{who} cannot be started: {error}; check the limits on processes and memory");
        self.processes.push(Process::start(who, command, listener, self.sender).map_err(failed)?);
        self.audience.begun(who);
        Ok(())
    }

    /// Waits for the next event or deadline, and tells the machine.
    fn step(&mut self, machine: &mut attempt::Attempt) -> Vec<Action> {
        let deadline = machine.deadline().map(|deadline| self.begun + deadline);
        let event = match [deadline, self.next_look].into_iter().flatten().min() {
            Some(moment) => self.events.recv_timeout(moment.saturating_duration_since(Instant::now())),
            None => self.events.recv().map_err(RecvTimeoutError::from),
        };
        let now = self.now();
        let mut actions = match event {
            Ok(Event::Line { who, is_answer, line }) => self.on_line(machine, who, is_answer, &line),
            Ok(Event::Ended { who, ended }) => {
                self.audience.ended(who, ended);
                machine.ended(who, ended, now)
            }
            Ok(Event::Signal { request }) => {
                let is_interrupt = request == stop::Request::Interrupt;
                machine.request(Request { code: request.code(), is_interrupt }, now)
            }
            Err(_) => machine.tick(now),
        };
        if self.next_look.is_some_and(|moment| moment <= Instant::now()) {
            actions.extend(self.look(machine));
        }
        actions
    }

    /// Calls the observer, unless processes are being stopped.
    fn look(&mut self, machine: &mut attempt::Attempt) -> Vec<Action> {
        let every = self.audience.looks_every().filter(|_| machine.is_running());
        self.next_look = every.map(|every| Instant::now() + every);
        if every.is_none() {
            return Vec::new();
        }
        match self.audience.look(&self.processes) {
            Ok(ControlFlow::Continue(())) => Vec::new(),
            Ok(ControlFlow::Break(())) => machine.finish(self.now()),
            Err(sentence) => machine.reject(sentence, self.now()),
        }
    }

    fn on_line(&mut self, machine: &mut attempt::Attempt, who: Who, is_answer: bool, line: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Who::Server(server) = who
            && is_answer
            && self.addresses[server].is_none()
        {
            self.addresses[server] = address(&String::from_utf8_lossy(line));
            if self.addresses[server].is_some() {
                actions = machine.ready(server);
            }
        }
        self.audience.hear(who, is_answer, line);
        actions
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

    use kith_run::exit_code::RETRY;

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
