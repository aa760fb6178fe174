//! Heartbeats: received messages, their order, and what a rank sends.

use super::*;

const RHYTHM: Rhythm = Rhythm { every: Duration::from_secs(1), deadline: Duration::from_secs(10) };

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn pulse(rank: usize, n_ranks: usize) -> Pulse {
    Pulse::new(rank, n_ranks, RHYTHM, 0, at(0))
}

fn stopped(rank: usize) -> Verdict {
    Verdict::Stopped { rank, code: 75, sentence: "of the test".to_owned() }
}

fn entry(n_collectives: u64) -> Entry {
    Entry { n_collectives, ..Entry::default() }
}

fn beat(n_collectives: u64, answers: u64) -> Message {
    Message::Beat { own: entry(n_collectives), answers }
}

fn send(to: usize, message: Message) -> Action {
    Action::Send { to, message }
}

/// The lost rank, and the sign of its loss.
fn lost(pulse: &Pulse) -> (usize, &str) {
    match pulse.verdict() {
        Some(Verdict::Lost { rank, why, .. }) => (*rank, why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn progress_travels_over_rank_0_to_all() {
    let (mut zero, mut two) = (pulse(0, 3), pulse(2, 3));
    assert_eq!(two.tick(entry(4), at(0)), [Action::Beat { to: 0, message: beat(4, 0) }]);
    assert_eq!(two.tick(entry(5), at(0)), [], "the next one is due later");
    assert_eq!(zero.receive(2, beat(4, 0), at(0)), []);
    let actions = zero.tick(entry(6), at(1));
    let board = Message::Board { entries: vec![entry(6), entry(0), entry(4)], number: 1 };
    assert_eq!(actions, [1, 2].map(|to| Action::Beat { to, message: board.clone() }));
    assert_eq!(two.receive(0, board, at(1)), []);
    assert_eq!(two.entries()[0], entry(6));
    assert_eq!(two.tick(entry(7), at(1)), [Action::Beat { to: 0, message: beat(7, 1) }], "it answers the heartbeat");
}

/// Fuzzing found this: the number of a heartbeat overflowed.
#[test]
fn rank_0_takes_no_progress_of_all_from_others() {
    let mut zero = pulse(0, 2);
    assert_eq!(zero.receive(1, Message::Board { entries: vec![entry(9); 2], number: u64::MAX }, at(0)), []);
    let board = Message::Board { entries: vec![entry(1), entry(0)], number: 1 };
    assert_eq!(zero.tick(entry(1), at(0)), [Action::Beat { to: 1, message: board }]);
}

/// Effect of `kill -STOP` on rank 0: the others give it up and end; it wakes up to their messages.
#[test]
fn a_rank_0_that_paused_hears_why_the_others_ended() {
    let (mut zero, mut one) = (pulse(0, 2), pulse(1, 2));
    // Rank 1 wakes up every second, and hears nothing.
    for second in 1..=11 {
        one.wake(at(second));
        let actions = one.tick(entry(0), at(second));
        assert_eq!(actions.len(), if second == 11 { 3 } else { 1 }, "{actions:?}");
    }
    assert_eq!(lost(&one), (0, "nothing was heard of it for 10 s"));
    let verdict = one.verdict().cloned().unwrap();
    assert_eq!(one.leave(entry(0)), [], "it did not end well");
    zero.wake(at(40));
    assert_eq!(zero.receive(1, Message::Verdict(verdict.clone()), at(40))[0], Action::Decide(verdict.clone()));
    assert_eq!(zero.closed(1, None, at(40)), []);
    assert_eq!(zero.verdict(), Some(&verdict));
}

#[test]
fn a_verdict_stands_whether_it_comes_before_or_after_a_goodbye() {
    for is_verdict_first in [true, false] {
        let mut zero = pulse(0, 3);
        let verdict = |zero: &mut Pulse| zero.receive(2, Message::Verdict(stopped(2)), at(1));
        if is_verdict_first {
            assert_eq!(
                verdict(&mut zero),
                [
                    Action::Decide(stopped(2)),
                    send(1, Message::Verdict(stopped(2))),
                    send(2, Message::Verdict(stopped(2)))
                ]
            );
        }
        let beats = zero.receive(1, Message::Goodbye(entry(5)), at(1));
        assert_eq!(beats.len(), 2, "all others learn at once that it left");
        assert_eq!(zero.verdict().is_some(), is_verdict_first, "leaving is no verdict");
        assert_eq!(zero.closed(1, None, at(1)), [], "it has left");
        if !is_verdict_first {
            assert_eq!(verdict(&mut zero).len(), 2, "itself and rank 2");
        }
        assert_eq!((zero.verdict(), zero.entries()[1]), (Some(&stopped(2)), Entry { has_left: true, ..entry(5) }));
    }
}

#[test]
fn the_first_verdict_stands() {
    let mut zero = pulse(0, 3);
    zero.receive(2, Message::Verdict(stopped(2)), at(1));
    assert_eq!(zero.receive(1, Message::Verdict(stopped(1)), at(1)), []);
    assert_eq!(zero.closed(1, Some("reset".to_owned()), at(1)), []);
    assert_eq!(zero.verdict(), Some(&stopped(2)));
}

#[test]
fn a_connection_that_ends_without_a_word_is_a_lost_rank() {
    let mut zero = pulse(0, 3);
    zero.receive(2, beat(9, 0), at(1));
    let verdict = Verdict::Lost { rank: 2, at: entry(9), why: "its process ended without a word".to_owned() };
    assert_eq!(
        zero.closed(2, None, at(2)),
        [Action::Decide(verdict.clone()), send(1, Message::Verdict(verdict))],
        "nothing more is sent to rank 2"
    );
    let mut one = pulse(1, 3);
    one.closed(0, Some("reset".to_owned()), at(2));
    assert_eq!(lost(&one), (0, "its connection broke (reset)"));
}

#[test]
fn only_a_rank_that_ended_well_says_goodbye() {
    assert_eq!(pulse(0, 2).leave(entry(1)), [send(1, Message::Goodbye(entry(1)))]);
    // Found by itself, received from rank 0, told to rank 0.
    for way in 0..3 {
        let mut one = pulse(1, 2);
        let actions = match way {
            0 => one.closed(0, None, at(1)),
            1 => one.receive(0, Message::Verdict(stopped(0)), at(1)),
            _ => one.tell(stopped(1), at(1)),
        };
        let sent = actions.iter().filter(|action| matches!(action, Action::Send { .. })).count();
        assert_eq!(sent, usize::from(way == 2), "{actions:?}");
        assert_eq!(one.leave(entry(1)), []);
    }
    // Its own verdict counts once rank 0 has sent it to all: another may have been first.
    let mut one = pulse(1, 2);
    one.tell(stopped(1), at(1));
    assert_eq!(one.verdict(), None);
}

#[test]
fn the_silence_of_others_while_this_process_paused_proves_nothing() {
    let mut zero = pulse(0, 3);
    zero.wake(at(20));
    zero.tick(entry(0), at(20));
    assert_eq!(zero.verdict(), None);
    // It looks every second: the others are silent.
    for second in 21..=31 {
        zero.wake(at(second));
        zero.tick(entry(0), at(second));
    }
    assert_eq!(lost(&zero), (1, "nothing was heard of it for 10 s"));
}

#[test]
fn a_rank_that_left_does_not_hide_a_silent_one() {
    let mut zero = pulse(0, 3);
    // The end of rank 1's connection never comes.
    zero.receive(1, Message::Goodbye(entry(3)), at(0));
    for second in 1..=11 {
        zero.wake(at(second));
        zero.tick(entry(0), at(second));
    }
    assert_eq!(lost(&zero), (2, "nothing was heard of it for 10 s"));
}

#[test]
fn a_process_that_does_not_notice_is_called_after_a_while() {
    let mut one = pulse(1, 2);
    one.receive(0, Message::Verdict(stopped(0)), at(5));
    assert!(!one.tick(entry(0), at(6)).contains(&Action::Call));
    assert_eq!(one.next_tick(), at(7));
    assert!(one.tick(entry(0), at(7)).contains(&Action::Call));
    assert!(!one.tick(entry(0), at(8)).contains(&Action::Call), "once");
}

#[test]
fn a_second_process_is_refused_once_the_first_answers() {
    let mut zero = pulse(0, 3);
    zero.tick(entry(0), at(1));
    zero.receive(1, beat(0, 1), at(1));
    assert_eq!(zero.holder(1, at(2)), Holder::InDoubt, "rank 1 may have stopped since");
    zero.tick(entry(0), at(2));
    zero.receive(1, beat(0, 1), at(4));
    assert_eq!(zero.holder(1, at(4)), Holder::InDoubt, "that was sent before");
    zero.receive(1, beat(0, 2), at(5));
    assert_eq!(zero.holder(1, at(5)), Holder::Alive);
    assert_eq!(zero.holder(0, at(5)), Holder::Alive, "rank 0 itself");
    zero.receive(1, Message::Goodbye(entry(0)), at(6));
    assert_eq!(zero.holder(1, at(6)), Holder::InDoubt, "it is about to end");
    zero.closed(2, None, at(7));
    assert_eq!(zero.holder(0, at(7)), Holder::InDoubt, "all are about to end");
}
