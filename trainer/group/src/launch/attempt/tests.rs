//! An attempt without processes: which are started and stopped when, and how it ends.

use super::*;

const GRACE: Duration = Duration::from_secs(30);
const TERMINATE: Request = Request { code: 75, is_interrupt: false };
const INTERRUPT: Request = Request { code: 130, is_interrupt: true };

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Two ranks that run, beside servers that do.
fn running(n_servers: usize) -> Attempt {
    let (mut attempt, actions) = Attempt::begin(n_servers, 2, GRACE, at(0));
    let mut actions = actions;
    for server in 0..n_servers {
        actions.extend(attempt.ready(server));
    }
    assert_eq!(actions.last(), Some(&Action::RanksStarted));
    attempt
}

fn end(outcome: Outcome) -> Action {
    Action::End(outcome)
}

fn failed(code: u8, sentence: &str) -> Action {
    end(Outcome::Failed { code, sentence: sentence.to_owned() })
}

/// End of an attempt whose ranks end like this, in this order.
fn after(ends: [(usize, Ended); 2]) -> Action {
    let mut attempt = running(0);
    let actions = ends.map(|(rank, ended)| attempt.ended(Who::Rank(rank), ended, at(1)));
    assert!(!actions[0].iter().any(|action| matches!(action, Action::End(_))), "a rank is left");
    actions[1].last().expect("all have ended").clone()
}

#[test]
fn the_reason_is_the_killed_rank_in_any_order() {
    let (killed, retry, wrong) = (Ended::Signal(9), Ended::Code(75), Ended::Code(1));
    assert_eq!(after([(0, retry), (1, killed)]), failed(75, "rank 1 was killed by signal 9"));
    assert_eq!(after([(1, killed), (0, retry)]), failed(75, "rank 1 was killed by signal 9"));
    assert_eq!(after([(1, killed), (0, wrong)]), failed(1, "rank 0 ended with code 1"));
    assert_eq!(after([(0, retry), (1, retry)]), failed(75, "rank 0 ended with code 75"));
    assert_eq!(after([(0, Ended::Code(0)), (1, Ended::Code(0))]), end(Outcome::Done));
}

#[test]
fn ranks_start_when_all_servers_are_ready() {
    let (mut attempt, actions) = Attempt::begin(2, 1, GRACE, at(0));
    assert_eq!(actions, [0, 1].map(|server| Action::Start(Who::Server(server))));
    assert_eq!(attempt.ready(1), []);
    assert_eq!(attempt.ready(0), [Action::Start(Who::Rank(0)), Action::RanksStarted]);
    assert_eq!(attempt.ready(0), [], "once");
    assert_eq!(attempt.deadline(), None);
}

#[test]
fn a_server_that_is_never_ready_ends_the_attempt() {
    let (mut attempt, _) = Attempt::begin(2, 1, GRACE, at(0));
    assert_eq!(attempt.tick(at(119)), []);
    let terminated = [0, 1].map(|server| Action::Signal(Who::Server(server), Kill::Terminate));
    assert_eq!(attempt.tick(at(120)), terminated);
    attempt.ended(Who::Server(0), Ended::Code(75), at(121));
    // The other one does not listen.
    assert_eq!(attempt.tick(at(125)), [Action::Signal(Who::Server(1), Kill::Kill)]);
    assert_eq!(attempt.tick(at(129)), []);
    let actions = attempt.tick(at(130));
    assert_eq!(actions.last(), Some(&failed(75, "a server was not ready within 120 s")));
}

#[test]
fn servers_are_stopped_when_no_rank_needs_them() {
    let mut attempt = running(1);
    attempt.ended(Who::Rank(0), Ended::Code(0), at(1));
    let stop = [Action::Signal(Who::Server(0), Kill::Terminate)];
    assert_eq!(attempt.ended(Who::Rank(1), Ended::Code(0), at(2)), stop);
    assert_eq!(attempt.ended(Who::Server(0), Ended::Code(75), at(3)), [end(Outcome::Done)]);

    let mut attempt = running(1);
    assert_eq!(attempt.ended(Who::Server(0), Ended::Code(0), at(1)), [], "ranks have a moment");
    let ranks = [0, 1].map(|rank| Action::Signal(Who::Rank(rank), Kill::Terminate));
    assert_eq!(attempt.tick(at(6)), ranks);
    attempt.ended(Who::Rank(0), Ended::Code(75), at(6));
    let over = attempt.ended(Who::Rank(1), Ended::Code(75), at(6));
    assert_eq!(over, [failed(75, "server 0 ended while ranks needed it")]);
}

