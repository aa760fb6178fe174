//! Pieces of a collective from the previous rank, right and wrong: a rank takes those that it expects, and no others. The first three bytes
//! choose the call; then each piece has a byte that says what is wrong with it.

use kith_group::ring::{
    frame::{Call, HEAD_BYTES, Head, Kind, checksum},
    passage::{Fault, Passage},
    plan::RingPlan,
};

/// Bytes of the input, then zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> usize {
        self.take::<1>()[0].into()
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let n = N.min(self.0.len());
        bytes[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        bytes
    }
}

fn plan(input: &mut Input<'_>) -> (RingPlan<'static>, Kind, usize) {
    let n_ranks = 2 + input.byte() % 4;
    let rank = input.byte() % n_ranks;
    match input.byte() % 3 {
        0 => {
            let rows: Vec<usize> = (0..n_ranks).map(|_| input.byte() * 3).collect();
            let n_bytes = rows.iter().sum();
            (RingPlan::gather(rank, &rows), Kind::AllGather, n_bytes)
        }
        1 => {
            let n_bytes = input.byte() << 10;
            (RingPlan::broadcast(rank, n_ranks, n_bytes), Kind::Broadcast, n_bytes)
        }
        _ => {
            let lengths: Vec<Vec<usize>> = (0..n_ranks).map(|_| (0..n_ranks).map(|_| input.byte()).collect()).collect();
            let n_bytes = lengths.iter().flatten().sum();
            (RingPlan::all_to_all(rank, &lengths), Kind::AllToAll, n_bytes)
        }
    }
}

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (plan, kind, n_bytes) = plan(&mut input);
    let call = Call { number: 7, kind, n_bytes: n_bytes as u64 };
    let mut passage = Passage::new(call, &plan);
    loop {
        while let Some(send) = passage.next_send() {
            let piece = vec![0; passage.n_bytes(send)];
            assert!(piece.len() <= send.range.len());
            assert!(Head::from_bytes(&passage.head(send, &piece)).is_some_and(|head| head.call == call));
            passage.sent();
        }
        let Some(receive) = passage.next_receive() else { break };
        let mut piece = vec![input.byte() as u8; receive.range.len()];
        let right = Head { call, piece_bytes: piece.len() as u32, checksum: checksum(&piece) };
        let wrong = input.byte() % 8;
        let mut head = match wrong {
            1 => Head { call: Call { number: u64::from_le_bytes(input.take()), ..call }, ..right },
            2 => Head { piece_bytes: u32::from_le_bytes(input.take()), ..right },
            3 => Head { checksum: u32::from_le_bytes(input.take()), ..right },
            4 => Head { call: Call { kind: Kind::Barrier, ..call }, ..right },
            _ => right,
        }
        .to_bytes();
        match wrong {
            5 => head = input.take::<HEAD_BYTES>(),
            6 => head[input.byte() % HEAD_BYTES] ^= 1 << (input.byte() % 8),
            7 if !piece.is_empty() => {
                let place = input.byte() % piece.len();
                piece[place] ^= 1 << (input.byte() % 8);
            }
            _ => {}
        }
        let is_right =
            Head::from_bytes(&head) == Some(Head { call, piece_bytes: piece.len() as u32, checksum: checksum(&piece) });
        let taken = passage.check_head(receive, &head).and_then(|n_bytes| {
            assert!(n_bytes <= receive.range.len());
            passage.arrived(&head, &piece)
        });
        assert_eq!(taken.is_ok(), is_right, "{taken:?}");
        match taken {
            Ok(()) => {}
            Err(Fault::OutOfStep(other)) => return assert_ne!(other, call),
            Err(Fault::Garbled(_)) => return,
        }
    }
    assert!(!passage.has_sends(), "all pieces have arrived, and all are sent");
}
