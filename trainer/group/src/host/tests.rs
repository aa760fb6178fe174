//! Joining, as rank 0 sees it.

use super::*;
use crate::{limits::Rhythm, progress::Entry};

const LIMITS: JoinLimits = JoinLimits {
    join: Duration::from_secs(60),
    rhythm: Rhythm { every: Duration::from_secs(1), deadline: Duration::from_secs(10) },
};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn hello(rank: usize, n_ranks: usize) -> Hello {
    let member = Member { rank, host: format!("host-{rank}"), ..Member::default() };
    Hello { n_ranks, member, ..Hello::default() }
}

fn host(n_ranks: usize) -> Host {
    Host::new(hello(0, n_ranks), ("abc".to_owned(), "host-0:9".to_owned()), LIMITS, at(0))
}

fn answers(answers: u64) -> Message {
    Message::Beat { own: Entry::default(), answers }
}

#[test]
fn all_are_told_who_is_where_once_the_last_has_come() {
    let mut host = host(3);
    assert_eq!(host.arrive(&hello(2, 3), at(1)), [Action::Seat { rank: 2 }]);
    let actions = host.tick(&[], at(1));
    assert_eq!(actions, [Action::Beat { to: 2, answer: Answer::Wait(1) }]);
    assert_eq!(host.next_tick(), at(2));
    let members: Vec<Member> = (0..3).map(|rank| hello(rank, 3).member).collect();
    let answer = Answer::Welcome { session: "abc".to_owned(), members: members.clone() };
    assert_eq!(
        host.arrive(&hello(1, 3), at(2)),
        [
            Action::Seat { rank: 1 },
            Action::Tell { to: 1, answer: answer.clone() },
            Action::Tell { to: 2, answer },
            Action::End(End::Complete { members, number: 1 })
        ]
    );
}

#[test]
fn a_second_process_waits_until_the_first_is_gone_or_alive() {
    let mut host = host(3);
    host.arrive(&hello(1, 3), at(0));
    let is_sent_away_for_now = |actions: &[Action]| matches!(actions, [Action::SendAway(Answer::Later(sentence))] if sentence.starts_with("a second rank 1 came"));
    assert!(is_sent_away_for_now(&host.arrive(&hello(1, 3), at(1))));
    // The first answers what was sent since.
    host.tick(&[], at(1));
    host.receive(1, &answers(1), at(1));
    let actions = host.arrive(&hello(1, 3), at(2));
    assert!(matches!(&actions[..], [Action::SendAway(Answer::Taken(_)), Action::Remark(_)]), "{actions:?}");
    // Or it is gone.
    assert_eq!(host.closed(1), [Action::Drop { rank: 1 }]);
    assert_eq!(host.arrive(&hello(1, 3), at(3)), [Action::Seat { rank: 1 }]);
    assert!(is_sent_away_for_now(&host.arrive(&hello(1, 3), at(3))), "the contest begins anew");
    // Rank 0 is there.
    assert!(matches!(&host.arrive(&hello(0, 3), at(3))[..], [Action::SendAway(Answer::Taken(_)), ..]));
}

#[test]
fn a_silent_rank_makes_room_and_a_pause_of_this_process_is_no_silence() {
    let mut host = host(3);
    host.arrive(&hello(1, 3), at(0));
    host.wake(at(30));
    assert!(!host.tick(&[], at(30)).contains(&Action::Drop { rank: 1 }));
    for second in 31..=40 {
        host.wake(at(second));
        assert!(!host.tick(&[], at(second)).contains(&Action::Drop { rank: 1 }));
    }
    host.wake(at(41));
    assert!(host.tick(&[], at(41)).contains(&Action::Drop { rank: 1 }));
}

#[test]
fn ranks_that_never_came_are_named() {
    let mut host = host(4);
    host.arrive(&hello(2, 4), at(1));
    host.receive(2, &answers(0), at(59));
    let actions = host.tick(&["somebody has another KITH_TOKEN".to_owned()], at(60));
    let sentence =
        "ranks 1, 3 of 4 never came to host-0:9 within 60 s: see what became of them (somebody has another KITH_TOKEN)";
    assert_eq!(
        actions[actions.len() - 2..],
        [
            Action::Tell { to: 2, answer: Answer::NeverCame(sentence.to_owned()) },
            Action::End(End::NeverCame(sentence.to_owned()))
        ]
    );
}

#[test]
fn all_ranks_are_refused_late_ones_too() {
    let mut host = host(4);
    host.arrive(&hello(1, 4), at(1));
    let actions = host.arrive(&hello(2, 5), at(2));
    let [Action::SendAway(answer), Action::Tell { to: 1, answer: same }] = &actions[..] else { panic!("{actions:?}") };
    let Answer::Refused(sentence) = answer else { panic!("{answer:?}") };
    assert!(answer == same && sentence.contains("WORLD_SIZE is 5"), "{sentence}");
    let end = Action::End(End::Refused(sentence.clone()));
    assert_eq!(host.closed(1), [], "it was told");
    assert_eq!(host.tick(&[], at(11)), []);
    assert_eq!(host.arrive(&hello(3, 4), at(11)), [Action::SendAway(answer.clone()), end.clone()], "that was the last");
    assert_eq!(host.tick(&[], at(12)), [end], "or nobody comes any more");
}
