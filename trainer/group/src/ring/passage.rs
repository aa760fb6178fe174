//! One call on the ring, as one rank sees it: which piece may be sent next, and whether what arrives is what was
//! expected. The bytes stay with the caller.

use super::{
    frame::{Call, HEAD_BYTES, Head, checksum},
    plan::{Receive, RingPlan, Send},
};

/// Fault of a frame that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It failed its checks.
    Garbled(&'static str),
    /// The previous rank is in another call.
    OutOfStep(Call),
}

/// Progress of a call.
#[derive(Debug)]
pub struct Passage<'p> {
    call: Call,
    plan: &'p RingPlan<'p>,
    n_sent: usize,
    arrived: Vec<Arrived>,
}

/// A piece that arrived, for when it is sent on.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    n_bytes: usize,
    checksum: u32,
}

impl<'p> Passage<'p> {
    /// A call that carries out a plan.
    pub fn new(call: Call, plan: &'p RingPlan<'p>) -> Passage<'p> {
        Passage { call, plan, n_sent: 0, arrived: Vec::with_capacity(plan.receives.len()) }
    }

    /// The piece to send next, if it may be sent by now.
    pub fn next_send(&self) -> Option<&'p Send> {
        self.plan.sends.get(self.n_sent).filter(|send| send.waits_for <= self.arrived.len())
    }

    /// True if pieces are left to send, now or later.
    pub fn has_sends(&self) -> bool {
        self.n_sent < self.plan.sends.len()
    }

    /// The piece that must arrive next.
    pub fn next_receive(&self) -> Option<&'p Receive> {
        self.plan.receives.get(self.arrived.len())
    }

    /// Bytes of a piece to send: a piece that is sent on may have arrived shorter than its range.
    pub fn n_bytes(&self, send: &Send) -> usize {
        self.known(send).map_or(send.range.len(), |known| known.n_bytes)
    }

    /// The head of a piece to send.
    pub fn head(&self, send: &Send, piece: &[u8]) -> [u8; HEAD_BYTES] {
        let checksum = self.known(send).map_or_else(|| checksum(piece), |known| known.checksum);
        Head { call: self.call, piece_bytes: piece.len() as u32, checksum }.to_bytes()
    }

    fn known(&self, send: &Send) -> Option<Arrived> {
        send.is_passed_on.then(|| self.arrived[send.waits_for - 1])
    }

    /// The next piece is sent.
    pub fn sent(&mut self) {
        self.n_sent += 1;
    }

    /// Bytes of the piece behind a head that arrived.
    pub fn check_head(&self, receive: &Receive, head: &[u8; HEAD_BYTES]) -> Result<usize, Fault> {
        let room = receive.range.len();
        let fits = |n_bytes: usize| n_bytes <= room && n_bytes + receive.n_spare >= room;
        match Head::from_bytes(head) {
            None => Err(Fault::Garbled("it does not begin as a frame does")),
            Some(head) if head.call != self.call => Err(Fault::OutOfStep(head.call)),
            Some(head) if !fits(head.piece_bytes as usize) => Err(Fault::Garbled("its length is wrong")),
            Some(head) => Ok(head.piece_bytes as usize),
        }
    }

    /// The next piece arrived whole, behind this head.
    pub fn arrived(&mut self, head: &[u8; HEAD_BYTES], piece: &[u8]) -> Result<(), Fault> {
        let checksum = checksum(piece);
        if Head::from_bytes(head).is_none_or(|head| head.checksum != checksum) {
            return Err(Fault::Garbled("its checksum is wrong"));
        }
        self.arrived.push(Arrived { n_bytes: piece.len(), checksum });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::frame::Kind;

    const CALL: Call = Call { number: 4, kind: Kind::Share, n_bytes: 9 };

    /// The first frame of rank 0 in a gather of rows of 4 bytes.
    fn frame(call: Call, piece: &[u8; 4]) -> [u8; HEAD_BYTES] {
        let plan = RingPlan::gather(0, &[4; 3]);
        let passage = Passage::new(call, &plan);
        passage.head(passage.next_send().unwrap(), piece)
    }

    #[test]
    fn a_piece_is_sent_on_once_it_has_arrived() {
        let plan = RingPlan::gather(1, &[4; 3]);
        let mut passage = Passage::new(CALL, &plan);
        assert_eq!(passage.next_send().unwrap().range, 4..8, "its own row");
        passage.sent();
        assert_eq!((passage.next_send(), passage.has_sends()), (None, true));
        let receive = passage.next_receive().unwrap();
        let head = frame(CALL, b"abcd");
        assert_eq!((receive.range.clone(), passage.check_head(receive, &head)), (0..4, Ok(4)));
        passage.arrived(&head, b"abcd").unwrap();
        let send = passage.next_send().unwrap();
        assert_eq!((send.range.clone(), passage.n_bytes(send), passage.head(send, b"abcd")), (0..4, 4, head));
        passage.sent();
        assert_eq!((passage.next_send(), passage.has_sends()), (None, false));
        assert_eq!(passage.next_receive().unwrap().range, 8..12);
    }

    #[test]
    fn what_was_not_expected_is_named() {
        let plan = RingPlan::gather(1, &[4; 3]);
        let mut passage = Passage::new(CALL, &plan);
        let receive = passage.next_receive().unwrap();
        let garbled = |why| Err(Fault::Garbled(why));
        let other = Call { number: 5, ..CALL };
        assert_eq!(passage.check_head(receive, &frame(other, b"abcd")), Err(Fault::OutOfStep(other)));
        assert_eq!(passage.check_head(receive, &[0; HEAD_BYTES]), garbled("it does not begin as a frame does"));
        let long = Head { call: CALL, piece_bytes: 5, checksum: 0 }.to_bytes();
        assert_eq!(passage.check_head(receive, &long), garbled("its length is wrong"));
        let short = Head { call: CALL, piece_bytes: 3, checksum: 0 }.to_bytes();
        assert_eq!(passage.check_head(receive, &short), garbled("its length is wrong"));
        assert_eq!(passage.arrived(&frame(CALL, b"abcd"), b"abce"), Err(Fault::Garbled("its checksum is wrong")));
        assert_eq!(passage.next_send().map(|send| send.waits_for), Some(0), "nothing has arrived");
    }
}
