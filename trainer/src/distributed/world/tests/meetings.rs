//! Ranks that join, ranks that are refused, and ranks that never come.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use kith_group::{
    member::Member,
    message::{Answer, Opening},
};
use kith_run::{rank_tls::RankTls, stop::Stop};
use tch::Tensor;

use super::*;
use crate::distributed::{
    collective::Alone,
    world::{Line, Token, facts, trust::Trust, wire},
};

const TOKEN: &str = "a secret of sixteen bytes or more";

fn with_token(text: &str) -> JoinConfig {
    JoinConfig { token: Token::new(text).unwrap(), ..config() }
}

fn impatient() -> JoinConfig {
    JoinConfig { join_deadline: Duration::from_millis(600), ..config() }
}

/// The same for all but rank 0, which outlasts them: somebody refuses them until they give up.
fn impatient_but(rank: usize) -> JoinConfig {
    let seconds = if rank == 0 { 4 } else { 1 };
    JoinConfig { join_deadline: Duration::from_secs(seconds), ..config() }
}

#[test]
fn ranks_come_in_any_order_and_late() {
    let place = MeetingPlace::new(3);
    let sums = on_all_ranks(3, |rank| {
        thread::sleep(Duration::from_millis([300, 600, 0][rank]));
        let mut world = place.join_with(rank, &with_token(TOKEN), &facts()).unwrap();
        assert_eq!((world.rank(), world.n_ranks(), world.n_ranks_on_host()), (rank, 3, 3));
        let mut values = Tensor::from_slice(&[rank as f32, 1.0]);
        world.collective().all_reduce(&mut values).unwrap();
        let members = world.members().to_vec();
        assert_eq!(members.iter().map(|member| member.rank).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(members.iter().all(|member| member.pid == std::process::id() && member.device == "CPU"));
        let table = world.table();
        assert_eq!(table.len(), 4);
        assert!(table[0].starts_with("rank  host") && table[3].starts_with("2 "), "{table:?}");
        assert!(table[3].contains("127.0.0.1:") && table[3].contains("CPU"), "{table:?}");
        Vec::<f32>::try_from(values).unwrap()
    });
    assert_eq!(sums, vec![vec![3.0, 3.0]; 3]);
}

#[test]
fn a_world_of_one_waits_for_nobody() {
    let seat = Seat { rank: 0, n_ranks: 1, rank_on_host: None, n_on_host: None, host: "host-a".to_owned(), port: 1 };
    let mut world = World::join(&seat, &config(), facts()).unwrap();
    world.collective().barrier().unwrap();
    assert_eq!((world.n_ranks(), world.table().len()), (1, 2));
    assert_eq!((World::alone().n_ranks(), World::alone().n_ranks_on_host()), (1, 1));
}

#[test]
fn names_and_addresses_of_both_versions_are_understood() {
    // An address that other hosts see, if this one has any: nothing is sent.
    let seen = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect("192.0.2.1:9").and(socket.local_addr()));
    let seen = seen.map_or("127.0.0.1".to_owned(), |address| address.ip().to_string());
    for host in ["localhost", "::1", "[::1]", "127.0.1.1", &seen] {
        let Ok(probe) = TcpListener::bind((host.trim_matches(['[', ']']), 0)) else { continue };
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let seat = |rank| Seat { rank, n_ranks: 3, rank_on_host: None, n_on_host: None, host: host.to_owned(), port };
        let joined = on_all_ranks(3, |rank| told(World::join(&seat(rank), &with_token(TOKEN), facts())));
        assert_eq!(joined, ["joined"; 3], "{host}");
    }
}

#[test]
fn a_rank_that_never_comes_is_named_to_all() {
    let place = MeetingPlace::new(4);
    let told = on_all_ranks(4, |rank| match rank {
        1 | 3 => String::new(),
        0 => told(place.join_with(0, &impatient(), &facts())),
        _ => told(place.join(rank)),
    });
    assert!(told[0].starts_with("75: ranks 1, 3 of 4 never came to 127.0.0.1:"), "{}", told[0]);
    assert_eq!(told[2], told[0]);
}

#[test]
fn rank_0_that_never_comes_is_named() {
    let place = MeetingPlace::new(2);
    drop(place.listener(0));
    let told = told(place.join_with(1, &impatient(), &facts()));
    assert!(told.starts_with("75: rank 0 did not come: no answer from 127.0.0.1:"), "{told}");
    assert!(told.contains("within 0.6 s (Connection refused"), "{told}");
}

