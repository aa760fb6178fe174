//! 64 ranks on one host: they join, train, and end or resume together.

use std::{path::Path, process::Command, time::Duration};

use crate::{
    kith::{finish_within, is_slow_asked_for},
    ranks::{Made, results, wait_for_steps_within},
    whole_path::steps,
    worlds::Ranks,
};

const N_RANKS: usize = 64;
/// Two cores start 64 programs one after the other.
const LIMIT: Duration = Duration::from_secs(400);

/// One slice for each rank; a small graph, so that slices of some steps are empty.
fn train(made: &Made, out: &Path) -> Command {
    let mut command = made.train_patiently(&made.store(), out);
    command.args(["--set", "train.slices=64", "--join-timeout", "300", "--resume"]);
    command
}

#[test]
fn slow_sixty_four_ranks_join_train_and_resume() {
    if !is_slow_asked_for() {
        return;
    }
    let made = Made::of_epochs(8);
    let whole = made.path("one-rank");
    let finished = finish_within(&mut train(&made, &whole), LIMIT);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);

    let out = made.path("ranks");
    let start = |name: &str| Ranks::start(&made.path(name), N_RANKS, |_| train(&made, &out));
    let mut ranks = start("killed");
    wait_for_steps_within(&mut ranks, &out, 7, LIMIT);
    ranks.kill(41);
    let codes = ranks.wait(LIMIT);
    let are_fine = codes.iter().enumerate().all(|(rank, code)| if rank == 41 { *code == -1 } else { *code == 75 });
    assert!(are_fine, "{codes:?}\n{}", ranks.all_said());

    let mut ranks = start("resumed");
    let codes = ranks.wait(LIMIT);
    assert!(codes.iter().all(|code| *code == 0), "{codes:?}\n{}", ranks.all_said());
    assert_eq!((steps(&out), results(&out)), (steps(&whole), results(&whole)));
}