#[test]
fn a_rank_that_does_not_end_after_another_is_stopped() {
    let mut attempt = running(0);
    attempt.ended(Who::Rank(0), Ended::Code(0), at(1));
    assert_eq!(attempt.tick(at(600)), []);
    attempt.tick(at(601));
    assert_eq!(attempt.tick(at(606)), [Action::Signal(Who::Rank(1), Kill::Terminate)]);
    let over = attempt.ended(Who::Rank(1), Ended::Code(75), at(607));
    assert_eq!(over, [failed(75, "a rank did not end within 600 s of another")]);
}

#[test]
fn a_request_to_stop_gives_ranks_time_and_a_second_interrupt_none() {
    let signals = |kill| [0, 1].map(|rank| Action::Signal(Who::Rank(rank), kill));
    for (request, code) in [(TERMINATE, 75), (INTERRUPT, 130)] {
        let mut attempt = running(1);
        assert_eq!(attempt.request(request, at(1)), signals(Kill::Terminate), "servers go on for the checkpoint");
        assert_eq!(attempt.deadline(), Some(at(36)));
        assert_eq!(attempt.request(TERMINATE, at(2)), [], "it is stopping");
        attempt.ended(Who::Rank(0), Ended::Code(75), at(3));
        attempt.ended(Who::Rank(1), Ended::Code(code), at(3));
        assert_eq!(attempt.ended(Who::Server(0), Ended::Code(75), at(3)), [end(Outcome::Stopped { code })]);
    }
    let mut attempt = running(0);
    attempt.request(INTERRUPT, at(1));
    assert_eq!(attempt.request(INTERRUPT, at(2)), signals(Kill::Kill));
    // Ranks that were done before they were asked to stop.
    let mut attempt = running(0);
    attempt.request(TERMINATE, at(1));
    attempt.ended(Who::Rank(0), Ended::Code(0), at(1));
    assert_eq!(attempt.ended(Who::Rank(1), Ended::Code(0), at(1)), [end(Outcome::Done)]);
    // One that fails for another reason while it stops.
    let mut attempt = running(0);
    attempt.request(TERMINATE, at(1));
    attempt.ended(Who::Rank(0), Ended::Code(75), at(1));
    let over = attempt.ended(Who::Rank(1), Ended::Code(1), at(1));
    assert_eq!(over, [failed(1, "rank 1 ended with code 1")]);
}

#[test]
fn processes_that_ignore_all_signals_are_left_to_the_system() {
    let mut attempt = running(0);
    attempt.request(TERMINATE, at(0));
    assert_eq!(attempt.tick(at(35)).len(), 2);
    assert_eq!(attempt.tick(at(40)), [0, 1].map(|rank| Action::Signal(Who::Rank(rank), Kill::Kill)));
    assert_eq!(attempt.tick(at(45)).last(), Some(&end(Outcome::Stopped { code: 75 })));
}

#[test]
fn an_observer_ends_an_attempt() {
    let mut attempt = running(0);
    assert_eq!(attempt.finish(at(1)).len(), 2);
    attempt.ended(Who::Rank(0), Ended::Code(75), at(1));
    assert_eq!(attempt.ended(Who::Rank(1), Ended::Signal(15), at(1)), [end(Outcome::Done)]);
    let mut attempt = running(0);
    assert_eq!(attempt.reject("it uses too much memory".to_owned(), at(1)).len(), 2);
    attempt.ended(Who::Rank(0), Ended::Code(75), at(1));
    let over = attempt.ended(Who::Rank(1), Ended::Code(75), at(1));
    assert_eq!(over, [failed(1, "it uses too much memory")]);
}
