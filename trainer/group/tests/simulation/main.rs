//! Whole process groups in one thread and in virtual time, disturbed by named draws: the state machines are those that the
//! programs drive. Each key is a run with its faults. `SIMULATION_KEY=51474 cargo test -p kith-group one_key -- --nocapture`
//! runs one again and prints what happened.

#![allow(clippy::print_stdout)]

mod disk;
mod draws;
mod faults;
mod joining;
mod network;
mod process;
mod queue;
mod saver;
mod supervisor;
mod training;
mod world;

use std::{collections::BTreeMap, ops::Range, time::Instant};

use crate::{
    training::undisturbed,
    world::{Ended, World},
};

/// Keys that found something.
const REGRESSIONS: [u64; 1] = [51_474];

/// Transitions that some key must take, so that the simulation means something.
const TRANSITIONS: &[&str] = &[
    "a blackout",
    "a disk error",
    "a full disk",
    "a garbled frame",
    "a goodbye",
    "a pod again",
    "a rank moves",
    "a rank was refused",
    "a restart",
    "a ring",
    "a server ends",
    "a server hangs",
    "a server is killed",
    "a silent guest",
    "asked to stop",
    "called",
    "from the beginning",
    "joined",
    "judged a broken connection",
    "later in a complete group",
    "later while joining",
    "lost by its end",
    "lost by silence",
    "lost otherwise",
    "no checkpoint can be used",
    "no ring",
    "passed over a checkpoint",
    "pause",
    "power loss",
    "rank 0 refused the ranks",
    "ranks never came",
    "replaced",
    "resumed",
    "servers did not answer",
    "stopped",
    "stopped in time",
    "the disk is lost",
    "the launcher is stopped",
    "the run folder is taken",
    "told",
    "too late",
    "waited for servers",
    "wedged",
];

/// Broken promises of a run that has ended.
fn wrong(ended: &Ended) -> Vec<String> {
    let mut wrong = ended.violations.clone();
    let expected = undisturbed(&ended.plan);
    match ended.code {
        None => wrong.push(format!("it did not end within {} s", ended.took.as_secs())),
        Some(0) if ended.plan.odd_rank.is_some() => wrong.push("it ends well although programs differ".to_owned()),
        Some(0) if ended.disk.report != Some(expected) => {
            wrong.push(format!("it ends with the digest {:?} and not with {expected}", ended.disk.report));
        }
        Some(0) => {
            let steps: Vec<u64> = (0..ended.plan.n_steps).collect();
            if ended.disk.records != steps {
                wrong.push(format!("it recorded the steps {:?}", ended.disk.records));
            }
        }
        Some(75) => {}
        // The user must make room, has a disk that loses what it said was there, or runs different programs.
        Some(1) if ended.disk.was_full || ended.disk.has_lied || ended.plan.odd_rank.is_some() => {}
        Some(130) if ended.was_interrupted => {}
        Some(code) => wrong.push(format!("it ends with code {code}")),
    }
    wrong
}

/// Outcomes of many keys.
#[derive(Debug, Default)]
struct Summary {
    n_keys: u64,
    n_done: u64,
    virtual_seconds: f64,
    seen: BTreeMap<&'static str, u64>,
}

/// Runs keys; the first that goes wrong fails, with its log.
fn run(keys: Range<u64>) -> Summary {
    let (begun, mut summary) = (Instant::now(), Summary::default());
    for key in keys {
        let ended = World::run(key, true, false);
        if !wrong(&ended).is_empty() {
            show(key);
        }
        summary.n_keys += 1;
        summary.n_done += u64::from(ended.code == Some(0));
        summary.virtual_seconds += ended.took.as_secs_f64();
        for (what, n) in ended.seen {
            *summary.seen.entry(what).or_insert(0) += n;
        }
    }
    let (seconds, hours) = (begun.elapsed().as_secs_f64(), summary.virtual_seconds / 3600.0);
    println!(
        "{} keys, {} of them done, {hours:.0} virtual hours in {seconds:.1} s: {:?}",
        summary.n_keys, summary.n_done, summary.seen
    );
    summary
}

/// Fails, with the events of a key.
fn show(key: u64) {
    let ended = World::run(key, true, true);
    let log = ended.log.join("\n");
    panic!("key {key}, {:?}\n{log}\nwrong: {:#?}", ended.plan, wrong(&ended));
}

fn range(name: &str) -> Option<Range<u64>> {
    let text = std::env::var(name).ok()?;
    let (start, end) = text.split_once("..")?;
    Some(start.parse().ok()?..end.parse().ok()?)
}

#[test]
fn every_run_ends_with_the_bits_of_the_undisturbed_one_or_with_75() {
    let summary = run(range("SIMULATION_KEYS").unwrap_or(0..5_000));
    if summary.n_keys >= 5_000 {
        let missing: Vec<_> = TRANSITIONS.iter().filter(|what| !summary.seen.contains_key(**what)).collect();
        assert!(missing.is_empty(), "no key took these transitions: {missing:?}");
        assert!(summary.n_done > summary.n_keys * 17 / 20, "{} of {} are done", summary.n_done, summary.n_keys);
    }
}

#[test]
fn slow_a_hundred_thousand_keys() {
    if std::env::var_os("KITH_SLOW").is_some() {
        run(5_000..105_000);
    }
}

#[test]
fn keys_that_found_something() {
    REGRESSIONS.into_iter().for_each(|key| drop(run(key..key + 1)));
}

#[test]
fn a_run_that_nothing_disturbs_ends_well_at_once() {
    for key in 0..500 {
        let ended = World::run(key, false, false);
        assert_eq!((ended.code, wrong(&ended)), (Some(0), Vec::new()), "key {key}");
        for what in ["a restart", "a pod again", "told", "resumed"] {
            assert!(!ended.seen.contains_key(what), "key {key}: {what}");
        }
    }
}

#[test]
fn a_key_is_one_run() {
    for key in 0..50 {
        assert_eq!(World::run(key, true, true).log, World::run(key, true, true).log, "key {key}");
    }
}

/// Shows the events of `SIMULATION_KEY`.
#[test]
fn one_key() {
    let Some(key) = std::env::var("SIMULATION_KEY").ok().and_then(|text| text.parse().ok()) else { return };
    let ended = World::run(key, true, true);
    println!("{}\n{:?}: {:?}", ended.log.join("\n"), ended.plan, ended.code);
    assert_eq!(wrong(&ended), Vec::<String>::new());
}
