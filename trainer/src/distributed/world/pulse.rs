//! Heartbeats, beside the collectives: every rank sends its progress to rank 0, and rank 0 sends the progress of all to
//! everybody. A rank that is silent too long or gone is lost; all others learn its number, host and last phase.

#[cfg(test)]
mod tests;

use std::{
    io::{self, ErrorKind, Read},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use super::{
    board::{Board, Entry, Order, Verdict},
    contest::Contests,
    deadline::timespec,
    door::{Arrival, Door},
    hello::Opening,
    message::Message,
    rendezvous::{Holder, turn_away},
    spoke::Spoke,
    waking::Waking,
};

/// Time for the process to notice a verdict by itself.
const GRACE: Duration = Duration::from_secs(2);

/// Time limit for the end of a process group.
const FAREWELL: Duration = Duration::from_secs(2);

/// Timing of heartbeats.
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
    pub(super) fn start(board: Arc<Board>, spokes: Vec<Spoke>, rhythm: Rhythm) -> io::Result<Pulse> {
        let (end, ended) = channel();
        let heart = Heart::new(board.clone(), spokes, rhythm);
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
    rhythm: Rhythm,
    /// Rank 0's, for those who come too late.
    door: Option<Door>,
    /// Time of the verdict, until this process was called about it.
    decided: Option<Instant>,
    /// True if this rank ends because of an error, its own or another's: then it sends no goodbye.
    is_failing: bool,
    waking: Waking,
    contests: Contests,
}

impl Heart {
    fn new(board: Arc<Board>, mut spokes: Vec<Spoke>, rhythm: Rhythm) -> Heart {
        spokes.iter_mut().for_each(|spoke| spoke.heard = Instant::now());
        let (waking, contests) = (Waking::new(rhythm.deadline), Contests::new(rhythm.every, rhythm.deadline));
        Heart { board, spokes, rhythm, door: None, decided: None, is_failing: false, waking, contests }
    }

    fn beat(mut self) {
        let mut next = Instant::now();
        loop {
            if Instant::now() >= next {
                next = Instant::now() + self.rhythm.every;
                self.send_beat();
                self.send_away();
            }
            self.sleep(next);
            self.forgive_own_pause();
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
            fds.push(PollFd::new(spoke.socket(), PollFlags::IN | out));
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
        let Heart { board, spokes, door: Some(door), contests, .. } = self else { return };
        while let Some(Arrival { mut line, opening }) = door.next(Duration::ZERO) {
            let Opening::Join(hello) = opening else { continue };
            turn_away(board.members(), &mut line, &hello, |rank| {
                let heard = match spokes.iter().find(|spoke| spoke.rank == rank) {
                    Some(spoke) => spoke.heard,
                    None if rank == board.rank() => Instant::now(),
                    None => return Holder::InDoubt,
                };
                let is_ending = board.has_left(rank) || board.verdict().is_some();
                let is_alive = !is_ending && contests.is_refused(rank, heard, Instant::now());
                if is_alive { Holder::Alive } else { Holder::InDoubt }
            });
        }
    }

    /// Restarts the clocks of all others where this process was the one that paused: a stopped process, a paused machine.
    fn forgive_own_pause(&mut self) {
        if self.waking.was_paused() {
            let now = Instant::now();
            self.spokes.iter_mut().for_each(|spoke| spoke.heard = now);
        }
    }

    /// Receives messages. They count in the order in which they were sent, and before the end of any connection: a rank
    /// that has sent its verdict and ended is not lost.
    fn listen(&mut self) {
        let (mut messages, mut ends) = (Vec::new(), Vec::new());
        for spoke in &mut self.spokes {
            spoke.flush();
            messages.extend(spoke.receive().into_iter().map(|message| (spoke.rank, message)));
            ends.extend(spoke.closed.take().map(|error| (spoke.rank, error)));
        }
        self.spokes.retain(|spoke| ends.iter().all(|(rank, _)| *rank != spoke.rank));
        let mut has_news = false;
        for (rank, message) in messages {
            match message {
                Message::Beat(entry) => self.board.update(rank, entry),
                Message::Board(entries) => self.board.update_all(entries),
                Message::Verdict(verdict) => self.decide(verdict, Some(rank)),
                Message::Goodbye(entry) => {
                    self.board.update(rank, Entry { has_left: true, ..entry });
                    has_news = true;
                }
            }
        }
        for (rank, error) in ends {
            if !self.board.has_left(rank) {
                let why = match error.kind() {
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                        "its process ended without a word".to_owned()
                    }
                    _ => format!("its connection broke ({error})"),
                };
                self.decide(Verdict::Lost { rank, at: self.board.entry(rank), why }, None);
            }
        }
        if has_news && self.is_center() {
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
            self.decide(Verdict::Lost { rank, at: self.board.entry(rank), why }, None);
        }
    }

    /// Takes a verdict, found here or received `from` a rank; the first one stands. Rank 0 sends it to all. Any other
    /// rank sends its own verdict to rank 0, which may only have paused and must not take the end of this rank for a
    /// good one.
    fn decide(&mut self, verdict: Verdict, from: Option<usize>) {
        self.is_failing = true;
        if self.board.decide(verdict.clone()) {
            self.decided = Some(Instant::now());
            if self.is_center() || from.is_none() {
                self.spokes.iter_mut().for_each(|spoke| spoke.send(&Message::Verdict(verdict.clone())));
            }
        }
    }

    /// Passes on what this process found out: everybody learns it from rank 0.
    fn tell(&mut self, verdict: Verdict, told: Option<Sender<()>>) {
        self.is_failing = true;
        if self.is_center() {
            self.decide(verdict, None);
        } else {
            self.spokes.iter_mut().for_each(|spoke| spoke.send(&Message::Verdict(verdict.clone())));
        }
        self.flush();
        drop(told);
    }

    /// Sends the goodbye. A rank that ends because of an error has sent or received a verdict: a goodbye would mean
    /// that it ended well.
    fn say_goodbye(mut self) {
        if !self.is_failing {
            let own = self.board.own();
            self.spokes.iter_mut().for_each(|spoke| spoke.send(&Message::Goodbye(own)));
        }
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
