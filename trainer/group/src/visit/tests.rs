//! Joining, as any other rank sees it.

use super::*;
use crate::limits::Rhythm;

const LIMITS: JoinLimits = JoinLimits {
    join: Duration::from_secs(60),
    rhythm: Rhythm { every: Duration::from_secs(1), deadline: Duration::from_secs(10) },
};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn visit() -> Visit {
    Visit::new(2, "host-0:9".to_owned(), LIMITS, at(0))
}

/// A rank that was accepted, to wait.
fn waiting() -> Visit {
    let mut visit = visit();
    assert_eq!(visit.tick(at(0)), [Action::Knock { until: ATTEMPT }]);
    visit.connected(at(0));
    visit
}

fn sentence() -> String {
    "of the test".to_owned()
}

#[test]
fn a_rank_says_that_it_is_there_until_all_are() {
    let mut visit = waiting();
    let beat = |answers| [Action::Beat(Message::Beat { own: Entry::default(), answers })];
    assert_eq!(visit.tick(at(0)), beat(0));
    assert_eq!(visit.tick(at(0)), [], "the next one is due later");
    assert_eq!(visit.receive(Answer::Wait(7), at(0)), []);
    assert_eq!(visit.tick(at(1)), beat(7));
    let members: Vec<Member> = (0..2).map(|rank| Member { rank, ..Member::default() }).collect();
    let welcome = |members: &[Member]| Answer::Welcome { session: "abc".to_owned(), members: members.to_vec() };
    let end = End::Welcome { session: "abc".to_owned(), members: members.clone(), number: 7 };
    assert_eq!(visit.receive(welcome(&members), at(2)), [Action::End(end)]);
    let mut visit = waiting();
    assert_eq!(visit.receive(welcome(&members[1..]), at(2)), [Action::HangUp], "that is nonsense: it tries again");
}

#[test]
fn it_tries_again_until_its_patience_ends() {
    let mut visit = visit();
    for tenth in 0..600 {
        let now = PAUSE * tenth;
        assert_eq!(visit.next_tick(), now);
        assert!(matches!(visit.tick(now)[..], [Action::Knock { until }] if until <= at(60)));
        assert_eq!(visit.missed(Missed::ForNow("nobody listens".to_owned()), now), []);
        assert_eq!(visit.tick(now), [], "not yet");
    }
    let expected = "rank 0 did not come: no answer from host-0:9 within 60 s (nobody listens)";
    assert_eq!(visit.tick(at(60)), [Action::End(End::NeverCame(expected.to_owned()))]);
}

#[test]
fn a_refusal_by_somebody_who_may_go_is_final_when_it_lasts() {
    let mut visit = visit();
    let refused = || Missed::Refused(sentence());
    assert_eq!(visit.missed(refused(), at(1)), []);
    assert_eq!(visit.missed(refused(), at(16)), []);
    assert_eq!(visit.missed(Missed::ForNow(String::new()), at(16)), [], "it went");
    assert_eq!(visit.missed(refused(), at(17)), []);
    assert_eq!(visit.missed(refused(), at(33)), [Action::End(End::Refused(sentence()))]);
}

#[test]
fn answers_end_joining_or_not() {
    let over = |answer: Answer, had_seat: bool| {
        let mut visit = waiting();
        if had_seat {
            visit.receive(Answer::Wait(1), at(1));
        }
        visit.receive(answer, at(1))
    };
    let end = |end: End| vec![Action::HangUp, Action::End(end)];
    assert_eq!(over(Answer::Refused(sentence()), true), end(End::Refused(sentence())));
    assert_eq!(over(Answer::NeverCame(sentence()), true), end(End::NeverCame(sentence())));
    assert_eq!(over(Answer::Taken(sentence()), false), end(End::Refused(sentence())));
    assert_eq!(over(Answer::Taken(sentence()), true), end(End::NeverCame(sentence())), "replaced while it was silent");
    assert_eq!(over(Answer::Later(sentence()), false), [Action::HangUp]);
    assert_eq!(over(Answer::Full(sentence()), false), [Action::HangUp]);
}

#[test]
fn a_silent_rank_0_is_given_up_unless_this_process_paused() {
    let mut visit = waiting();
    visit.wake(at(30));
    assert!(matches!(visit.tick(at(30))[..], [Action::Beat(_)]));
    for second in 31..=40 {
        visit.wake(at(second));
        assert!(matches!(visit.tick(at(second))[..], [Action::Beat(_)]));
    }
    visit.wake(at(41));
    assert_eq!(visit.tick(at(41)), [Action::HangUp]);
    assert!(matches!(visit.tick(at(42))[..], [Action::Knock { .. }]));
    visit.connected(at(42));
    assert_eq!(visit.closed("reset".to_owned(), at(43)), [Action::HangUp]);
    assert_eq!(visit.closed("reset".to_owned(), at(43)), [], "it is closed");
}

#[test]
fn every_rank_0_counts_its_own_heartbeats() {
    let mut visit = waiting();
    visit.receive(Answer::Wait(50), at(1));
    visit.closed("reset".to_owned(), at(2));
    visit.tick(at(3));
    visit.connected(at(3));
    assert_eq!(visit.tick(at(3)), [Action::Beat(Message::Beat { own: Entry::default(), answers: 0 })]);
}
