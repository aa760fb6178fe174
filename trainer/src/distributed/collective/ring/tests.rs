//! The contract on a ring of threads, and failures if a neighbor violates it.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use kith_group::{
    member::Member,
    progress::{Entry, Verdict},
    ring::frame::{Call, HEAD_BYTES, Head, Kind, checksum},
};
use tch::{Device, Tensor};

use super::Ring;
use crate::distributed::{
    collective::{
        Alone, Collective, Text,
        contract::{check, on_all_ranks},
    },
    world::{Board, Line, WorldError, encrypted_lines},
};

const LIMIT: Duration = Duration::from_secs(60);
/// For those who wait for somebody who has failed: there is no pulse here to tell them.
const SHORT: Duration = Duration::from_millis(500);

fn board(rank: usize, n_ranks: usize) -> Arc<Board> {
    let member = |rank: usize| Member {
        rank,
        host: format!("host-{rank}"),
        address: String::new(),
        pid: 0,
        device: "CPU".to_owned(),
        instruction_set: String::new(),
        machine: String::new(),
        gpu: None,
        shares_gpu: false,
    };
    Arc::new(Board::new(rank, (0..n_ranks).map(member).collect()).unwrap())
}

/// The two ends of a connection: who sends, who receives.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sends = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (sends, listener.accept().unwrap().0)
}

fn plain_lines() -> (Line, Line) {
    let (sends, receives) = connection();
    (Line::plain(sends), Line::plain(receives))
}

/// A ring without a pulse.
fn ring(n_ranks: usize, limit: Duration) -> Vec<Ring> {
    ring_of(n_ranks, limit, plain_lines)
}

fn ring_of(n_ranks: usize, limit: Duration, lines: impl Fn() -> (Line, Line)) -> Vec<Ring> {
    let (next, mut previous): (Vec<Line>, Vec<Line>) = (0..n_ranks).map(|_| lines()).unzip();
    previous.rotate_right(1);
    let ranks = next.into_iter().zip(previous).enumerate();
    ranks.map(|(rank, (next, previous))| Ring::new(previous, next, board(rank, n_ranks), limit).unwrap()).collect()
}

#[test]
fn one_rank_keeps_the_contract() {
    check(1, Device::Cpu, |_| Box::new(Alone));
}

#[test]
fn rings_keep_the_contract() {
    for n_ranks in 2..=6 {
        let ranks: Vec<_> = ring(n_ranks, LIMIT).into_iter().map(|rank| Mutex::new(Some(rank))).collect();
        check(n_ranks, Device::Cpu, |rank| Box::new(ranks[rank].lock().unwrap().take().unwrap()));
    }
}

/// A ring with the trait's own fold, which NCCL uses.
#[derive(Debug)]
struct Gathering(Ring);

impl Collective for Gathering {
    fn all_reduce(&mut self, values: &mut Tensor) -> Result<(), WorldError> {
        self.0.all_reduce(values)
    }

    fn all_gather(&mut self, own: &Tensor) -> Result<Tensor, WorldError> {
        self.0.all_gather(own)
    }

