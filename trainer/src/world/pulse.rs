//! Heartbeats, beside the collectives: every rank tells rank 0 how far it is, and rank 0 tells everybody how far all are.
//! Who is silent too long or gone is lost; all others are told who, where, and what it did last.

mod messages;

use std::{
    io::{self, ErrorKind, Read},
    net::TcpStream,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use self::messages::{Message, Spoke};
use super::{
    board::{Board, Entry, Order, Verdict},
    door::{Arrival, Door},
    hello::Opening,
    rendezvous::turn_away,
    wire::timespec,
};

/// How long the process may take to notice a verdict by itself.
const GRACE: Duration = Duration::from_secs(2);

/// How long the end of a world may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// When hearts beat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rhythm {
    pub(super) every: Duration,
    /// Silence that means loss.
    pub(super) deadline: Duration,
}

/// The thread that keeps the board up to date, as long as its world lasts.
#[derive(Debug)]
pub(super) struct Pulse {
    board: Arc<Board>,
    ended: Receiver<()>,
}

impl Pulse {
    /// Begins to beat: rank 0 with all others, another rank with rank 0.
    pub(super) fn start(board: Arc<Board>, spokes: Vec<(usize, TcpStream)>, rhythm: Rhythm) -> io::Result<Pulse> {
        let (end, ended) = channel();
        let spokes = spokes.into_iter().map(|(rank, stream)| Spoke::new(rank, stream)).collect::<io::Result<_>>()?;
        let heart = Heart { board: board.clone(), spokes, rhythm, door: None, decided: None };
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

/// What the thread of a pulse works with.
struct Heart {
    board: Arc<Board>,
    spokes: Vec<Spoke>,
    rhythm: Rhythm,
    /// Rank 0's, for those who come too late.
    door: Option<Door>,
    /// When the verdict came, until this process was called about it.
    decided: Option<Instant>,
}

impl Heart {
    fn beat(mut self) {
        let mut next = Instant::now();
        loop {
            if Instant::now() >= next {
                next = Instant::now() + self.rhythm.every;
                self.send_beat();
                self.send_away();
            }
            self.sleep(next);
            self.listen();
            self.notice_silence();
            if let Some(decided) = self.decided
                && decided.elapsed() >= GRACE
            {
                self.decided = None;
                self.board.call_if_unnoticed();
            }
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

    fn is_center(&self) -> bool {
        self.board.rank() == 0
    }

    /// Until something comes, or something is due.
    fn sleep(&self, next: Instant) {
        let due = self.decided.map_or(next, |decided| next.min(decided + GRACE));
        let mut fds = vec![PollFd::new(self.board.knocked(), PollFlags::IN)];
        for spoke in &self.spokes {
            let out = if spoke.has_unsent() { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::new(spoke.stream(), PollFlags::IN | out));
        }
        let left = due.saturating_duration_since(Instant::now());
        if poll(&mut fds, Some(&timespec(left))).is_err() {
            return thread::sleep(left.min(Duration::from_millis(10)));
        }
        if !fds[0].revents().is_empty() {
            // The knocks; what they are about is in the orders.
            while matches!(self.board.knocked().read(&mut [0; 64]), Ok(n) if n > 0) {}
        }
    }

    fn send_beat(&mut self) {
        let message =
            if self.is_center() { Message::Board(self.board.entries()) } else { Message::Beat(self.board.own()) };
        for spoke in &mut self.spokes {
            // One who does not read gets no second beat before the first.
            if !spoke.has_unsent() {
                spoke.send(&message);
            }
        }
    }

    /// Those who come when the world is complete.
    fn send_away(&mut self) {
        let Some(door) = &self.door else { return };
        while let Some(Arrival { stream, opening }) = door.next(Duration::ZERO) {
            let Opening::Join(hello) = opening else { continue };
            let late = 3 * self.rhythm.every;
            turn_away(self.board.members(), &stream, &hello, |rank| {
                let is_silent = |spoke: &Spoke| spoke.rank == rank && spoke.heard.elapsed() > late;
                let has_left = self.board.has_left(rank);
                has_left || self.board.verdict().is_some() || self.spokes.iter().any(is_silent)
            });
        }
    }

    /// Hears what others say.
    fn listen(&mut self) {
        let mut verdicts = Vec::new();
        let mut boards_changed = false;
        for spoke in &mut self.spokes {
            spoke.flush();
            let rank = spoke.rank;
            let (messages, closed) = spoke.receive();
            for message in messages {
                match message {
                    Message::Beat(entry) => self.board.update(rank, entry),
                    Message::Board(entries) => self.board.update_all(entries),
                    Message::Verdict(verdict) => verdicts.push(verdict),
                    Message::Goodbye => {
                        let entry = self.board.entry(rank);
                        self.board.update(rank, Entry { has_left: true, ..entry });
                        boards_changed = true;
                    }
                }
            }
            if let Some(error) = closed
                && !self.board.has_left(rank)
            {
                let why = match error.kind() {
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                        "its process ended without a word".to_owned()
                    }
                    _ => format!("its connection broke ({error})"),
                };
                verdicts.push(Verdict::Lost { rank, at: self.board.entry(rank), why });
            }
        }
        self.spokes.retain(|spoke| !spoke.is_closed);
        verdicts.into_iter().for_each(|verdict| self.decide(verdict));
        if boards_changed && self.is_center() {
            self.send_beat();
        }
    }

    /// Judged after all that has arrived was read: this process may have been the one that slept.
    fn notice_silence(&mut self) {
        if self.board.verdict().is_some() {
            return;
        }
        let deadline = self.rhythm.deadline;
        let silent = self.spokes.iter().find(|spoke| spoke.heard.elapsed() > deadline);
        if let Some(rank) = silent.map(|spoke| spoke.rank)
            && !self.board.has_left(rank)
        {
            let why = format!("nothing was heard of it for {} s", deadline.as_secs_f64());
            self.decide(Verdict::Lost { rank, at: self.board.entry(rank), why });
        }
    }

    /// The first verdict stands. Rank 0 tells it to everybody.
    fn decide(&mut self, verdict: Verdict) {
        if self.board.decide(verdict.clone()) {
            self.decided = Some(Instant::now());
            if self.is_center() {
                self.spokes.iter_mut().for_each(|spoke| spoke.send(&Message::Verdict(verdict.clone())));
            }
        }
    }

    /// Passes on what this process found out: everybody learns it from rank 0.
    fn tell(&mut self, verdict: Verdict, told: Option<Sender<()>>) {
        if self.is_center() {
            self.decide(verdict);
        } else {
            self.spokes.iter_mut().for_each(|spoke| spoke.send(&Message::Verdict(verdict.clone())));
        }
        self.flush();
        drop(told);
    }

    fn say_goodbye(mut self) {
        self.spokes.iter_mut().for_each(|spoke| spoke.send(&Message::Goodbye));
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