#[test]
fn a_second_rank_of_the_same_number_is_refused() {
    let place = MeetingPlace::new(3);
    let n_refused = AtomicUsize::new(0);
    // Two of number 1: one comes in. A third comes when all are there.
    let told = on_all_ranks(4, |k| {
        let rank = [0, 1, 2, 1][k];
        thread::sleep(Duration::from_millis(if rank == 2 { 500 } else { 0 }));
        let joined = place.join(rank);
        let Ok(mut world) = joined else {
            n_refused.fetch_add(1, SeqCst);
            return told(joined);
        };
        if rank == 2 {
            let late = told(place.join(1));
            assert!(late.starts_with("1: a second rank 1 came, on "), "{late}");
        }
        world.collective().barrier().unwrap();
        "joined".to_owned()
    });
    assert_eq!(n_refused.load(SeqCst), 1);
    let refused = told.iter().find(|told| *told != "joined").unwrap();
    let first = format!(
        "the first sits on {} (process {})",
        rustix::system::uname().nodename().to_string_lossy(),
        std::process::id()
    );
    assert!(refused.starts_with("1: a second rank 1 came, on ") && refused.contains(&first), "{refused}");
}

#[test]
fn a_rank_that_went_away_may_come_again() {
    let place = MeetingPlace::new(2);
    let told = on_all_ranks(2, |rank| {
        if rank == 1 {
            // Gives up before the world is complete, which needs it.
            drop(place.knock(&config()));
        }
        told(place.join(rank))
    });
    assert_eq!(told, ["joined", "joined"]);
}

#[test]
fn a_port_in_use_is_named() {
    let place = MeetingPlace::new(2);
    let told = told(World::join(&place.seat(0), &impatient(), facts()));
    let sentence = format!("75: MASTER_PORT {} on 127.0.0.1 is in use: ", place.port);
    assert!(told.starts_with(&sentence), "{told}");
}

#[test]
fn a_name_that_nobody_knows_is_named() {
    let place = MeetingPlace::new(2);
    let seat = |rank| Seat { host: "no-such-host.invalid".to_owned(), ..place.seat(rank) };
    for rank in 0..2 {
        let told = told(World::join(&seat(rank), &impatient(), facts()));
        assert!(
            told.starts_with("75: ")
                && told.contains("MASTER_ADDR \"no-such-host.invalid\" is no name or address that is known here"),
            "{told}"
        );
    }
}

#[test]
fn ranks_with_other_facts_stop_all() {
    type Change = fn(&mut Facts, &mut Seat);
    let changes: [(Change, &str); 2] = [
        (|facts, _| facts.program.digest = "f".repeat(64), "runs another program (0.1.0, digest ffffffffffff…)"),
        (|_, seat| seat.n_ranks = 4, "was told that WORLD_SIZE is 4"),
    ];
    for (change, words) in changes {
        let place = MeetingPlace::new(3);
        let told = on_all_ranks(3, |rank| {
            let (mut facts, mut seat) = (facts(), place.seat(rank));
            match rank {
                2 => change(&mut facts, &mut seat),
                // A rank that comes after the refusal receives it as well.
                1 => thread::sleep(Duration::from_millis(200)),
                _ => {}
            }
            told(World::join_at(&seat, &config(), &facts, place.listener(rank)))
        });
        assert!(told[0].starts_with("1: rank 2 on ") && told[0].contains(words), "{}", told[0]);
        assert_eq!([&told[1], &told[2]], [&told[0]; 2]);
    }
}

#[test]
fn another_token_is_refused() {
    let place = MeetingPlace::new(2);
    let told = on_all_ranks(2, |rank| {
        let config = JoinConfig { token: Token::new([TOKEN, &TOKEN[1..]][rank]).unwrap(), ..impatient_but(rank) };
        told(place.join_with(rank, &config, &facts()))
    });
    assert!(told[1].starts_with("1: ") && told[1].contains("set KITH_TOKEN to the same secret text"), "{}", told[1]);
    assert!(told[0].starts_with("75: rank 1 of 2 never came"), "{}", told[0]);
    assert!(told[0].ends_with("(somebody at 127.0.0.1 has another KITH_TOKEN)"), "{}", told[0]);
}

#[test]
fn without_a_token_ranks_meet_on_one_host() {
    for host in ["192.0.2.1", "2001:db8::1"] {
        for rank in 0..2 {
            let seat = Seat { host: host.to_owned(), ..MeetingPlace::new(2).seat(rank) };
            let told = told(World::join(&seat, &impatient(), facts()));
            assert!(told.starts_with(&format!("1: ranks that meet at {host} ")), "{told}");
            assert!(told.ends_with("set KITH_TOKEN to the same secret text on every rank"), "{told}");
        }
    }
}