    fn share(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, WorldError> {
        self.0.share(own)
    }

    fn all_to_all(&mut self, own: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, WorldError> {
        self.0.all_to_all(own)
    }

    fn broadcast(&mut self, bytes: &mut Vec<u8>) -> Result<(), WorldError> {
        self.0.broadcast(bytes)
    }

    fn barrier(&mut self) -> Result<(), WorldError> {
        self.0.barrier()
    }

    fn sent_bytes(&self) -> u64 {
        self.0.sent_bytes()
    }
}

#[test]
fn folds_of_gathered_tensors_keep_the_contract() {
    let ranks: Vec<_> = ring(3, LIMIT).into_iter().map(|rank| Mutex::new(Some(rank))).collect();
    check(3, Device::Cpu, |rank| Box::new(Gathering(ranks[rank].lock().unwrap().take().unwrap())));
}

#[test]
fn encrypted_rings_keep_the_contract() {
    for n_ranks in [2, 3] {
        let ranks: Vec<_> =
            ring_of(n_ranks, LIMIT, encrypted_lines).into_iter().map(|rank| Mutex::new(Some(rank))).collect();
        check(n_ranks, Device::Cpu, |rank| Box::new(ranks[rank].lock().unwrap().take().unwrap()));
    }
}

/// A call ends when all its bytes are on their way, and not when the line has taken them: a rank may be idle for long after.
#[test]
fn a_call_on_an_encrypted_ring_sends_all_its_bytes() {
    let n_bytes = 32 << 20;
    let ranks: Vec<_> =
        ring_of(2, Duration::from_secs(20), encrypted_lines).into_iter().map(|rank| Mutex::new(Some(rank))).collect();
    let received = std::sync::Barrier::new(2);
    let lengths = on_all_ranks(2, |rank| {
        let mut ring = ranks[rank].lock().unwrap().take().unwrap();
        // The kernel holds less than that for a rank that does not read yet.
        thread::sleep(Duration::from_millis(if rank == 1 { 300 } else { 0 }));
        let mut bytes = if rank == 0 { vec![7; n_bytes] } else { Vec::new() };
        let outcome = ring.broadcast(&mut bytes);
        received.wait();
        outcome.map(|()| bytes.len()).map_err(|error| error.to_string())
    });
    assert_eq!(lengths, vec![Ok(n_bytes); 2]);
}

/// Ranks send a partial sum and pass on the result; the last two send one of the two.
#[test]
fn a_fold_sends_at_most_two_tensors_for_any_number_of_slices() {
    let (n, n_ranks) = (1_000_003, 4);
    let ranks: Vec<_> = ring(n_ranks, LIMIT).into_iter().map(|rank| Mutex::new(Some(rank))).collect();
    let sent = on_all_ranks(n_ranks, |rank| {
        let mut ring = ranks[rank].lock().unwrap().take().unwrap();
        // The last rank comes last: the connections to it are full before.
        thread::sleep(Duration::from_millis(200 * rank as u64));
        let own = vec![Tensor::from_slice(&vec![1f32; n]), Tensor::from_slice(&vec![2f32; n])];
        let sum = ring.fold(own, &[2; 4]).unwrap();
        assert!(Vec::<f32>::try_from(sum).unwrap() == vec![12.0; n]);
        (ring.sent_bytes(), ring) // A connection that closes would be news to others.
    });
    for ((sent, _), times) in sent.into_iter().zip([2, 2, 1, 1]) {
        let least = times * 4 * n as u64;
        assert!((least..=least + least / 100).contains(&sent), "{sent} bytes for {least}");
    }
}

/// Rank 0's slices are added once, even if its connection takes no byte of the sum at first.
#[test]
fn a_full_connection_changes_no_fold() {
    let ((to_rank, previous), (next, mut from_rank)) = (connection(), connection());
    let mut ring = Ring::new(Line::plain(previous), Line::plain(next), board(0, 2), LIMIT).unwrap();
    ring.patience = Duration::from_millis(50);
    let mut n_before = 0;
    while let Ok(n) = ring.links.next.write(&[0; 1 << 16]) {
        n_before += n;
    }
    let mut frames = vec![0; n_before + HEAD_BYTES + (32 << 10)];
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            from_rank.read_exact(&mut frames).unwrap();
            drop((to_rank, from_rank)); // The fold ends.
        });
        let own = [1f32, 2.0].map(|value| Tensor::from_slice(&vec![value; 10_000]));
        ring.fold(own.into(), &[2, 2]).unwrap_err();
    });
    assert!(frames[n_before + HEAD_BYTES..].chunks(4).all(|bytes| bytes == 3f32.to_le_bytes()));
}

/// Ranks that do different things; the errors of all, by rank.
fn errors(
    n_ranks: usize,
    limit: Duration,
    act: impl Fn(usize, &mut Ring) -> Result<(), WorldError> + Sync,
) -> Vec<String> {
    let ranks: Vec<_> = ring(n_ranks, limit).into_iter().map(|rank| Mutex::new(Some(rank))).collect();
    let told = on_all_ranks(n_ranks, |rank| {
        let mut ring = ranks[rank].lock().unwrap().take().unwrap();
        let told = act(rank, &mut ring).map_or_else(|error| format!("{}: {error}", error.code()), |()| String::new());
        (told, ring) // A connection that closes would be news to others.
    });
    told.into_iter().map(|(told, _)| told).collect()
}

#[test]
fn ranks_that_make_other_calls_are_told_so() {
    let other_kinds = errors(2, SHORT, |rank, ring| match rank {
        0 => ring.barrier(),
        _ => ring.all_reduce(&mut Tensor::from_slice(&[1f32; 100_000])),
    });
    assert_eq!(
        other_kinds[0],
        "70: rank 1 on host-1 is in collective 1, an all-reduce of 100000 numbers and rank 0 on host-0 in collective 1, \
         a barrier, but all ranks must make the same calls in the same order: this is a bug"
    );
    let other_lengths = errors(2, SHORT, |rank, ring| {
        ring.barrier()?;
        ring.all_reduce(&mut Tensor::from_slice(&vec![1f32; 10 + rank]))
    });
    let sentence =
        "collective 2, an all-reduce of 11 numbers and rank 0 on host-0 in collective 2, an all-reduce of 10";
    assert!(other_lengths[0].contains(sentence), "{}", other_lengths[0]);
    assert!(other_lengths[1].starts_with("70: "), "{}", other_lengths[1]);
    let folded = errors(2, SHORT, |rank, ring| match rank {
        0 => ring.all_reduce(&mut Tensor::from_slice(&[1f32; 100_000])),
        _ => ring.fold(vec![Tensor::from_slice(&[1f32; 100_000])], &[1, 1]).map(drop),
    });
    assert!(folded[1].contains("rank 1 on host-1 in collective 1, a fold of 100000 numbers"), "{}", folded[1]);
    let behind = errors(3, SHORT, |rank, ring| {
        if rank == 1 {
            ring.barrier()?;
        }
        ring.share(b"abc").map(drop)
    });
    assert!(behind[2].contains("rank 1 on host-1 is in collective 1, a barrier"), "{}", behind[2]);
}

