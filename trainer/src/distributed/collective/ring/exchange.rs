//! One call on the ring: sends and receives at the same time, on one thread, until both are done.

use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write},
    ops::Range,
    time::Instant,
};

use kith_draw::{Vectorized, vectorized};
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    frame::{Call, HEAD_BYTES, Head, checksum},
    plan::{PIECE_BYTES, Receive, RingPlan},
};
use crate::distributed::world::{Board, Line, timespec};

/// Failures of a call.
#[derive(Debug)]
pub(super) enum Failure {
    /// Somebody was lost or stopped.
    Verdict,
    /// The connection from the rank before broke.
    Previous(io::Error),
    /// The connection to the next rank broke.
    Next(io::Error),
    /// Data of the previous rank failed its checks.
    Garbled(&'static str),
    /// The rank before is in another call.
    OutOfStep(Call),
    /// It takes too long.
    Deadline,
}

/// The two connections of a rank, and room for one piece.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) previous: Line,
    pub(super) next: Line,
    /// To the next rank, so far.
    pub(super) sent_bytes: u64,
    scratch: Vec<f32>,
}

/// Memory that a plan is about: its ranges count the bytes of both parts as if one stood behind the other.
#[derive(Debug)]
pub(super) struct Buffer<'a> {
    /// Numbers that are summed.
    pub(super) numbers: &'a mut [u8],
    /// Texts that are passed on unchanged.
    pub(super) texts: &'a mut [u8],
}

impl Buffer<'_> {
    fn at(&self, range: &Range<usize>) -> &[u8] {
        match range.start.checked_sub(self.numbers.len()) {
            Some(start) => &self.texts[start..][..range.len()],
            None => &self.numbers[range.clone()],
        }
    }

    fn at_mut(&mut self, range: &Range<usize>) -> &mut [u8] {
        match range.start.checked_sub(self.numbers.len()) {
            Some(start) => &mut self.texts[start..][..range.len()],
            None => &mut self.numbers[range.clone()],
        }
    }

    /// Adds the summands to a piece of the numbers, one after the other.
    fn add_all(&mut self, summands: &[&[f32]], range: &Range<usize>) {
        if range.start < self.numbers.len() {
            for summand in summands {
                let into = bytemuck::cast_slice_mut(self.at_mut(range));
                vectorized(Add { into, from: &summand[range.start / 4..range.end / 4] });
            }
        }
    }
}

/// Progress of one direction.
struct Progress {
    /// Pieces done.
    n_pieces: usize,
    /// Bytes of the frame at hand, its head included.
    n_bytes: usize,
    /// Bytes of the piece at hand.
    piece_bytes: usize,
    head: [u8; HEAD_BYTES],
}

impl Progress {
    fn new() -> Progress {
        Progress { n_pieces: 0, n_bytes: 0, piece_bytes: 0, head: [0; HEAD_BYTES] }
    }

    /// Begins the next piece if the frame at hand is complete; returns whether it is.
    fn is_whole(&mut self) -> bool {
        let is_whole = self.n_bytes == HEAD_BYTES + self.piece_bytes;
        if is_whole {
            self.n_pieces += 1;
            self.n_bytes = 0;
        }
        is_whole
    }
}

/// A piece that arrived, for when it is passed on.
#[derive(Clone, Copy)]
struct Arrived {
    n_bytes: usize,
    checksum: u32,
}

impl Links {
    pub(super) fn new(previous: Line, next: Line) -> io::Result<Links> {
        for line in [&previous, &next] {
            line.socket().set_nodelay(true)?;
            line.socket().set_nonblocking(true)?;
        }
        Ok(Links { previous, next, sent_bytes: 0, scratch: vec![0.0; PIECE_BYTES / 4] })
    }

    /// Carries out the plan, before the deadline.
    pub(super) fn exchange(
        &mut self,
        call: Call,
        plan: &RingPlan<'_>,
        mut buffer: Buffer<'_>,
        board: &Board,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let (mut sent, mut received) = (Progress::new(), Progress::new());
        let mut arrived = Vec::with_capacity(plan.receives.len());
        // Pieces to send that are summed and have a header.
        let mut n_prepared = 0;
        loop {
            let mut is_moving = false;
            if let Some(send) = plan.sends.get(sent.n_pieces).filter(|send| send.waits_for <= received.n_pieces) {
                if sent.n_pieces == n_prepared {
                    if send.waits_for == 0 {
                        buffer.add_all(plan.summands, &send.range);
                    }
                    let known: Option<Arrived> = send.is_passed_on.then(|| arrived[send.waits_for - 1]);
                    sent.piece_bytes = known.map_or(send.range.len(), |known| known.n_bytes);
                    let piece = &buffer.at(&send.range)[..sent.piece_bytes];
                    sent.head = head(call, piece, known.map(|known| known.checksum));
                    n_prepared += 1;
                }
                is_moving |= self.send(&mut sent, buffer.at(&send.range))?;
            }
            if received.n_pieces < plan.receives.len() {
                is_moving |= self.receive(call, plan, &mut received, &mut buffer, &mut arrived)?;
            }
            if is_moving {
                continue;
            }
            let may_send = plan.sends.get(sent.n_pieces).map(|send| send.waits_for <= received.n_pieces);
            let may_receive = received.n_pieces < plan.receives.len();
            let is_flushed = self.flush()?;
            if may_send.is_none() && !may_receive && is_flushed {
                return Ok(());
            }
            self.wait(may_receive, may_send == Some(true) || !is_flushed, board, deadline)?;
        }
    }