#[test]
fn what_is_no_rank_is_named() {
    let place = MeetingPlace::new(2);
    let listener = place.listener(0).unwrap();
    listener.set_nonblocking(true).unwrap();
    let is_done = AtomicBool::new(false);
    let told = on_all_ranks(2, |rank| match rank {
        0 => {
            while !is_done.load(SeqCst) {
                let Ok((mut stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                };
                stream.set_nonblocking(false).unwrap();
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                let _ = stream.read(&mut [0; 100]);
            }
            String::new()
        }
        _ => {
            let told = told(place.join_with(1, &impatient(), &facts()));
            is_done.store(true, SeqCst);
            told
        }
    });
    assert!(told[1].starts_with("1: what listens at 127.0.0.1:"), "{}", told[1]);
}

#[test]
fn strangers_hold_up_nobody() {
    let place = MeetingPlace::new(2);
    let connect = || TcpStream::connect(("127.0.0.1", place.port)).unwrap();
    // Silent ones; nonsense, short and long; half a greeting; one that proves itself and then announces far too much.
    let silent: Vec<TcpStream> = (0..20).map(|_| connect()).collect();
    let mut garbage: Vec<TcpStream> = (0..3).map(|_| connect()).collect();
    garbage[0].write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    garbage[1].write_all(&[0xff; 100_000]).unwrap();
    garbage[2].write_all(b"kithrank\x01\x00").unwrap();
    let started = Instant::now();
    let told = on_all_ranks(3, |rank| match rank {
        2 => {
            let mut oversized = place.knock(&config());
            oversized.write_all_by(&[0xff; 4], Instant::now() + Duration::from_secs(5)).unwrap();
            // It is sent away at once.
            oversized.socket().set_read_timeout(Some(Duration::from_secs(4))).unwrap();
            assert_eq!(oversized.read(&mut [0]).unwrap_or(0), 0);
            "joined".to_owned()
        }
        _ => {
            thread::sleep(Duration::from_millis(100 * rank as u64));
            let mut world = place.join(rank).unwrap();
            world.collective().barrier().unwrap();
            told(Ok(world))
        }
    });
    assert_eq!(told, ["joined"; 3]);
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    drop((silent, garbage));
}

impl MeetingPlace {
    /// Somebody at rank 0's door who has proven itself and said nothing more.
    fn knock(&self, config: &JoinConfig) -> Line {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        Trust::new(config).unwrap().ask(socket, Instant::now() + Duration::from_secs(5)).unwrap()
    }
}

/// Notices silence soon; a busy machine may still pause a thread for a while.
fn watchful() -> JoinConfig {
    JoinConfig { heartbeat_deadline: Duration::from_secs(2), ..config() }
}

/// The host of a rank that waits for others freezes, and another process is started in its place.
#[test]
fn a_rank_whose_line_is_half_open_is_replaced() {
    let place = MeetingPlace::new(3);
    let told = on_all_ranks(3, |rank| {
        let mut half_open = None;
        if rank == 1 {
            let mut line = place.knock(&watchful());
            let hello = Opening::Join(facts::hello(1, 3, "127.0.0.1:1".to_owned(), &facts()));
            wire::send(&mut line, &hello, Instant::now() + Duration::from_secs(5)).unwrap();
            half_open = Some(line);
        }
        // Not before the first rank 1 was given up: with it all would be there.
        thread::sleep(Duration::from_millis(if rank == 2 { 5000 } else { 0 }));
        let joined =
            place.join_with(rank, &watchful(), &facts()).map(|mut world| world.collective().barrier().unwrap());
        drop(half_open);
        told(joined)
    });
    assert_eq!(told, ["joined"; 3]);
}

/// The host of rank 0 freezes while others wait for all to come, and rank 0 is started elsewhere.
#[test]
fn a_rank_0_that_is_silent_is_left() {
    let place = MeetingPlace::new(2);
    let listener = place.listener(0).unwrap();
    let told = on_all_ranks(2, |rank| {
        if rank == 1 {
            return told(place.join_with(1, &watchful(), &facts()));
        }
        let until = Instant::now() + Duration::from_secs(10);
        let mut frozen = Trust::new(&watchful()).unwrap().answer(listener.accept().unwrap().0, until).unwrap();
        assert!(matches!(wire::receive(&mut frozen, until).unwrap(), Opening::Join(_)));
        // Takes the connections of the frozen one, too: they came to the same port.
        let joined = World::join_at(&place.seat(0), &watchful(), &facts(), Some(listener.try_clone().unwrap()));
        drop(frozen);
        told(joined)
    });
    assert_eq!(told, ["joined"; 2]);
}

#[test]
fn ranks_wait_for_a_late_one_for_longer_than_a_silence_that_means_loss() {
    let place = MeetingPlace::new(3);
    let config = JoinConfig { heartbeat_deadline: Duration::from_millis(1500), ..config() };
    let told = on_all_ranks(3, |rank| {
        thread::sleep(Duration::from_millis(if rank == 2 { 3500 } else { 0 }));
        told(place.join_with(rank, &config, &facts()).map(|mut world| world.collective().barrier().unwrap()))
    });
    assert_eq!(told, ["joined"; 3]);
}

#[test]
fn ranks_meet_and_talk_on_encrypted_lines() {
    let place = MeetingPlace::new(3);
    let config = JoinConfig { tls: RankTls::On, ..with_token(TOKEN) };
    let sums = on_all_ranks(3, |rank| {
        let mut world = place.join_with(rank, &config, &facts()).unwrap();
        let mut values = Tensor::from_slice(&vec![rank as f32; 100_000]);
        world.collective().all_reduce(&mut values).unwrap();
        world.collective().barrier().unwrap();
        Vec::<f32>::try_from(values).unwrap()
    });
    assert_eq!(sums, vec![vec![3.0; 100_000]; 3]);
}

#[test]
fn ranks_that_do_not_agree_on_encryption_are_told_so() {
    for (choices, words) in [
        ([RankTls::On, RankTls::Off], "wants an encrypted line: give --rank-tls on to every rank"),
        ([RankTls::Off, RankTls::On], "give the same --rank-tls to every rank"),
    ] {
        let place = MeetingPlace::new(2);
        let told = on_all_ranks(2, |rank| {
            told(place.join_with(rank, &JoinConfig { tls: choices[rank], ..impatient_but(rank) }, &facts()))
        });
        assert!(told[1].starts_with("1: ") && told[1].contains(words), "{}", told[1]);
        assert!(told[0].ends_with("(somebody at 127.0.0.1 has another --rank-tls)"), "{}", told[0]);
    }
}

/// A process that paused while it waited for others, and was replaced meanwhile, made no mistake; a second one from the start
/// has a number that is not its own.
#[test]
fn a_rank_that_was_replaced_is_worth_another_try() {
    for (had_seat, expected) in [(true, "75: the seat is taken"), (false, "1: the seat is taken")] {
        let place = MeetingPlace::new(2);
        let listener = place.listener(0).unwrap();
        let told = on_all_ranks(2, |rank| {
            if rank == 1 {
                return told(place.join(1));
            }
            let (trust, until) = (Trust::new(&config()).unwrap(), Instant::now() + Duration::from_secs(10));
            let answer = |answer: Answer| {
                let mut line = trust.answer(listener.accept().unwrap().0, until).unwrap();
                assert!(matches!(wire::receive(&mut line, until).unwrap(), Opening::Join(_)));
                wire::send(&mut line, &answer, until).unwrap();
            };
            if had_seat {
                answer(Answer::Wait(1));
            }
            answer(Answer::Taken("the seat is taken".to_owned()));
            String::new()
        });
        assert_eq!(told[1], expected);
    }
}

#[test]
fn users_are_told_what_is_not_encrypted_between_hosts() {
    let member = |rank: usize, machine: &str, gpu: Option<&str>| Member {
        rank,
        machine: machine.to_owned(),
        gpu: gpu.map(str::to_owned),
        ..facts::alone()
    };
    let notes = |members: Vec<Member>, tls: RankTls| {
        World { bond: None, rank: 0, members, collective: Box::new(Alone), stop: Stop::default() }.notes(tls)
    };
    let gpus = |machines: [&str; 2]| vec![member(0, machines[0], Some("GPU-0")), member(1, machines[1], Some("GPU-1"))];
    let cpus = |machines: [&str; 2]| vec![member(0, machines[0], None), member(1, machines[1], None)];
    let told = notes(gpus(["a", "b"]), RankTls::Auto);
    assert!(told.len() == 1 && told[0].starts_with("NCCL does not encrypt"), "{told:?}");
    assert_eq!(notes(gpus(["a", "a"]), RankTls::Auto), Vec::<String>::new());
    assert_eq!(notes(cpus(["a", "b"]), RankTls::Auto), Vec::<String>::new());
    let told = notes(cpus(["a", "b"]), RankTls::Off);
    assert!(told.len() == 1 && told[0].contains("not encrypted (--rank-tls off)"), "{told:?}");
    assert_eq!(notes(cpus(["a", "a"]), RankTls::Off), Vec::<String>::new());
}
