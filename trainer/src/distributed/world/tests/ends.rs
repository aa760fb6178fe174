//! Ends of a process group: well, by a rank that vanishes, falls silent or fails, and by one that is stuck.

use std::{
    sync::{Arc, mpsc::channel},
    thread,
    time::{Duration, Instant},
};

use kith_run::phase::Phase;

use super::*;
use crate::distributed::{
    collective::Ring,
    world::{Board, agree_on_device, rendezvous, spoke::Spoke, trust::Trust},
};

/// A rank that has joined and has no pulse.
struct Heartless {
    ring: Ring,
    spokes: Vec<Spoke>,
}

fn heartless(place: &MeetingPlace, rank: usize, config: &JoinConfig) -> Heartless {
    let (seat, facts, trust) = (place.seat(rank), facts(), Trust::new(config).unwrap());
    let mut meeting = match rank {
        0 => rendezvous::host(&seat, config, &facts, &trust, place.listener(0)).unwrap(),
        _ => rendezvous::visit(&seat, config, &facts, &trust).unwrap(),
    };
    let board = Arc::new(Board::new(rank, meeting.members.clone()).unwrap());
    let (previous, next) = rendezvous::form_ring(&seat, config, &trust, &meeting, &board).unwrap();
    let mut ring = Ring::new(previous, next, board, config.collective_deadline).unwrap();
    agree_on_device(&mut ring, &meeting.members, config).unwrap();
    place.all_joined.wait();
    Heartless { ring, spokes: std::mem::take(&mut meeting.spokes) }
}

#[test]
fn metrics_see_the_heartbeats_of_other_ranks() {
    assert_eq!(World::alone().heartbeats().silences(), []);
    let place = MeetingPlace::new(3);
    let heard = on_all_ranks(3, |rank| {
        let world = place.join_together(rank, &config());
        let (heartbeats, started) = (world.heartbeats(), Instant::now());
        let n_others = if rank == 0 { 2 } else { 1 };
        while heartbeats.silences().len() < n_others {
            assert!(started.elapsed() < Duration::from_secs(10), "no heartbeat comes");
            thread::sleep(Duration::from_millis(5));
        }
        let silences = heartbeats.silences();
        // Nobody leaves before all have heard the others: ranks that have left are not silent.
        place.all_joined.wait();
        silences
    });
    for (rank, silences) in heard.iter().enumerate() {
        let others: Vec<usize> = silences.iter().map(|(rank, _)| *rank).collect();
        assert_eq!(others, if rank == 0 { vec![1, 2] } else { vec![0] });
        assert!(silences.iter().all(|(_, silence)| *silence < Duration::from_secs(20)), "{silences:?}");
    }
}

#[test]
fn a_rank_that_vanishes_is_named_at_once() {
    for lost in 0..3 {
        let place = MeetingPlace::new(3);
        let told = on_all_ranks(3, |rank| {
            if rank == lost {
                let Heartless { ring, spokes } = heartless(&place, rank, &config());
                drop((spokes, ring));
                return String::new();
            }
            let mut world = place.join_together(rank, &config());
            world.enter(7, Phase::Exchange);
            let started = Instant::now();
            let told = told(world.collective().barrier());
            assert!(started.elapsed() < Duration::from_secs(5));
            told
        });
        for rank in (0..3).filter(|rank| *rank != lost) {
            let words = format!("75: rank {lost} on ");
            assert!(told[rank].starts_with(&words), "{}", told[rank]);
            assert!(told[rank].ends_with("in phase start: its process ended without a word"), "{}", told[rank]);
        }
    }
}

#[test]
fn a_rank_that_falls_silent_is_named_within_the_deadline() {
    for lost in 0..3 {
        let place = MeetingPlace::new(3);
        let config = JoinConfig { heartbeat_deadline: Duration::from_secs(1), ..config() };
        let done = std::sync::Barrier::new(3);
        let told = on_all_ranks(3, |rank| {
            if rank == lost {
                let heartless = heartless(&place, rank, &config);
                done.wait();
                drop(heartless);
                return String::new();
            }
            let mut world = place.join_together(rank, &config);
            let started = Instant::now();
            let told = told(world.collective().barrier());
            done.wait();
            assert!(started.elapsed() < Duration::from_millis(2500), "{:?}", started.elapsed());
            told
        });
        for rank in (0..3).filter(|rank| *rank != lost) {
            assert!(told[rank].starts_with(&format!("75: rank {lost} on ")), "{}", told[rank]);
            assert!(told[rank].ends_with("nothing was heard of it for 1 s"), "{}", told[rank]);
        }
    }
}

