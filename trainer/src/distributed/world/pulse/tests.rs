//! A pulse without its thread: received messages, their order, and its own messages.

use std::{
    net::{TcpListener, TcpStream},
    time::Duration,
};

use super::*;
use crate::distributed::world::{Line, Member};

const RHYTHM: Rhythm = Rhythm { every: Duration::from_secs(1), deadline: Duration::from_secs(10) };
const LIMIT: Duration = Duration::from_secs(20);

fn board(rank: usize, n_ranks: usize) -> Arc<Board> {
    let member = |rank: usize| Member { rank, host: format!("host-{rank}"), ..Member::alone() };
    Arc::new(Board::new(rank, (0..n_ranks).map(member).collect()).unwrap())
}

/// Both ends of a line of the heartbeats: rank 0's, and the one of `rank`.
fn spokes(rank: usize) -> (Spoke, Spoke) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let guest = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let host = listener.accept().unwrap().0;
    (Spoke::new(rank, Line::plain(host)).unwrap(), Spoke::new(0, Line::plain(guest)).unwrap())
}

/// The heart of rank 0, and the other ends of its lines: those of ranks 1 and 2.
fn center() -> (Heart, Spoke, Spoke) {
    let ((first, one), (second, two)) = (spokes(1), spokes(2));
    (Heart::new(board(0, 3), vec![first, second], RHYTHM), one, two)
}

/// Listens until something is so.
#[track_caller]
fn listen_until(heart: &mut Heart, is_so: impl Fn(&Heart) -> bool) {
    let until = Instant::now() + LIMIT;
    while !is_so(heart) {
        assert!(Instant::now() < until, "it never was");
        heart.listen();
        thread::sleep(Duration::from_millis(1));
    }
}

/// All that comes on a line until its end.
fn rest(spoke: &mut Spoke) -> Vec<Message> {
    let (until, mut messages) = (Instant::now() + LIMIT, Vec::new());
    while spoke.closed.is_none() {
        assert!(Instant::now() < until, "the line stays open");
        messages.extend(spoke.receive::<Message>());
        thread::sleep(Duration::from_millis(1));
    }
    messages
}

fn error_of(heart: &Heart) -> (u8, String) {
    let error = heart.board.error(heart.board.verdict().expect("a verdict"));
    (error.code(), error.to_string())
}

fn stopped(rank: usize) -> Verdict {
    Verdict::Stopped { rank, code: 75, sentence: "of the test".to_owned() }
}

fn goodbye(n_collectives: u64) -> Message {
    Message::Goodbye(Entry { n_collectives, ..Entry::default() })
}

/// Effect of `kill -STOP` on rank 0: the others give it up and end; it wakes up to their messages.
#[test]
fn a_rank_0_that_paused_hears_why_the_others_ended() {
    let (host, mut guest) = spokes(1);
    guest.heard = Instant::now().checked_sub(2 * RHYTHM.deadline).unwrap();
    let mut one = Heart::new(board(1, 2), vec![], RHYTHM);
    one.spokes.push(guest);
    one.notice_silence();
    assert_eq!(error_of(&one).0, 75);
    one.say_goodbye();
    let mut zero = Heart::new(board(0, 2), vec![host], RHYTHM);
    listen_until(&mut zero, |zero| zero.board.verdict().is_some());
    let (code, sentence) = error_of(&zero);
    assert_eq!(code, 75);
    assert!(sentence.starts_with("rank 0 on host-0 was lost ") && sentence.ends_with("for 10 s"), "{sentence}");
    assert!(!zero.board.has_left(1), "it did not end well");
}

#[test]
fn a_verdict_stands_whether_it_comes_before_or_after_a_goodbye() {
    for is_verdict_first in [true, false] {
        let (mut heart, mut one, mut two) = center();
        if is_verdict_first {
            two.send(&Message::Verdict(stopped(2)));
            listen_until(&mut heart, |heart| heart.board.verdict().is_some());
            one.send(&goodbye(5));
        } else {
            one.send(&goodbye(5));
            listen_until(&mut heart, |heart| heart.board.has_left(1));
            assert!(heart.board.verdict().is_none(), "leaving is no verdict");
            two.send(&Message::Verdict(stopped(2)));
        }
        listen_until(&mut heart, |heart| heart.board.has_left(1) && heart.board.verdict().is_some());
        assert_eq!(error_of(&heart), (75, "rank 2 on host-2 stopped: of the test".to_owned()));
        assert_eq!(heart.board.entry(1).n_collectives, 5);
    }
}

/// A rank that says why all must stop and ends at once is not lost, however late rank 0 reads it.
#[test]
fn a_verdict_counts_before_the_end_of_the_line_that_it_came_on() {
    let (mut heart, one, mut two) = center();
    two.send(&Message::Verdict(stopped(2)));
    drop((one, two));
    thread::sleep(Duration::from_millis(50));
    listen_until(&mut heart, |heart| heart.board.verdict().is_some());
    assert_eq!(error_of(&heart).1, "rank 2 on host-2 stopped: of the test");
}

#[test]
fn only_a_rank_that_ended_well_says_goodbye() {
    let (host, mut guest) = spokes(1);
    let heart = Heart::new(board(0, 2), vec![host], RHYTHM);
    heart.board.enter_collective();
    heart.say_goodbye();
    assert!(matches!(&rest(&mut guest)[..], [Message::Goodbye(Entry { n_collectives: 1, .. })]));

    // Found by itself, received from another, sent to others.
    for way in 0..3 {
        let (mut host, guest) = spokes(1);
        let mut heart = Heart::new(board(1, 2), vec![guest], RHYTHM);
        match way {
            0 => heart.decide(stopped(1), None),
            1 => heart.decide(stopped(0), Some(0)),
            _ => heart.tell(stopped(1), None),
        }
        heart.say_goodbye();
        let said = rest(&mut host);
        assert!(!said.iter().any(|message| matches!(message, Message::Goodbye(_))), "{said:?}");
        assert_eq!(said.len(), usize::from(way != 1), "rank 0 knows what it said: {said:?}");
    }
}

#[test]
fn the_silence_of_others_while_this_process_paused_says_nothing() {
    let (mut heart, _one, _two) = center();
    let long_ago = Instant::now().checked_sub(2 * RHYTHM.deadline).unwrap();
    let fall_silent = |heart: &mut Heart| heart.spokes.iter_mut().for_each(|spoke| spoke.heard = long_ago);
    fall_silent(&mut heart);
    heart.waking.looked = long_ago;
    heart.forgive_own_pause();
    heart.notice_silence();
    assert!(heart.board.verdict().is_none());
    // It looked a moment ago: the others were silent.
    fall_silent(&mut heart);
    heart.forgive_own_pause();
    heart.notice_silence();
    assert!(error_of(&heart).1.ends_with("nothing was heard of it for 10 s"));
}