/// Rank 1 of 2 in an all-reduce of 3 numbers, whose neighbor is a script.
fn beside(script: impl FnOnce(&mut TcpStream, &mut TcpStream) + Send, limit: Duration) -> (String, Ring) {
    in_call(script, limit, |ring| ring.all_reduce(&mut Tensor::from_slice(&[1f32; 3])))
}

/// Rank 1 of 2 in a call that fails, whose neighbor is a script.
fn in_call(
    script: impl FnOnce(&mut TcpStream, &mut TcpStream) + Send,
    limit: Duration,
    call: impl FnOnce(&mut Ring) -> Result<(), WorldError>,
) -> (String, Ring) {
    let ((mut to_rank, previous), (next, mut from_rank)) = (connection(), connection());
    let mut ring = Ring::new(Line::plain(previous), Line::plain(next), board(1, 2), limit).unwrap();
    ring.patience = Duration::from_millis(50);
    let error = thread::scope(|scope| {
        scope.spawn(|| script(&mut to_rank, &mut from_rank));
        call(&mut ring).unwrap_err()
    });
    (format!("{}: {error}", error.code()), ring)
}

fn frame(piece: &[u8]) -> Vec<u8> {
    let call = Call { number: 1, kind: Kind::AllReduce, n_bytes: 12 };
    let head = Head { call, piece_bytes: piece.len() as u32, checksum: checksum(piece) };
    [&head.to_bytes()[..], piece].concat()
}

#[test]
fn what_arrives_garbled_is_named() {
    let piece = [7; 12];
    let mut flipped_piece = frame(&piece);
    flipped_piece[HEAD_BYTES + 5] ^= 1;
    let mut flipped_head = frame(&piece);
    flipped_head[9] ^= 64;
    for (bytes, words) in [
        (flipped_piece, "arrived garbled: its checksum is wrong"),
        (flipped_head, "arrived garbled: it does not begin as a frame does"),
        (vec![0; 200], "arrived garbled: it does not begin as a frame does"),
        (frame(&[7; 8]), "arrived garbled: its length is wrong"),
    ] {
        let (error, mut ring) = beside(
            |to_rank, from_rank| {
                to_rank.write_all(&bytes).unwrap();
                from_rank.read_exact(&mut [0; HEAD_BYTES]).unwrap();
            },
            LIMIT,
        );
        assert!(error.starts_with("75: rank 0 on host-0 was lost") && error.contains(words), "{error}");
        // The ring stays broken.
        assert_eq!(format!("75: {}", ring.barrier().unwrap_err()), error);
        drop(ring);
    }
}

#[test]
fn a_garbled_piece_of_a_fold_is_named() {
    let n = 10_000;
    let piece = vec![0; 32 << 10];
    let call = Call { number: 1, kind: Kind::Fold, n_bytes: 4 * n as u64 };
    let head = Head { call, piece_bytes: piece.len() as u32, checksum: checksum(&piece) };
    let mut bytes = [&head.to_bytes()[..], &piece].concat();
    bytes[HEAD_BYTES + 16_000] ^= 1;
    let (error, _) = in_call(
        |to_rank, _| to_rank.write_all(&bytes).unwrap(),
        LIMIT,
        |ring| ring.fold(vec![Tensor::from_slice(&vec![1f32; n])], &[1, 1]).map(drop),
    );
    let words = "what it sent in collective 1, a fold of 10000 numbers arrived garbled: its checksum is wrong";
    assert!(error.starts_with("75: rank 0 on host-0 was lost") && error.contains(words), "{error}");
}