#[test]
fn where_a_lost_rank_was_is_told() {
    let place = MeetingPlace::new(3);
    let told = on_all_ranks(3, |rank| {
        let mut world = place.join_together(rank, &config());
        world.enter(41 + rank as u64, Phase::Compute);
        thread::sleep(Duration::from_millis(500)); // A few beats.
        if rank == 2 {
            let bond = world.bond.as_ref().unwrap();
            bond.pulse.stop_without_a_word();
            return String::new();
        }
        told(world.collective().barrier())
    });
    for rank in [0, 1] {
        assert!(told[rank].contains("was lost at step 43, in phase compute: "), "{}", told[rank]);
    }
}

#[test]
fn a_rank_that_fails_takes_its_error_to_all() {
    for failing in 0..3 {
        let place = MeetingPlace::new(3);
        let told = on_all_ranks(3, |rank| {
            let mut world = place.join_together(rank, &config());
            if rank == failing {
                world.stop(9, "the loss is not finite");
                return String::new();
            }
            told(world.collective().barrier())
        });
        for rank in (0..3).filter(|rank| *rank != failing) {
            let sentence = told[rank].strip_prefix(&format!("9: rank {failing} on ")).unwrap_or_default();
            assert!(sentence.ends_with(" stopped: the loss is not finite"), "{}", told[rank]);
        }
    }
}

#[test]
fn a_rank_that_panics_says_so() {
    let place = MeetingPlace::new(2);
    let told = on_all_ranks(2, |rank| {
        let mut world = place.join_together(rank, &config());
        if rank == 1 {
            let panicking = thread::scope(|scope| {
                let place = world.bond.take();
                scope
                    .spawn(move || {
                        let _bond = place;
                        panic!("on purpose");
                    })
                    .join()
            });
            assert!(panicking.is_err());
            return String::new();
        }
        told(world.collective().barrier())
    });
    assert!(told[0].starts_with("70: rank 1 on ") && told[0].ends_with("stopped: it panicked"), "{}", told[0]);
}

#[test]
fn leaving_is_no_loss() {
    let place = MeetingPlace::new(3);
    on_all_ranks(3, |rank| {
        let config = JoinConfig { heartbeat_deadline: Duration::from_secs(1), ..config() };
        let mut world = place.join_together(rank, &config);
        world.collective().barrier().unwrap();
        // Rank 1 goes first, rank 0 next: nobody minds.
        thread::sleep(Duration::from_millis([1500, 0, 2600][rank]));
        world.check().unwrap();
        world.leave();
    });
}

#[test]
fn leaving_in_the_middle_is_a_mistake() {
    let place = MeetingPlace::new(2);
    let told = on_all_ranks(2, |rank| {
        let mut world = place.join_together(rank, &config());
        if rank == 1 {
            return String::new();
        }
        told(world.collective().barrier())
    });
    let words = " left after collective 1 while rank 0 on ";
    assert!(told[0].starts_with("70: rank 1 on ") && told[0].contains(words), "{}", told[0]);
}

#[test]
fn who_is_stuck_is_named_by_all_others() {
    for stuck in 0..3 {
        let place = MeetingPlace::new(3);
        let told = on_all_ranks(3, |rank| {
            let config = JoinConfig { collective_deadline: Duration::from_millis(600), ..config() };
            let mut world = place.join_together(rank, &config);
            world.collective().barrier().unwrap();
            if rank == stuck {
                world.enter(5, Phase::Sample);
                let until = Instant::now() + Duration::from_secs(10);
                while world.check().is_ok() && Instant::now() < until {
                    thread::sleep(Duration::from_millis(10));
                }
                return told(world.check());
            }
            world.enter(6, Phase::Exchange);
            told(world.collective().share(b"abc"))
        });
        for told in &told {
            assert!(told.starts_with(&format!("75: rank {stuck} on ")), "{told}");
            assert!(
                told.contains(" was lost at step 5, in phase sample: its heart beats, but it is at collective 2"),
                "{told}"
            );
        }
    }
}

#[test]
fn a_process_that_does_not_notice_is_called() {
    let place = MeetingPlace::new(3);
    on_all_ranks(3, |rank| {
        let mut world = place.join_together(rank, &config());
        if rank == 1 {
            world.stop(3, "the reason");
            return;
        }
        let (sender, called) = channel();
        world.on_lost(Box::new(move |error| sender.send(told::<()>(Err(clone(error)))).unwrap()));
        if rank == 2 {
            // Notices by itself.
            world.collective().barrier().unwrap_err();
            assert!(called.recv_timeout(Duration::from_millis(2600)).is_err());
            return;
        }
        let started = Instant::now();
        let told = called.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(started.elapsed() > Duration::from_millis(1500));
        assert!(told.starts_with("3: rank 1 on ") && told.ends_with("stopped: the reason"), "{told}");
        assert!(called.recv_timeout(Duration::from_millis(300)).is_err(), "once");
    });
}

fn clone(error: &WorldError) -> WorldError {
    match error {
        WorldError::Stopped { rank, host, sentence, code } => {
            WorldError::Stopped { rank: *rank, host: host.clone(), sentence: sentence.clone(), code: *code }
        }
        other => panic!("{other}"),
    }
}
