//! The thread of heartbeats: reads and writes the connections of [`kith_group::pulse`], and keeps the board up to date.

use std::{
    io::{self, ErrorKind, Read},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use kith_group::{
    limits::Rhythm,
    message::{Message, Opening},
    progress::Verdict,
    pulse::{self, Action},
    refusal::to_late,
};
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    board::{Board, Order},
    deadline::{Clock, timespec},
    door::{Arrival, Door},
    rendezvous::tell_one,
    spoke::Spoke,
};

/// Time limit for the end of a process group.
const FAREWELL: Duration = Duration::from_secs(2);

/// The thread that keeps the board up to date, as long as its world lasts.
#[derive(Debug)]
pub(super) struct Pulse {
    board: Arc<Board>,
    ended: Receiver<()>,
}

impl Pulse {
    /// Begins to beat: rank 0 with all others, another rank with rank 0. Heartbeats are counted on from `number`.
    pub(super) fn start(board: Arc<Board>, spokes: Vec<Spoke>, rhythm: Rhythm, number: u64) -> io::Result<Pulse> {
        let (end, ended) = channel();
        let clock = Clock::start();
        let machine = pulse::Pulse::new(board.rank(), board.members().len(), rhythm, number, clock.now());
        let heart = Heart { board: board.clone(), spokes, machine, clock, door: None };
        thread::Builder::new().name("pulse".to_owned()).spawn(move || {
            heart.beat();
            drop(end);
        })?;
        Ok(Pulse { board, ended })
    }

    /// Tells all others why this rank stops, unless they have to stop anyway.
    pub(super) fn stop(&self, code: u8, sentence: &str) {
        if self.board.verdict().is_none() {
            let (told, wait) = channel();
            let verdict = Verdict::Stopped { rank: self.board.rank(), code, sentence: sentence.to_owned() };
            self.board.notice();
            self.board.order(Order::Tell { verdict, told: Some(told) });
            let _ = wait.recv_timeout(FAREWELL);
        }
    }

    #[cfg(test)]
    pub(super) fn stop_without_a_word(&self) {
        self.board.order(Order::Vanish);
    }
}

impl Drop for Pulse {
    /// Says goodbye, and waits a moment until it is said.
    fn drop(&mut self) {
        if thread::panicking() {
            self.stop(70, "it panicked");
        }
        self.board.order(Order::Leave);
        let _ = self.ended.recv_timeout(FAREWELL);
    }
}

/// State of the pulse thread.
struct Heart {
    board: Arc<Board>,
    spokes: Vec<Spoke>,
    machine: pulse::Pulse,
    clock: Clock,
    /// Rank 0's, for those who come too late.
    door: Option<Door>,
}

impl Heart {
    fn beat(mut self) {
        loop {
            let actions = self.machine.tick(self.board.own(), self.clock.now());
            self.act(actions);
            self.send_away();
            self.sleep();
            self.machine.wake(self.clock.now());
            self.listen();
            for order in self.board.take_orders() {
                match order {
                    Order::Tell { verdict, told } => self.tell(verdict, told),
                    Order::Keep(door) => self.door = Some(door),
                    Order::Leave => return self.say_goodbye(),
                    #[cfg(test)]
                    Order::Vanish => return,
                }
            }
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        self.board.publish(self.machine.entries());
        for action in actions {
            match action {
                Action::Beat { to, message } => self.send(to, &message, true),
                Action::Send { to, message } => self.send(to, &message, false),
                Action::Decide(verdict) => self.board.decide(verdict),
                Action::Call => self.board.call_if_unnoticed(),
            }
        }
    }

    fn send(&mut self, to: usize, message: &Message, is_beat: bool) {
        // One who does not read gets no second beat before the first.
        if let Some(spoke) = self.spokes.iter_mut().find(|spoke| spoke.rank == to && !(is_beat && spoke.has_unsent())) {
            spoke.send(message);
        }
    }

    /// Until something comes, or something is due.
    fn sleep(&self) {
        let mut fds = vec![PollFd::new(self.board.knocked(), PollFlags::IN)];
        for spoke in &self.spokes {
            let out = if spoke.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::new(spoke.socket(), PollFlags::IN | out));
        }
        let left = self.clock.until(self.machine.next_tick());
        if poll(&mut fds, Some(&timespec(left))).is_err() {
            return thread::sleep(left.min(Duration::from_millis(10)));
        }
        if !fds[0].revents().is_empty() {
            // The knocks; what they are about is in the orders.
            while matches!(self.board.knocked().read(&mut [0; 64]), Ok(n) if n > 0) {}
        }
    }

    /// Those who come when the world is complete.
    fn send_away(&mut self) {
        let Heart { board, machine, clock, door: Some(door), .. } = self else { return };
        while let Some(Arrival { mut line, opening }) = door.next(Duration::ZERO) {
            if let Opening::Join(hello) = opening {
                let answer = to_late(board.members(), &hello, |rank| machine.holder(rank, clock.now()));
                tell_one(&mut line, &answer);
            }
        }
    }

    /// Receives messages: those of all connections, before the end of any of them.
    fn listen(&mut self) {
        let (mut messages, mut ends) = (Vec::new(), Vec::new());
        for spoke in &mut self.spokes {
            spoke.flush();
            messages.extend(spoke.receive().into_iter().map(|message| (spoke.rank, message)));
            ends.extend(spoke.closed.take().map(|error| (spoke.rank, error)));
        }
        self.spokes.retain(|spoke| ends.iter().all(|(rank, _)| *rank != spoke.rank));
        for (rank, message) in messages {
            self.board.hear(rank);
            let actions = self.machine.receive(rank, message, self.clock.now());
            self.act(actions);
        }
        for (rank, error) in ends {
            let is_end =
                matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
            let why = (!is_end).then(|| error.to_string());
            let actions = self.machine.closed(rank, why, self.clock.now());
            self.act(actions);
        }
    }

    /// Passes on what this process found out.
    fn tell(&mut self, verdict: Verdict, told: Option<Sender<()>>) {
        let actions = self.machine.tell(verdict, self.clock.now());
        self.act(actions);
        self.flush();
        drop(told);
    }

    fn say_goodbye(mut self) {
        let actions = self.machine.leave(self.board.own());
        self.act(actions);
        self.flush();
    }

    /// Sends what is unsent, within a moment.
    fn flush(&mut self) {
        let until = Instant::now() + FAREWELL / 2;
        while self.spokes.iter_mut().any(|spoke| !spoke.flush()) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
