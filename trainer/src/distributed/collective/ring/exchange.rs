//! One call on the ring: sends and receives at the same time, on one thread, until both are done.

use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write},
    ops::Range,
    time::Instant,
};

use kith_draw::{Vectorized, vectorized};
use kith_group::ring::{
    frame::{Call, HEAD_BYTES},
    judgment,
    passage::{Fault, Passage},
    plan::{PIECE_BYTES, RingPlan},
};
use rustix::event::{PollFd, PollFlags, poll};

use crate::distributed::world::{Board, Line, timespec};

/// Failures of a call.
#[derive(Debug)]
pub(super) enum Failure {
    /// Somebody was lost or stopped.
    Verdict,
    /// This rank noticed it.
    Own(judgment::Failure),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::Own(match fault {
            Fault::Garbled(why) => judgment::Failure::Garbled(why),
            Fault::OutOfStep(call) => judgment::Failure::OutOfStep(call),
        })
    }
}

fn previous(error: &io::Error) -> Failure {
    Failure::Own(judgment::Failure::Previous(error.to_string()))
}

fn next(error: &io::Error) -> Failure {
    Failure::Own(judgment::Failure::Next(error.to_string()))
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

/// The frame at hand in one direction.
struct Frame {
    /// Bytes done, its head included.
    n_bytes: usize,
    piece_bytes: usize,
    head: [u8; HEAD_BYTES],
}

impl Frame {
    fn new() -> Frame {
        Frame { n_bytes: 0, piece_bytes: 0, head: [0; HEAD_BYTES] }
    }

    fn is_whole(&self) -> bool {
        self.n_bytes == HEAD_BYTES + self.piece_bytes
    }
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
        let mut passage = Passage::new(call, plan);
        // The frame that is sent, once its piece is summed, and the one that arrives.
        let (mut sent, mut received) = (None, Frame::new());
        loop {
            let mut is_moving = false;
            if let Some(send) = passage.next_send() {
                let frame = sent.get_or_insert_with(|| {
                    if send.waits_for == 0 {
                        buffer.add_all(plan.summands, &send.range);
                    }
                    let piece_bytes = passage.n_bytes(send);
                    let head = passage.head(send, &buffer.at(&send.range)[..piece_bytes]);
                    Frame { n_bytes: 0, piece_bytes, head }
                });
                is_moving |= self.send(frame, buffer.at(&send.range))?;
                if frame.is_whole() {
                    sent = None;
                    passage.sent();
                }
            }
            if passage.next_receive().is_some() {
                is_moving |= self.receive(&mut passage, plan, &mut received, &mut buffer)?;
            }
            if is_moving {
                continue;
            }
            let (may_send, may_receive) = (passage.next_send().is_some(), passage.next_receive().is_some());
            let is_flushed = self.flush()?;
            if !passage.has_sends() && !may_receive && is_flushed {
                return Ok(());
            }
            self.wait(may_receive, may_send || !is_flushed, board, deadline)?;
        }
    }

    /// Sends what the kernel takes; whether it took something.
    fn send(&mut self, frame: &mut Frame, piece: &[u8]) -> Result<bool, Failure> {
        let piece = &piece[..frame.piece_bytes];
        let n = match frame.n_bytes.checked_sub(HEAD_BYTES) {
            None => self.next.write_vectored(&[IoSlice::new(&frame.head[frame.n_bytes..]), IoSlice::new(piece)]),
            Some(n_bytes) => self.next.write(&piece[n_bytes..]),
        };
        match n {
            Ok(n) => {
                self.sent_bytes += n as u64;
                frame.n_bytes += n;
                Ok(n > 0)
            }
            Err(error) if is_no_failure(&error) => Ok(false),
            Err(error) => Err(next(&error)),
        }
    }

    /// Sends the buffered bytes of an encrypted connection; returns whether none are left.
    fn flush(&mut self) -> Result<bool, Failure> {
        match self.next.flush() {
            Ok(()) => Ok(true),
            Err(error) if is_no_failure(&error) => Ok(false),
            Err(error) => Err(next(&error)),
        }
    }

    /// Takes what there is; whether there was something. A whole piece is checked, and added where it must be.
    fn receive(
        &mut self,
        passage: &mut Passage<'_>,
        plan: &RingPlan<'_>,
        frame: &mut Frame,
        buffer: &mut Buffer<'_>,
    ) -> Result<bool, Failure> {
        let Some(receive) = passage.next_receive() else { return Ok(false) };
        let room = buffer.at_mut(&receive.range);
        let scratch: &mut [u8] = bytemuck::cast_slice_mut(&mut self.scratch);
        let place = if receive.is_added { &mut scratch[..room.len()] } else { room };
        let n = match frame.n_bytes.checked_sub(HEAD_BYTES) {
            // Behind a piece whose length is not known is another frame.
            None if receive.n_spare > 0 => self.previous.read(&mut frame.head[frame.n_bytes..]),
            None => {
                let head = IoSliceMut::new(&mut frame.head[frame.n_bytes..]);
                self.previous.read_vectored(&mut [head, IoSliceMut::new(place)])
            }
            Some(n_bytes) => self.previous.read(&mut place[n_bytes..frame.piece_bytes]),
        };
        match n {
            Ok(0) => return Err(previous(&ErrorKind::UnexpectedEof.into())),
            Ok(n) => {
                // Known as soon as the head is there: one that is out of step may send less than is waited for.
                let had_head = frame.n_bytes >= HEAD_BYTES;
                frame.n_bytes += n;
                if !had_head {
                    if frame.n_bytes < HEAD_BYTES {
                        return Ok(true);
                    }
                    frame.piece_bytes = passage.check_head(receive, &frame.head)?;
                }
                if !frame.is_whole() {
                    return Ok(true);
                }
            }
            Err(error) if is_no_failure(&error) => return Ok(false),
            Err(error) => return Err(previous(&error)),
        }
        frame.n_bytes = 0;
        passage.arrived(&frame.head, &place[..frame.piece_bytes])?;
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
            return Err(Failure::Own(judgment::Failure::Deadline));
        }
        match poll(&mut fds, Some(&timespec(left))) {
            // A verdict ends only what cannot go on: a call whose last bytes are here already is whole.
            Ok(_) if fds[0].revents().is_empty() || fds[1..].iter().any(|fd| !fd.revents().is_empty()) => Ok(()),
            Ok(_) => Err(Failure::Verdict),
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(previous(&error.into())),
        }
    }
}

fn is_no_failure(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
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