/// A text may be shorter than its room, and no piece may be longer, or shorter than its numbers.
#[test]
fn a_row_with_a_text_of_a_wrong_length_is_named() {
    let call = |kind| Call { number: 1, kind, n_bytes: 12 };
    let row = |piece: &[u8]| {
        let head = Head { call: call(Kind::Fold), piece_bytes: piece.len() as u32, checksum: checksum(piece) };
        [&head.to_bytes()[..], piece].concat()
    };
    let garbled = "75: rank 0 on host-0 was lost";
    for (bytes, start, words) in [
        (row(&[7; 15]), garbled, "arrived garbled: its length is wrong"),
        (row(&[7; 25]), garbled, "arrived garbled: its length is wrong"),
        (row(&[[7; 12], [255; 12]].concat()), "70: ", "rank 0 sent a malformed length of a text"),
    ] {
        let (error, _) = in_call(
            |to_rank, from_rank| {
                to_rank.write_all(&bytes).unwrap();
                from_rank.read_exact(&mut [0; HEAD_BYTES]).unwrap();
            },
            LIMIT,
            |ring| {
                let text = Text { own: b"12345678", n_most: 8 };
                ring.fold_with(vec![Tensor::from_slice(&[1f32; 3])], &[1, 1], text).map(drop)
            },
        );
        assert!(error.starts_with(start) && error.contains(words), "{error}");
    }
}

#[test]
fn a_truncated_frame_is_a_broken_connection() {
    for n_bytes in [0, 3, HEAD_BYTES, HEAD_BYTES + 11] {
        let (error, _) = beside(
            |to_rank, _| {
                to_rank.write_all(&frame(&[7; 12])[..n_bytes]).unwrap();
                to_rank.shutdown(std::net::Shutdown::Both).unwrap();
            },
            LIMIT,
        );
        assert!(error.starts_with("75: rank 0 on host-0 was lost"), "{error}");
        assert!(error.contains("its connection to rank 1 broke"), "{error}");
    }
}

#[test]
fn nobody_waits_beyond_the_deadline() {
    let started = Instant::now();
    let limit = Duration::from_millis(300);
    let errors = errors(3, limit, |rank, ring| {
        if rank == 1 {
            thread::sleep(Duration::from_secs(1));
            return Ok(());
        }
        ring.barrier()
    });
    assert!(started.elapsed() < Duration::from_secs(3));
    for (rank, named) in [(0, 2), (2, 1)] {
        let words =
            format!("75: rank {named} on host-{named} was lost at step 0, in phase start: its heart beats, but ");
        assert!(errors[rank].starts_with(&words), "{}", errors[rank]);
        assert!(errors[rank].ends_with("has waited 0.3 s in collective 1, a barrier"), "{}", errors[rank]);
    }
}

/// The error of rank 1 of 2 in collective 1, whose neighbor closes its lines after `before` and does `after` meanwhile.
fn closed(patience: Duration, before: impl FnOnce(&Board), after: impl FnOnce(&Board) + Send) -> String {
    let ((to_rank, previous), (next, from_rank)) = (connection(), connection());
    let board = board(1, 2);
    let mut ring = Ring::new(Line::plain(previous), Line::plain(next), board.clone(), LIMIT).unwrap();
    ring.patience = patience;
    before(&board);
    drop((to_rank, from_rank));
    thread::scope(|scope| {
        scope.spawn(|| after(&board));
        let error = ring.all_reduce(&mut Tensor::from_slice(&[1f32; 3])).unwrap_err();
        format!("{}: {error}", error.code())
    })
}

fn leave_after(n_collectives: u64) -> impl Fn(&Board) {
    move |board: &Board| board.publish(&[Entry { n_collectives, has_left: true, ..Entry::default() }, Entry::default()])
}

fn lost_rank_0() -> Verdict {
    Verdict::Lost { rank: 0, at: Entry::default(), why: "of the test".to_owned() }
}

#[test]
fn a_leaving_that_is_seen_before_its_verdict_is_no_bug() {
    let patience = Duration::from_secs(20);
    let verdict_last = closed(patience, leave_after(0), |board| {
        thread::sleep(Duration::from_millis(300));
        board.decide(lost_rank_0());
    });
    let verdict_first = closed(
        patience,
        |board| {
            board.decide(lost_rank_0());
        },
        leave_after(0),
    );
    for error in [verdict_last, verdict_first] {
        assert_eq!(error, "75: rank 0 on host-0 was lost at step 0, in phase start: of the test");
    }
}

#[test]
fn a_rank_that_left_well_is_a_bug_only_where_it_never_entered_the_collective() {
    let patience = Duration::from_millis(50);
    let entered = closed(patience, leave_after(1), |_| {});
    assert!(entered.starts_with("75: rank 0 on host-0 was lost at step 0"), "{entered}");
    assert!(entered.contains("its connection to rank 1 broke in collective 1"), "{entered}");
    let skipped = closed(patience, leave_after(0), |_| {});
    assert_eq!(
        skipped,
        "70: rank 0 on host-0 left after collective 0 while rank 1 on host-1 was in collective 1: this is a bug"
    );
}