    /// Sends what the kernel takes; whether it took something.
    fn send(&mut self, sent: &mut Progress, piece: &[u8]) -> Result<bool, Failure> {
        let piece = &piece[..sent.piece_bytes];
        let n = match sent.n_bytes.checked_sub(HEAD_BYTES) {
            None => self.next.write_vectored(&[IoSlice::new(&sent.head[sent.n_bytes..]), IoSlice::new(piece)]),
            Some(n_bytes) => self.next.write(&piece[n_bytes..]),
        };
        match n {
            Ok(n) => {
                self.sent_bytes += n as u64;
                sent.n_bytes += n;
                sent.is_whole();
                Ok(n > 0)
            }
            Err(error) if is_no_failure(&error) => Ok(false),
            Err(error) => Err(Failure::Next(error)),
        }
    }

    /// Sends the buffered bytes of an encrypted connection; returns whether none are left.
    fn flush(&mut self) -> Result<bool, Failure> {
        match self.next.flush() {
            Ok(()) => Ok(true),
            Err(error) if is_no_failure(&error) => Ok(false),
            Err(error) => Err(Failure::Next(error)),
        }
    }

    /// Takes what there is; whether there was something. A whole piece is checked, and added where it must be.
    fn receive(
        &mut self,
        call: Call,
        plan: &RingPlan<'_>,
        received: &mut Progress,
        buffer: &mut Buffer<'_>,
        arrived: &mut Vec<Arrived>,
    ) -> Result<bool, Failure> {
        let receive = &plan.receives[received.n_pieces];
        let room = buffer.at_mut(&receive.range);
        let scratch: &mut [u8] = bytemuck::cast_slice_mut(&mut self.scratch);
        let place = if receive.is_added { &mut scratch[..room.len()] } else { room };
        let n = match received.n_bytes.checked_sub(HEAD_BYTES) {
            // Behind a piece whose length is not known is another frame.
            None if receive.n_spare > 0 => self.previous.read(&mut received.head[received.n_bytes..]),
            None => {
                let head = IoSliceMut::new(&mut received.head[received.n_bytes..]);
                self.previous.read_vectored(&mut [head, IoSliceMut::new(place)])
            }
            Some(n_bytes) => self.previous.read(&mut place[n_bytes..received.piece_bytes]),
        };
        match n {
            Ok(0) => return Err(Failure::Previous(ErrorKind::UnexpectedEof.into())),
            Ok(n) => {
                // Known as soon as the head is there: one that is out of step may send less than is waited for.
                let had_head = received.n_bytes >= HEAD_BYTES;
                received.n_bytes += n;
                if !had_head {
                    if received.n_bytes < HEAD_BYTES {
                        return Ok(true);
                    }
                    received.piece_bytes = check_head(call, receive, &received.head)?;
                }
                if !received.is_whole() {
                    return Ok(true);
                }
            }
            Err(error) if is_no_failure(&error) => return Ok(false),
            Err(error) => return Err(Failure::Previous(error)),
        }
        let piece = &place[..received.piece_bytes];
        let checksum = checksum(piece);
        if Head::from_bytes(&received.head).is_none_or(|head| head.checksum != checksum) {
            return Err(Failure::Garbled("its checksum is wrong"));
        }
        arrived.push(Arrived { n_bytes: piece.len(), checksum });
        if receive.is_added {
            let into = buffer.at_mut(&receive.range);
            let from = &self.scratch[..into.len() / 4];
            vectorized(Add { into: bytemuck::cast_slice_mut(into), from });
            buffer.add_all(plan.summands, &receive.range);
        }
        Ok(true)
    }

    /// Sleeps until something can be done, somebody is lost, or the deadline has passed.
    fn wait(&self, may_receive: bool, may_send: bool, board: &Board, deadline: Instant) -> Result<(), Failure> {
        let mut fds = Vec::with_capacity(3);
        fds.push(PollFd::new(board.alarm(), PollFlags::IN));
        if may_receive {
            fds.push(PollFd::new(self.previous.socket(), PollFlags::IN));
        }
        if may_send {
            fds.push(PollFd::new(self.next.socket(), PollFlags::OUT));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Deadline);
        }
        match poll(&mut fds, Some(&timespec(left))) {
            // A verdict ends only what cannot go on: a call whose last bytes are here already is whole.
            Ok(_) if fds[0].revents().is_empty() || fds[1..].iter().any(|fd| !fd.revents().is_empty()) => Ok(()),
            Ok(_) => Err(Failure::Verdict),
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Failure::Previous(error.into())),
        }
    }
}

fn is_no_failure(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn head(call: Call, piece: &[u8], known: Option<u32>) -> [u8; HEAD_BYTES] {
    let checksum = known.unwrap_or_else(|| checksum(piece));
    Head { call, piece_bytes: piece.len() as u32, checksum }.to_bytes()
}

/// The bytes of the piece behind a head.
fn check_head(call: Call, receive: &Receive, head: &[u8; HEAD_BYTES]) -> Result<usize, Failure> {
    let room = receive.range.len();
    let fits = |n_bytes: usize| n_bytes <= room && n_bytes + receive.n_spare >= room;
    match Head::from_bytes(head) {
        None => Err(Failure::Garbled("it does not begin as a frame does")),
        Some(head) if head.call != call => Err(Failure::OutOfStep(head.call)),
        Some(head) if !fits(head.piece_bytes as usize) => Err(Failure::Garbled("its length is wrong")),
        Some(head) => Ok(head.piece_bytes as usize),
    }
}

struct Add<'a> {
    into: &'a mut [f32],
    from: &'a [f32],
}

impl Vectorized for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (into, from) in self.into.iter_mut().zip(self.from) {
            *into += from;
        }
    }
}
